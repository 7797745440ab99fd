"""Every benchmark that a document names can be typed as it stands there."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
COMMAND = re.compile(r"python ((?:-m benchmarks\.|benchmarks/)[^`#\n]*)")


def documented() -> dict[str, set[str]]:
    """Program -> all options that documents give it."""
    found: dict[str, set[str]] = {}
    for document in DOCUMENTS:
        for line in COMMAND.findall(document.read_text()):
            words = shlex.split(line.rstrip(" .,;"))
            count = 2 if words[0] == "-m" else 1
            options = found.setdefault(" ".join(words[:count]), set())
            options.update(word for word in words[count:] if word.startswith("--"))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("program", "options"), sorted(documented().items()))
def test_a_documented_benchmark_knows_its_options(program: str, options: set[str]) -> None:
    done = subprocess.run(
        [sys.executable, *program.split(), "--help"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert "usage:" in done.stdout
    assert not {option for option in options if option not in done.stdout}


def test_the_documents_name_benchmarks() -> None:
    assert len(documented()) >= 7

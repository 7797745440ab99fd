"""A shell's completion proposes commands, problems, runs, kernels and settings."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from kbevolve.evolve.cli.main import cli
from tests.small_archive import Sample


@pytest.fixture
def proposed(monkeypatch: pytest.MonkeyPatch, small_archive: Sample) -> Callable[[str], list[str]]:
    """What is proposed for the last word of a line, beside the small archive."""
    monkeypatch.chdir(small_archive.path.parent)
    monkeypatch.delenv("KBEVOLVE_ARCHIVE", raising=False)

    def complete(line: str) -> list[str]:
        *words, begun = line.split(" ")
        asked = ShellComplete(cli, {}, "kbevolve", "_KBEVOLVE_COMPLETE")
        return [item.value for item in asked.get_completions(words, begun)]

    return complete


@pytest.mark.parametrize(
    ("line", "proposals"),
    [
        ("archive li", ["lineage"]),
        ("run L1/softm", ["L1/softmax"]),
        ("evaluate --problem L1/softm", ["L1/softmax"]),
        ("run --set search.islands", ["search.islands="]),
        ("settings llm.a", ["llm.api_base", "llm.api_key_variable"]),
        ("run --max-ev", ["--max-evaluations"]),
        ("--verb", ["--verbose"]),
    ],
)
def test_names(proposed: Callable[[str], list[str]], line: str, proposals: list[str]) -> None:
    assert proposed(line) == proposals


def test_commands_are_proposed_without_importing_them(proposed: Callable[[str], list[str]]) -> None:
    before = set(sys.modules)
    assert proposed("re") == ["resume", "report"]
    assert "kbevolve.evolve.cli.commands.report" not in set(sys.modules) - before


def test_runs_and_kernels_of_the_archive(proposed: Callable[[str], list[str]], small_archive: Sample) -> None:
    run, kernel = small_archive.run.id, small_archive.best
    assert proposed("resume ") == ["latest", run]
    assert proposed(f"archive diff {kernel[:6]}") == [kernel]
    assert set(proposed(f"archive show {run[:3]}")) == {run}
    assert proposed(f"archive --archive nothing.db show {run[:3]}") == []
    assert proposed(f"archive show --archive nothing.db {run[:3]}") == []


def test_bash_gets_its_answer_from_the_program(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "kbevolve"],
        cwd=tmp_path,
        env={**os.environ, "_KBEVOLVE_COMPLETE": "bash_complete", "COMP_WORDS": "kbevolve doc", "COMP_CWORD": "1"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "plain,doctor\n"
    assert list(tmp_path.iterdir()) == []

"""``--json``: standard output has the JSON and nothing else, whatever the command, a problem or a kernel prints."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest

from kbevolve.evolve.cli.main import COMMANDS, cli

#: It prints as Python does, and past Python: as a process that it starts would.
NOISY = """import os

import torch

print("noise at import")
os.write(1, b"raw noise at import")


class Model(torch.nn.Module):
    def forward(self, A, B):
        print("noise in forward")
        return torch.relu(A @ B)


def get_inputs():
    print("noise in get_inputs")
    return [torch.randn(64, 32), torch.randn(32, 48)]


def get_init_inputs():
    return []
"""
#: They serve, follow, or print JSON anyway.
WITHOUT = {"ask", "mcp", "browse", "watch"}


@pytest.mark.parametrize("name", [name for name in COMMANDS if name not in WITHOUT])
def test_every_command_has_json(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    for one in command.commands.values() if isinstance(command, click.Group) else (command,):
        assert any("--json" in parameter.opts for parameter in one.params), f"{name} {one.name}"


@pytest.mark.slow
@pytest.mark.parametrize(
    "words",
    [
        ("problems", "check", "noisy.py", "--device", "cpu", "--fresh", "--json"),
        ("problems", "show", "noisy.py", "--graph", "--device", "cpu", "--json"),
        ("evaluate", "kernel.py", "--problem", "noisy.py", "--device", "cpu", "--json"),
        ("ask", "--problem", "noisy.py", "--device", "cpu", "--set", "search.islands=1"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_a_problem_prints_goes_to_standard_error(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "noisy.py").write_text(NOISY)
    (tmp_path / "kernel.py").write_text(NOISY.replace("class Model(", "class ModelNew("))
    program = "from kbevolve.evolve.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", program, *words], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert isinstance(json.loads(done.stdout), dict)
    assert "noise" in done.stderr


def test_a_print_in_this_process_goes_to_standard_error(kbevolve: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    from kbevolve.evolve.cli.commands import problems

    def noisy() -> list[str]:
        print("noise")
        return ["L1/softmax"]

    monkeypatch.delenv("KERNELBENCH", raising=False)
    monkeypatch.setattr(problems, "builtin_names", noisy)
    outcome = kbevolve("problems", "ls", "--json")
    (listed,) = json.loads(outcome.out)
    assert (listed["problem"], listed["level"], listed["flaws"]) == ("L1/softmax", 1, [])
    assert "cpp" in listed["seeds"]
    assert outcome.err == "noise\n"
    assert "noise" in kbevolve("problems", "ls").out


def test_a_plot_has_its_numbers(kbevolve: Any, small_archive: Any, tmp_path: Path) -> None:
    file = tmp_path / "best.svg"
    found = json.loads(kbevolve("plot", "--json", "-o", file, "--archive", small_archive.path).out)
    assert file.stat().st_size > 1000
    assert found["file"] == str(file)
    (run,) = found["runs"]
    assert run["steps"][-1]["kernel"] == small_archive.best
    assert len(run["kernels"]) == len(small_archive.evaluations)
    assert run["published"] == small_archive.evaluations[small_archive.best].timing.speedup


def test_what_was_written_is_named(kbevolve: Any, make_archive: Any, tmp_path: Path) -> None:
    sample = make_archive()
    where = ("--archive", sample.path, "--json")
    report = json.loads(kbevolve("report", "latest", "-o", tmp_path / "run.md", *where).out)
    assert report["run"] == sample.run.id
    assert all(Path(file).exists() for file in report["files"])
    assert len(report["files"]) > 1
    births = tmp_path / "births.jsonl"
    made = json.loads(kbevolve("export", "--format", "dataset", "-o", births, *where).out)
    assert made == {"file": str(births), "format": "dataset", "births": len(sample.births), "runs": [sample.run.id]}
    waiting = json.loads(kbevolve("pending", tmp_path / "none", *where).out)
    assert (waiting["kernels"], waiting["folder"], waiting["run"]) == ([], None, sample.run.id)


def test_a_problem_and_its_prompt_are_objects(kbevolve: Any) -> None:
    shown = json.loads(kbevolve("problems", "show", "L1/softmax", "--device", "cpu", "--json").out)
    assert shown["source"] == kbevolve("problems", "show", "L1/softmax", "--device", "cpu").out
    assert shown["problem"] == "L1/softmax"
    prompt = json.loads(kbevolve("problems", "prompt", "L1/softmax", "--gpu", "H100", "--json").out)
    assert set(prompt) == {"system", "user"}
    assert prompt["user"] in kbevolve("problems", "prompt", "L1/softmax", "--gpu", "H100").out

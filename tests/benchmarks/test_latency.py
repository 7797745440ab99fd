"""What the benchmark of latency writes: moments of a run's verdicts after its command, and each child of a judge."""

import os
import subprocess
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarks import latency
from benchmarks.throughput import lines
from kbevolve.archive.parts import changed
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.archive.store import Archive
from kbevolve.configs.cache_directory import VARIABLE
from kbevolve.configs.problem import Problem
from kbevolve.evaluators.device.devices import find_device
from tests.evolve.doubles import KnownEvaluator, KnownJudge, kernel, open_run, problem, search, settings

#: The time of the test, in seconds.
NOW = 1e6


class Clocked(KnownEvaluator):
    """Evaluations that begin one second after the other."""

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        began = NOW + self.asked.total()
        return changed(super().evaluate(problem, kernel), started_at=began, seconds=2.5, phases={"build": 1.5})


def test_a_verdict_has_its_moments_after_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    caches: list[str] = []

    def command(words: list[str], **_: object) -> None:
        assert words[-2:] == ["--device", "cpu"]
        caches.append(os.environ[VARIABLE])
        with Archive(Path(words[words.index("--archive") + 1])) as archive:
            chosen = settings(generations=0)
            search(archive, open_run(archive, chosen), chosen, Clocked(), starts=[kernel(), kernel(UNROLL=2)]).run()

    monkeypatch.setattr(subprocess, "run", command)
    monkeypatch.setattr(latency, "time", SimpleNamespace(time=lambda: NOW))
    for _ in range(2):
        latency.run("L1/double", tmp_path / "out.jsonl", ["--device", "cpu"])
    rows = lines.read(tmp_path / "out.jsonl")
    assert [row["row"] for row in rows] == 2 * ["verdict 1 of a run", "verdict 2 of a run"]
    for number, row in enumerate(rows[:2]):
        assert (row["began"], row["seconds"]) == (number, number + 2.5)
        assert row["phases"] == {"build": 1.5}
    assert len(set(caches)) == 2, "the second run found the cache of the first"
    assert VARIABLE not in os.environ or os.environ[VARIABLE] not in caches


def test_a_judge_gets_one_child_after_another(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "Judge", KnownJudge())
    children = [("first", kernel()), ("wrong", kernel(WRONG=1))]
    latency.judge(problem(), children, find_device("cpu"), tmp_path / "out.jsonl")
    rows: list[dict[str, Any]] = lines.read(tmp_path / "out.jsonl")
    assert [(row["row"], row.get("verdict")) for row in rows] == [
        ("judge", None), ("preparation", None), ("first", "CORRECT"), ("wrong", "WRONG"),
    ]  # fmt: skip
    text = latency.table([{**row, "seconds": 1.0} for row in rows])
    assert "| problem | what | verdict | seconds | prepare | build |" in text
    assert "| L1/double | wrong | WRONG | 1.00 | 0.10 | 0.20 |" in text
    assert "| L1/double | judge |  | 1.00 |  |  |" in text


@pytest.mark.slow
def test_a_real_run_writes_a_line_for_each_starting_kernel(tmp_path: Path) -> None:
    options = ["--device", "cpu", "--preset", "smoke", "--set", "search.islands=1"]
    latency.run("L1/softmax", tmp_path / "out.jsonl", options)
    rows = lines.read(tmp_path / "out.jsonl")
    assert [row["verdict"] for row in rows] == ["CORRECT", "CORRECT"]
    assert all(0 < row["began"] < row["seconds"] for row in rows)
    assert all({"build", "trials", "timing"} <= row["phases"].keys() for row in rows)

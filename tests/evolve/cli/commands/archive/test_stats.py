"""`kbevolve archive stats`, as a user types it."""

import dataclasses
import json
import re
import sqlite3
import subprocess
import sys
from datetime import datetime
from typing import Any

import pytest

from kbevolve.archive.parts import changed
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.archive.store import Archive


def timed(sample: Any, count: int = 4) -> list[Evaluation]:
    """Evaluations of fresh kernels of the sample's run, one after another with a second between."""
    made = []
    start = datetime.fromisoformat(sample.run.created).timestamp()
    with Archive(sample.path) as archive:
        for number in range(count):
            kernel = Kernel.from_source(f"class ModelNew: number = {number}\n")
            birth = dataclasses.replace(sample.births[0], generation=100 + number, kernel=kernel.id)
            archive.add_birth(birth, kernel=kernel)
            made.append(
                changed(
                    sample.evaluations[sample.best], kernel=kernel.id, started_at=start + 11.0 * number, seconds=10.0,
                    phases={"lint": 0.5, "build": 2.0 + number, "trials": 1.0, "timing": 3.0},
                    device_instance="node7/cuda:0",
                )
            )  # fmt: skip
            archive.add_evaluation(made[-1])
    return made


@pytest.fixture
def stats(kbevolve: Any, small_archive: Any) -> Any:
    def call(*words: str) -> Any:
        return kbevolve("archive", "stats", *words, "--archive", small_archive.path)

    return call


def test_json_is_one_object_with_every_figure(stats: Any, small_archive: Any) -> None:
    timed(small_archive)
    outcome = stats("--json")
    assert outcome.code == 0, outcome.err
    facts = json.loads(outcome.out)
    assert facts["run"] == small_archive.run.id
    assert (facts["judged"], facts["untimed"]) == (4, len(small_archive.evaluations))
    assert facts["wall"] == pytest.approx(43)
    assert facts["children_per_hour"] == pytest.approx(4 / 43 * 3600)
    assert facts["idle"] == pytest.approx(3 / 43)
    phases = {phase["name"]: phase for phase in facts["phases"]}
    assert list(phases) == ["lint", "build", "trials", "timing", "overhead"]
    assert (phases["build"]["mean"], phases["build"]["total"]) == (3.5, 14)
    (device,) = facts["devices"]
    assert device["device_instance"] == "node7/cuda:0"
    assert device["busy"] == pytest.approx(16 / 43)
    assert device["alone"] == pytest.approx(12 / 43)
    assert sum(facts["verdicts"].values()) == len(small_archive.evaluations) + 4
    assert (facts["duplicates"], facts["prompt_tokens"] > 0) == (1, True)


def test_the_tables_say_the_same(stats: Any, small_archive: Any) -> None:
    timed(small_archive)
    out = stats().out
    for part in (
        small_archive.run.id, "335 children per hour", "0:43 for 4 children", "7.0 % of the wall time, 1.000 s at most",
        "1 duplicate", "without times", "sent", "node7/cuda:0", "37.2 %", "27.9 %",
    ):  # fmt: skip
        assert part in out, out
    build = next(line.split() for line in out.splitlines() if line.startswith("build "))
    assert build == ["build", "4", "3.500", "3.500", "5.000", "14.0", "35.0", "%", "compiling,", "importing"]


def test_the_rest_of_the_time_is_explained(stats: Any, small_archive: Any) -> None:
    timed(small_archive)
    file = sqlite3.connect(small_archive.path)
    times = small_archive.run.id, "2026-11-21T08:00:00+00:00", "2026-11-21T08:01:20+00:00"
    with file:
        file.execute("insert into sessions (run, started_at, ended_at) values (?, ?, ?)", times)
    file.close()
    assert json.loads(stats("latest", "--json").out)["sessions"] == pytest.approx(80)
    words = "1:20 in all, 0:37 of it before the first evaluation and after the last: starting the judges, contests"
    assert words in stats().out
    assert stats("latest").out == stats("--run", "latest").out == stats().out
    both = stats("latest", "--run", "latest")
    assert (both.code, "give one of them" in both.err) == (2, True)


def test_the_tables_fit_on_a_terminal(stats: Any, small_archive: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    timed(small_archive)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "80")
    out = re.sub(r"\x1b\[[0-9;]*m", "", stats().out)
    tables = [line for line in out.splitlines() if line.startswith(("phase", "build", "timing", "overhead", "device "))]
    assert len(tables) >= 5
    assert all(len(line) <= 80 for line in tables)


def test_a_run_is_chosen_by_id_or_by_problem(stats: Any, small_archive: Any, make_archive: Any) -> None:
    make_archive(run_id="softmax-2", problem_name="L1/softmax", seed=2)
    assert json.loads(stats("--json").out)["run"] == "softmax-2"
    assert json.loads(stats("--json", "--problem", "L1/matmul").out)["run"] == small_archive.run.id
    assert json.loads(stats("--json", "--run", "matmul").out)["run"] == small_archive.run.id
    both = stats("--run", "softmax-2", "--problem", "L1/matmul")
    assert both.code == 2
    assert "give one of them" in both.err
    assert "Nearest: L1/softmax" in stats("--problem", "L1/softmac").err


def test_a_run_of_an_older_version_has_counts_and_no_rates(stats: Any, small_archive: Any) -> None:
    outcome = stats()
    assert outcome.code == 0
    assert f"{len(small_archive.evaluations)} without times" in outcome.out
    assert "per hour" not in outcome.out
    assert json.loads(stats("--json").out)["children_per_hour"] is None


def test_it_imports_nothing_heavy(small_archive: Any) -> None:
    program = (
        "import sys; from kbevolve.evolve.cli.main import cli\n"
        "for words in (['archive', 'stats'], ['archive', 'stats', '--json']):\n"
        "    cli.main([*words, '--archive', sys.argv[1]], standalone_mode=False)\n"
        "import kbevolve.evolve.cli.commands.tell\n"
        "print(sorted({'torch', 'ray', 'matplotlib', 'numpy', 'openai'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, small_archive.path], capture_output=True, text=True, check=True
    )
    assert done.stdout.splitlines()[-1] == "[]"

"""A run that is killed and entered again leaves what the undisturbed one leaves, and pays for no answer twice."""

import json
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.kills.endpoint import CRASH, WRONG, answer, identity
from benchmarks.kills.judge import FictitiousJudge, speed_of
from benchmarks.kills.kills import Ended, Found, Kill, _compare
from benchmarks.kills.session import DEVICE
from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import EvaluationSettings

ROOT = Path(__file__).parents[2]
SEED = seed_files("L1/gelu", "cpu")[0].read_text()


@pytest.mark.slow
def test_ten_kills_at_random_moments_change_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.kills", "--kills", "10", "--seed", "1", "--quiet"],
        cwd=ROOT, capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["kills"], found["same"], found["requested_twice"], found["lost"]) == (10, found["runs"], 0, 0)
    assert found["undisturbed_answers"] > 30


def asked(said: str) -> dict[str, Any]:
    return {"messages": [{"role": "system", "content": "s"}, {"role": "user", "content": said}]}


def test_the_scripted_model_gives_all_kinds_of_answers_and_the_same_to_the_same() -> None:
    judge, kinds = FictitiousJudge(DEVICE, EvaluationSettings()), Counter[Any]()
    problem = find_problem("L1/gelu")
    for number in range(80):
        body = asked(f"{number}: make it faster.\n```python\n{SEED}```\n")
        text, finish = answer(body)
        assert (text, finish) == answer(body)
        assert text.split()[1] == f"{identity(body)}:"
        code = text.partition("```python\n")[2].partition("```")[0]
        if finish != "stop" or not code:
            kinds[finish if code else "prose"] += 1
            continue
        kernel = Kernel.from_source(code)
        found = judge.evaluate(problem, kernel)
        assert (found.verdict is Verdict.WRONG) == (WRONG in code)
        assert (found.verdict is Verdict.CRASHED) == (CRASH in code)
        assert found.timing.speedup == (speed_of(kernel) if found.verdict is Verdict.CORRECT else None)
        kinds[found.verdict] += 1
    assert kinds.keys() == {"length", "prose", *(set(Verdict) - {Verdict.BUILD_FAILED, Verdict.TIMED_OUT})}
    assert json.loads(answer(asked("Answer with JSON"))[0].partition("```json\n")[2].partition("```")[0])


def ended(
    *sessions: dict[str, int], kept: dict[str, int] | None = None, arrived: dict[str, float] | None = None
) -> Ended:
    kills = tuple(Kill(at=10.0, kept=Counter(kept or {}), arrived=arrived or {}) for _ in sessions[1:])
    return Ended(content={"births": 1}, kills=kills, asked=tuple(map(Counter, sessions)), answers=3, seconds=1.0)


@pytest.mark.parametrize(
    ("run", "requested_twice", "in_flight", "arrived"),
    [
        (ended({"a": 1}, {"b": 1}, kept={"a": 1}), 0, 0, 0),
        (ended({"a": 1}, {"a": 1, "b": 1}), 0, 1, 0),
        (ended({"a": 1}, {"a": 1, "b": 1}, arrived={"a": 9.5}), 0, 1, 1),
        (ended({"a": 1}, {"a": 1, "b": 1}, kept={"a": 1}, arrived={"a": 9.5}), 1, 0, 0),
        (ended({"a": 1, "b": 1}, {"b": 2}, kept={"a": 1}), 1, 1, 0),
        (ended({"a": 1}, {}, {"a": 1, "b": 1}, arrived={"a": 9.5}), 0, 1, 1),
    ],
)
def test_requests_sent_twice_differ_from_requests_in_flight(
    run: Ended, requested_twice: int, in_flight: int, arrived: int
) -> None:
    found = Found()
    _compare(found, ended({"a": 1, "b": 1}), run)
    assert (found.requested_twice, found.in_flight, found.arrived) == (requested_twice, in_flight, arrived)
    assert (found.runs, found.kills, found.same) == (1, len(run.kills), 1)
    assert found.ok == (not requested_twice)
    assert found.oldest_ms == (500 if arrived else 0)


def test_an_answer_that_the_search_had_must_be_in_the_archive() -> None:
    run = ended({"a": 1}, {"b": 1}, kept={"a": 1})
    found = Found()
    for handed_on in ({"a"}, {"a", "b"}):
        kills = (replace(run.kills[0], handed_on=frozenset(handed_on)),)
        _compare(found, ended({"a": 1, "b": 1}), replace(run, kills=kills))
        assert found.lost == len(handed_on) - 1
        assert found.ok is not bool(found.lost)

"""The event stream of a run: its order, its contents, and that docs/events.md explains each field."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.settings import BudgetSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.event_stream import EventStream
from kbevolve.evolve.runs.session import open_run, run_session
from tests.evolve.doubles import DEVICE, KnownJudge, context_of, kernel, problem, replace_starts, settings

HERE = Device(type="cpu", index=0, fingerprint=DEVICE, description="a double")
DOCUMENT = Path(__file__).parents[3] / "docs" / "events.md"


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The events of a run of three generations."""
    KnownJudge().replace_judge(monkeypatch)
    replace_starts(monkeypatch, StartingKernel(kernel=kernel(), note="naive"))
    chosen, archive, found = settings(generations=3), Archive(":memory:"), []
    context = context_of(archive, open_run(archive, problem(), HERE, chosen), HERE, chosen)
    stream = EventStream(context, HERE.description, lambda line: found.append(dict(line)))
    ending = run_session(context, JudgeDevices(devices=(HERE,), device=HERE), observer=stream)
    stream.stopped(ending.reason, ending.baselines)
    return found


def test_a_run_begins_and_ends_and_names_each_generation_once(events: list[dict[str, Any]]) -> None:
    kinds = [event["event"] for event in events]
    assert (kinds[0], kinds[-2:]) == ("started", ["generation", "stopped"])
    assert [event["generation"] for event in events if event["event"] == "generation"] == [0, 1, 2, 3]
    attempts = [event["attempt"] for event in events if event["event"] == "kernel"]
    assert len(set(attempts)) == len(attempts) > 4
    for event in events:
        json.dumps(event, allow_nan=False)


def test_counts_and_the_best_agree_with_what_was_sent(events: list[dict[str, Any]]) -> None:
    last, end = events[-2:]
    correct = {event["kernel"] for event in events if event["event"] == "kernel" and event["verdict"] == "correct"}
    champion = [event for event in events if event["event"] == "champion"][-1]
    assert last["verdicts"]["correct"] == len(correct) == end["correct"]
    assert last["kernel"] == champion["kernel"] == end["kernel"]
    assert last["speedup"] == champion["speedup"] == end["speedup"]
    assert end["reason"] == "generations"
    assert end["baselines"].keys() == {"compile", "graph"}


@pytest.mark.parametrize(("evaluations", "closed"), [(1, []), (2, [0]), (3, [0]), (4, [0, 1])])
def test_a_generation_that_the_end_of_the_time_left_open_is_not_named(
    monkeypatch: pytest.MonkeyPatch, evaluations: int, closed: list[int]
) -> None:
    judge = KnownJudge()
    judge.replace_judge(monkeypatch)
    starts = (StartingKernel(kernel=kernel(), note="naive"), StartingKernel(kernel=kernel(UNROLL=2), note="better"))
    replace_starts(monkeypatch, *starts)
    chosen = settings(generations=3, evaluation={"confirm_rounds": 0})  # a contest would have to begin, too
    archive, found = Archive(":memory:"), list[dict[str, Any]]()
    chosen = chosen.model_copy(update={"budget": BudgetSettings(wall_seconds=evaluations)})
    context = context_of(archive, open_run(archive, problem(), HERE, chosen), HERE, chosen)
    monkeypatch.setattr("kbevolve.evolve.runs.session.monotonic", judge.asked.total)  # one second each
    stream = EventStream(context, HERE.description, lambda line: found.append(dict(line)))
    ending = run_session(context, JudgeDevices(devices=(HERE,), device=HERE), observer=stream)
    stream.stopped(ending.reason, ending.baselines)
    named = [event["generation"] for event in found if event["event"] == "generation"]
    assert (found[-1]["event"], found[-1]["reason"]) == ("stopped", "wall_time_spent")
    assert named == closed


def test_an_error_is_the_end_of_the_stream() -> None:
    chosen, archive, found = settings(generations=3), Archive(":memory:"), []
    context = context_of(archive, open_run(archive, problem(), HERE, chosen), HERE, chosen)
    stream = EventStream(context, "a double", lambda line: found.append(dict(line)))
    archive.add_stop(context.run.id, StopReason.EVALUATOR)
    stream.failed(str(EvaluatorError("no memory left")))
    assert (found[-1]["reason"], found[-1]["message"]) == ("evaluator", "no memory left")


def test_every_field_is_explained(events: list[dict[str, Any]]) -> None:
    sections = re.split(r"^## `(\w+)`$", DOCUMENT.read_text(), flags=re.MULTILINE)[1:]
    explained = {
        name: set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
        for name, text in zip(sections[::2], sections[1::2], strict=True)
    }
    sent = {event["event"]: event.keys() - {"event", "at"} for event in events}
    assert explained == sent


def test_every_reason_is_explained() -> None:
    (row,) = re.findall(r"^\| `reason` \|.*$", DOCUMENT.read_text(), re.MULTILINE)
    assert set(re.findall(r"`(\w+)`", row)) == {"reason", "failed", *(reason.name.lower() for reason in StopReason)}

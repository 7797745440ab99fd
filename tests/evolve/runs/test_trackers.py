"""Trackers report each generation to their libraries; stand-ins take the libraries' places."""

import sys
from types import SimpleNamespace
from typing import Any
from unittest.mock import MagicMock

import pytest

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.runs.trackers import MODULES, metrics_of, trackers_of

STARTED = {
    "event": "started",
    "run": "softmax-1",
    "problem": "L1/softmax",
    "device": "H200",
    "settings": {"device": "cuda"},
}
GENERATION = {
    "event": "generation", "generation": 7, "speedup": 1.5, "islands": [1.5, None],
    "verdicts": {"correct": 3, "wrong": 1}, "evaluations": 4, "device_seconds": 2.5, "prompt_tokens": 10,
    "completion_tokens": 5, "dollars": None,
}  # fmt: skip
KERNEL = {"event": "kernel", "kernel": "3f2a"}
STOPPED = {"event": "stopped", "kernel": "3f2a", "speedup": 1.5, "reason": "generations"}
NUMBERS = {
    "speedup": 1.5, "correct": 3.0, "island_0": 1.5, "evaluations": 4.0, "device_seconds": 2.5, "prompt_tokens": 10.0,
    "completion_tokens": 5.0,
}  # fmt: skip


def reported(name: str, monkeypatch: pytest.MonkeyPatch) -> MagicMock:
    """What a run calls of a tracker's library."""
    library = MagicMock()
    monkeypatch.setitem(sys.modules, MODULES[name], library)
    (sink,) = trackers_of([name], pytest.fail)
    for line in (STARTED, KERNEL, GENERATION, STOPPED):
        sink(line)
    return library


def test_unknown_values_are_no_numbers() -> None:
    assert metrics_of(GENERATION) == NUMBERS


def test_wandb(monkeypatch: pytest.MonkeyPatch) -> None:
    library = reported("wandb", monkeypatch)
    assert library.init.call_args.kwargs["id"] == "softmax-1"
    assert library.init.call_args.kwargs["config"]["problem"] == "L1/softmax"
    run = library.init.return_value
    run.log.assert_called_once_with(NUMBERS, step=7)
    assert run.summary.update.call_args.args[0]["kernel"] == "3f2a"
    run.finish.assert_called_once_with()


def test_mlflow(monkeypatch: pytest.MonkeyPatch) -> None:
    library = reported("mlflow", monkeypatch)
    assert library.start_run.call_args.kwargs["run_name"] == "softmax-1"
    library.log_metrics.assert_called_once_with(NUMBERS, step=7)
    library.end_run.assert_called_once_with()


def test_tensorboard(monkeypatch: pytest.MonkeyPatch) -> None:
    library = reported("tensorboard", monkeypatch)
    library.SummaryWriter.assert_called_once_with(log_dir="runs/softmax-1")
    writer = library.SummaryWriter.return_value
    assert {call.args[0]: call.args[1:] for call in writer.add_scalar.call_args_list} == {
        name: (value, 7) for name, value in NUMBERS.items()
    }
    writer.close.assert_called_once_with()


def test_a_tracker_that_fails_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**words: Any) -> None:
        raise ConnectionError("no network")

    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(init=refuse))
    said: list[str] = []
    (sink,) = trackers_of(["wandb"], said.append)
    for line in (STARTED, GENERATION, STOPPED):
        sink(line)
    (warning,) = said
    assert "no network" in warning


@pytest.mark.parametrize("name", MODULES)
def test_a_missing_package_is_named_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, MODULES[name], None)
    with pytest.raises(UsageError, match=rf"kbevolve\[{name}\]"):
        trackers_of([name], pytest.fail)

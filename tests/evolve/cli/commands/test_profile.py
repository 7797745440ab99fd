"""`kbevolve profile`, with a judge that has its answer ready."""

import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, Self

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Kernel, Launch, Profile, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.feedback.counters import CounterReadings
from kbevolve.evolve.cli.render.profile import profile_words

PROFILE = Profile(
    launches=(
        Launch(name="mine", share=0.75, microseconds=300.0, launches=1.0, registers=168, shared_memory=49152),
        Launch(name="at::native::fill", share=0.25, microseconds=50.0, launches=2.0, library=True),
    ),
    gigabytes_per_second=1234.0,
    roofline_share=0.5,
    bottleneck="far from the roofline (50 %): latency",
)


class KnownJudge:
    """Finds every kernel correct that does not say otherwise."""

    def __init__(self, device: Device, settings: EvaluationSettings) -> None:
        assert settings.profile
        assert settings.force
        self.device = device

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: Any) -> None: ...

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        wrong = "wrong" in kernel.source
        return grouped(
            Evaluation,
            kernel=kernel.id,
            problem=problem.id,
            device=self.device.fingerprint,
            precision="fp32",
            verdict=Verdict.WRONG if wrong else Verdict.CORRECT,
            message="every row" if wrong else "",
            time_ms=None if wrong else 0.4,
            speedup=None if wrong else 1.7,
            profile=None if wrong else PROFILE,
        )


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    judge = ModuleType("kbevolve.evaluators.judging.judge")
    vars(judge)["Judge"] = KnownJudge
    monkeypatch.setitem(sys.modules, judge.__name__, judge)
    path = tmp_path / "kernel.py"
    path.write_text("class ModelNew: ...\n")
    return path


def test_what_ran_and_what_limits_it(kbevolve: Callable[..., Any], kernel: Path) -> None:
    done = kbevolve("profile", kernel, "--problem", "L1/matmul", "--device", "cpu")
    assert done.code == 0
    lines = [line.split() for line in done.out.splitlines()]
    assert ["share", "µs/call", "launches", "registers", "shared_KiB", "what_ran"] in lines
    assert ["75", "%", "300", "1", "168", "48", "mine"] in lines
    assert ["25", "%", "100", "2", "-", "-", "at::native::fill"] in lines
    assert "Effective: 50 % of the roofline, 1234 GB/s." in done.out
    assert "Far from the roofline (50 %): latency." in done.out
    assert "spilled" not in done.out  # no spills were reported


def test_a_wrong_kernel_is_said_to_be_wrong_and_is_not_profiled(kbevolve: Callable[..., Any], kernel: Path) -> None:
    kernel.write_text("class ModelNew: ...  # wrong\nx = 'wrong'\n")
    done = kbevolve("profile", kernel, "--problem", "L1/matmul", "--device", "cpu", "--ncu")
    assert done.code == 0
    assert "every row" in done.out
    assert "what_ran" not in done.out
    assert "counters" not in done.out


def test_counters_where_there_are_none_cost_one_line(kbevolve: Callable[..., Any], kernel: Path) -> None:
    done = kbevolve("profile", kernel, "--problem", "L1/matmul", "--device", "cpu", "--ncu")
    assert done.out.splitlines()[-1] == "No counters: hardware counters are those of a GPU; this is a CPU."


def test_counters_are_shown_and_decide_the_bottleneck(
    kbevolve: Callable[..., Any], kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = CounterReadings(kernel="mine", readings={"DRAM busy": 81.0, "SM busy": 12.0, "registers a thread": 168.0})
    monkeypatch.setattr("kbevolve.evaluators.feedback.counters.read_counters", lambda *_, **__: counted)
    done = kbevolve("profile", kernel, "--problem", "L1/matmul", "--device", "cpu", "--ncu", "--json")
    found = json.loads(done.out)
    assert found["profile"]["counters"]["DRAM busy"] == 81.0
    assert found["profile"]["bottleneck"].startswith("memory-bound")
    assert found["ncu"] == ""


def test_a_file_that_is_not_there_is_an_error_in_a_line(kbevolve: Callable[..., Any], tmp_path: Path) -> None:
    done = kbevolve("profile", tmp_path / "none.py", "--problem", "L1/matmul")
    assert done.code == 2
    assert "none.py" in done.err


def test_registers_have_no_percent() -> None:
    words = profile_words(Profile(counters={"DRAM busy": 81.2, "registers a thread": 168.0}))
    assert words == ["Counters: DRAM busy 81 %, registers a thread 168."]

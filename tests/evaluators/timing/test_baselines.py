"""Which baselines there are, which of them is the best, and what is remembered of them."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch import nn

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.timing.baselines import (
    BASELINES,
    DEFAULT_FLAGS,
    EAGER,
    Baseline,
    best,
    missing,
    over_best,
    recall,
    remember,
)
from kbevolve.evaluators.timing.statistics import Speedup
from kbevolve.evaluators.worker.baselines import Replayed, wrap
from kbevolve.evaluators.worker.precision import flags_are_set, flags_for

GPU = Device(type="cuda", index=0, fingerprint="cuda/H/torch 2", description="a GPU")
COMPILE = Baseline.of("compile", Speedup(estimate=1.5, low=1.4, high=1.6))
GRAPH = Baseline.of("graph", Speedup(estimate=0.9, low=0.8, high=1.0))
FAILED = Baseline(name="max-autotune", failure="out of memory")


def test_the_best_is_the_fastest_and_eager_when_none_is_faster() -> None:
    assert best([GRAPH, COMPILE, FAILED]) is COMPILE
    assert best([GRAPH, FAILED]).name == EAGER
    assert best([]).speedup == 1.0


def test_eager_of_less_precision_is_never_the_best() -> None:
    assert best([Baseline(name=DEFAULT_FLAGS, speedup=4.0), GRAPH]).name == EAGER


def test_flags_are_the_default_ones_in_the_call_only() -> None:
    seen: list[tuple[bool, bool]] = []

    def model(x: int) -> int:
        seen.append((torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32))
        return x + 1

    with flags_for("fp32"):
        assert wrap(model, DEFAULT_FLAGS)(2) == 3  # type: ignore[arg-type]
        assert flags_are_set("fp32")
    assert seen == [(False, True)]


def test_a_slow_baseline_makes_no_kernel_look_faster() -> None:
    assert over_best(3.0, [COMPILE, GRAPH]) == pytest.approx(2.0)
    assert over_best(3.0, [GRAPH]) == 3.0


def test_what_was_measured_is_recalled_and_failures_are_tried_again(tmp_path: Path) -> None:
    disk_cache = DiskCache(tmp_path)
    remember(disk_cache, [GRAPH, COMPILE, FAILED], problem="p", device=GPU, precision="fp32")
    known = recall(disk_cache, problem="p", device=GPU, precision="fp32")
    assert known == (COMPILE, GRAPH)
    assert missing(GPU, known) == (DEFAULT_FLAGS, "max-autotune")


def test_another_precision_device_or_problem_has_its_own(tmp_path: Path) -> None:
    disk_cache = DiskCache(tmp_path)
    remember(disk_cache, [COMPILE], problem="p", device=GPU, precision="fp32")
    other = replace(GPU, fingerprint="cuda/H/torch 3")
    assert recall(disk_cache, problem="p", device=other, precision="fp32") == ()
    assert recall(disk_cache, problem="q", device=GPU, precision="fp32") == ()
    assert recall(disk_cache, problem="p", device=GPU, precision="tf32") == ()


@pytest.mark.parametrize(
    "tree",
    [7, {"name": "compile"}, [3], [{"name": "compile", "speed": 1.0}], [{"name": [1]}]],
)
def test_a_strange_file_is_a_miss(tmp_path: Path, tree: object) -> None:
    class Odd(DiskCache):
        def get(self, kind: str, key: str) -> object:
            return tree

    assert recall(Odd(tmp_path), problem="p", device=GPU, precision="fp32") == ()


@pytest.mark.slow
def test_every_baseline_can_be_made_and_eager_is_the_model_itself() -> None:
    model = nn.ReLU()
    assert wrap(model, EAGER) is model
    for name in {name for names in BASELINES.values() for name in names}:
        assert callable(wrap(model, name))
    with pytest.raises(ValueError, match="no baseline 'turbo'"):
        wrap(model, "turbo")


def test_a_graph_is_captured_anew_for_other_tensors_only(monkeypatch: pytest.MonkeyPatch) -> None:
    captured = []
    replayed = Replayed(lambda x, k: x * k, fall_back=True)
    monkeypatch.setattr(replayed, "_capture", lambda arguments: captured.append(arguments))
    first, second = torch.ones(3), torch.ones(3)
    for arguments in ((first, 2), (first, 2), (second, 2), (second, 3)):
        assert torch.equal(replayed(*arguments), arguments[0] * arguments[1])
    first.fill_(5)  # other contents in the same place are what a replay is for
    assert [(one[0] is second, one[1]) for one in captured] == [(False, 2), (True, 2), (True, 3)]


@pytest.mark.slow
def test_compiled_answers_follow_inputs_and_weights_that_change_in_place() -> None:
    model = nn.Sequential(nn.Linear(8, 8), nn.ReLU()).eval()
    with torch.no_grad():
        compiled, inputs = wrap(model, "compile"), torch.randn(4, 8)
        for _ in range(3):
            torch.testing.assert_close(compiled(inputs), model(inputs))
            inputs.normal_()
            model[0].weight.mul_(2.0)

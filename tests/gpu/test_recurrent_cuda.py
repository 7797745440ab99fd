"""Recurrent layers in one launch, on a device of sm_90."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.configs.templates import template
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evolve.proposers.seeds.recurrent import with_recurrent_layers
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.evolve.proposers.seeds.test_seeds import problem_of
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
#: Steps, sequences, input size, hidden size, layers, and what differs from torch's defaults.
LAYERS: list[tuple[int, int, int, int, int, dict[str, bool]]] = [
    (1, 10, 128, 256, 1, {}),
    (2, 1, 3, 64, 2, {"batch_first": True}),
    (33, 10, 128, 256, 2, {}),
    (40, 5, 17, 192, 3, {"bias": False}),
    (20, 7, 40, 128, 3, {"batch_first": True, "bidirectional": True}),
    (20, 16, 64, 64, 2, {"bidirectional": True}),
    (700, 12, 64, 256, 6, {}),
    (50, 4, 64, 128, 19, {}),
    (512, 10, 512, 256, 1, {"bidirectional": True}),  # its products with inputs are on pairs
]


@pytest.fixture(params=[{}, {"RECURRENT_SLOTS": "2", "RECURRENT_GROUPS": "1"}], ids=["as declared", "one group"])
def module(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    names = ("imports", "no_epilogue", "split_pairs", "split_products", "cuda_library", "recurrent")
    text = "\n\n".join(map(template, names))
    return imported(with_values(text, request.param), tmp_path, "recurrent")


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize(("steps", "batch", "size", "hidden", "count", "options"), LAYERS)
@pytest.mark.parametrize("given", [True, False])
def test_it_is_as_accurate_as_fp32(
    module: Any, kind: str, steps: int, batch: int, size: int, hidden: int, count: int, options: Any, given: bool
) -> None:
    torch.manual_seed(0)
    layer = getattr(module, f"Recurrent{kind}")(size, hidden, count, **options).cuda()
    truth = getattr(torch.nn, kind)(size, hidden, count, **options).cuda().double()
    truth.load_state_dict(layer.state_dict())
    x = torch.randn((batch, steps, size) if options.get("batch_first") else (steps, batch, size), device="cuda")
    states = tuple(torch.randn(count * (1 + layer.bidirectional), batch, hidden, device="cuda") for _ in range(2))
    wide = tuple(state.double() for state in states)
    hx, wide_hx = (states[0], wide[0]) if kind == "GRU" else (states, wide)
    if not given:
        hx = wide_hx = None
    with torch.no_grad():
        found, wanted = layer(x, hx), truth(x.double(), wide_hx)
    assert layer.fits(x), "it is computed by the kernel"
    together = 2 if layer.bidirectional else count
    _, _, each = module.recurrent_plan(3 if kind == "GRU" else 4, hidden, batch, together, x.device)
    assert each == batch if module.RECURRENT_GROUPS == 1 or together > 4 else each < batch or batch == 1
    pairs = [(found[0], wanted[0])]
    pairs += [(found[1], wanted[1])] if kind == "GRU" else zip(found[1], wanted[1], strict=True)
    for one, right in pairs:
        assert one.shape == right.shape
        assert float((one - right).norm() / right.norm()) < 2e-6


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
def test_infinities_and_nan_stay_in_their_sequence(module: Any, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)
    torch.manual_seed(0)
    layer = getattr(module, f"Recurrent{kind}")(8, 64, 2).cuda()
    plain = getattr(torch.nn, kind)(8, 64, 2).cuda()
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(5, 4, 8, device="cuda")
    x[1, 1, 3], x[2, 2, 0], x[3, 3, 1] = float("nan"), float("inf"), 1e30
    with torch.no_grad():
        found, wanted = layer(x)[0], plain(x)[0]
    assert torch.equal(found.isnan(), wanted.isnan())
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_what_does_not_fit_is_torchs(module: Any) -> None:
    for size, hidden, options, inputs in (
        (8, 100, {}, (3, 2, 8)),
        (8, 512, {}, (3, 2, 8)),
        (8, 64, {"proj_size": 32}, (3, 2, 8)),
        (8, 64, {}, (3, 17, 8)),
        (8, 64, {}, (3, 8)),
    ):
        layer = module.RecurrentLSTM(size, hidden, **options).cuda()
        x = torch.randn(inputs, device="cuda")
        assert not layer.fits(x)
        assert layer(x)[0].shape[:-1] == x.shape[:-1]
    layer = module.RecurrentGRU(8, 64).cuda()
    with pytest.raises(RuntimeError, match="hidden size"):
        layer(torch.randn(3, 2, 8, device="cuda"), torch.randn(1, 3, 64, device="cuda"))


PROBLEM = """
import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, batch_first):
        super().__init__()
        self.layer = nn.LAYER(64, 256, num_layers=3, batch_first=batch_first, bidirectional=BOTH)

    def forward(self, x):
        return self.layer(x)[0]


def get_inputs():
    return [torch.rand(8, 200, 64)]


def get_init_inputs():
    return [True]
"""


@pytest.mark.parametrize("kind", ["GRU", "LSTM"])
@pytest.mark.parametrize("both", ["False", "True"])
def test_the_judge_accepts_it_and_it_is_faster(kind: str, both: str, tmp_path: Path) -> None:
    problem = problem_of(PROBLEM.replace("LAYER", kind).replace("BOTH", both), tmp_path)
    source = with_recurrent_layers(problem.source)
    assert source is not None
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        found = judge.evaluate(problem, Kernel.from_source(source))
    assert found.verdict is Verdict.CORRECT, found.message
    print(f"{kind}, both ways: {both}: {found.timing.speedup:.2f} times eager")
    assert found.timing.speedup > 2

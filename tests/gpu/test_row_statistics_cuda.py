"""Norms and softmax of long rows, which several programs hold in their registers, on a device of sm_90."""

from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.inductor_process import InductorProcess
from kbevolve.evolve.proposers.seeds.split_products import with_split_products
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.evolve.proposers.seeds.test_seeds import problem_of
from tests.gpu.speedups import speedups
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]
SETTINGS: dict[str, dict[str, str]] = {
    "declared": {},
    "two of each": {"ROWS_BLOCK": "16384", "ROWS_WARPS": "16", "ROWS_EACH": "2"},
    "small": {"ROWS_BLOCK": "4096", "ROWS_WARPS": "4", "ROWS_EACH": "3"},
}
KINDS = ["softmax", "log_softmax", "normalise", "over_mean", "over_norm"]
#: Shape, numbers of a row, how many share a weight, and weights.
ROWS = {
    "one program": ((300, 4097), 4097, 1, 0),
    "odd": ((150, 65535), 65535, 1, 0),
    "groups": ((7, 12, 40, 300), 4 * 12000, 12000, 12),
    "layer": ((9, 16, 50, 60), 48000, 1, 48000),
    "wide": ((5, 393216), 393216, 1, 0),
}


@pytest.fixture(params=SETTINGS.values(), ids=SETTINGS)
def rows(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    text = "\n\n".join(map(template, ("imports", "row_statistics")))
    return imported(with_values(text, request.param), tmp_path, "rows")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("shape", "width", "each", "channels"), ROWS.values(), ids=ROWS)
def test_it_is_as_accurate_as_fp32(
    rows: Any, kind: str, shape: tuple[int, ...], width: int, each: int, channels: int
) -> None:
    torch.manual_seed(0)
    for size, shift in ((1.0, 0.0), (0.1, 30.0), (2.0**-40, 0.0)):
        x = torch.randn(shape, device="cuda") * size + shift
        weight, bias = (torch.randn(channels, device="cuda") if channels else None for _ in range(2))
        wide = [None if one is None else one.double() for one in (weight, bias)]
        for _ in range(3):  # the second and third find the memory of the first
            found = rows.row_statistics(x, weight, bias, kind, width, each, 1e-5)
        truth = rows.rows_by_library(x.double(), *wide, kind, width, each, 1e-5)
        library = rows.rows_by_library(x, weight, bias, kind, width, each, 1e-5)
        ours, theirs = ((one - truth).norm() for one in (found, library))
        assert ours < 1.5 * theirs + 1e-7 * truth.norm(), (size, shift)


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_not_finite_stays_in_its_row(rows: Any, kind: str) -> None:
    x = torch.randn(40, 50000, device="cuda")
    x[3, 7], x[5, 40000], x[9, 1], x[11] = torch.inf, -torch.inf, torch.nan, -torch.inf
    found = rows.row_statistics(x, None, None, kind, 50000, 1, 1e-5)
    right = rows.rows_by_library(x, None, None, kind, 50000, 1, 1e-5)
    torch.testing.assert_close(found, right, rtol=1e-4, atol=1e-5, equal_nan=True)


def test_calls_on_two_streams_do_not_wait_for_ever(rows: Any) -> None:
    x = [torch.randn(60, 300000, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]
    torch.cuda.synchronize()
    found: list[Any] = [None, None]
    for _ in range(20):
        for number, stream in enumerate(streams):
            with torch.cuda.stream(stream):
                found[number] = rows.row_statistics(x[number], None, None, "softmax", 300000, 1, 0.0)
    torch.cuda.synchronize()
    for one, given in zip(found, x, strict=True):
        torch.testing.assert_close(one, given.softmax(1))


MODEL = """
import torch
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.InstanceNorm2d(64)

    def forward(self, x):
        return self.norm(x)


def get_inputs():
    return [torch.rand(16, 64, 512, 512)]


def get_init_inputs():
    return []
"""


def test_a_kernel_with_it_is_right_and_faster_than_inductors(tmp_path: Path) -> None:
    problem = problem_of(MODEL, tmp_path)
    with InductorProcess(problem, "cuda", templates=True) as process:
        plain, changed = process.source(), process.for_templates() or ""
    inductors, ours = speedups(problem, (plain, with_split_products(changed) or ""), tmp_path)
    print("Inductor's and the template's, times eager:", inductors, ours)
    assert ours > inductors

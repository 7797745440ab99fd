"""Problem cards on a GPU: plausible rates, the right bound, and a flag on launch-bound problems."""

from pathlib import Path

import pytest
import torch

from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.analysis.card import card_for
from kbevolve.evaluators.analysis.roofline import measure, roofline_of
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

TINY = """
import torch


class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)


def get_inputs():
    return [torch.randn(64, 64)]


def get_init_inputs():
    return []
"""


def test_rates_are_plausible_and_the_precision_flags_are_restored() -> None:
    before = torch.backends.cuda.matmul.allow_tf32
    found = measure(find_device("cuda"))
    assert torch.backends.cuda.matmul.allow_tf32 == before
    assert 1e11 < found.bytes_per_second < 2e13
    rates = found.operations_per_second
    assert (
        {"fp64", "fp32", "tf32", "fp16", "bf16"}
        <= rates.keys()
        <= {"fp64", "fp32", "tf32", "fp16", "bf16", "fp8", "int8"}
    )
    assert rates["fp16"] > rates["tf32"] > rates["fp32"]
    if torch.cuda.get_device_capability() >= (9, 0):
        assert min(rates["fp8"], rates["int8"]) > rates["fp16"]
    assert found.l2_bytes > 1 << 20


@pytest.mark.alone
def test_a_product_is_bound_by_arithmetic_and_a_softmax_by_memory(tmp_path: Path) -> None:
    device, disk_cache = find_device("cuda"), DiskCache(tmp_path)
    product = card_for(find_problem("L1/matmul"), device, "fp32", disk_cache=disk_cache)
    assert product.flags == {}
    assert product.roofline_ms["fp32"] > product.memory_ms
    # Eager is honest, so it may not be below the floor; and cuBLAS is no twentieth of the roofline.
    assert product.floor_ms["fp32"] <= product.eager_ms < 20 * product.roofline_ms["fp32"]
    softmax = card_for(find_problem("L1/softmax"), device, "fp32", disk_cache=disk_cache)
    assert softmax.roofline_ms["fp32"] == pytest.approx(softmax.memory_ms)
    assert softmax.floor_ms["fp32"] <= softmax.eager_ms < 20 * softmax.memory_ms


@pytest.mark.alone
def test_the_measured_floor_lies_below_what_libraries_reach(tmp_path: Path) -> None:
    device = find_device("cuda")
    rates = roofline_of(device, disk_cache=DiskCache(tmp_path))
    left, right = (torch.randn(4096, 4096, device="cuda", dtype=torch.float16) for _ in range(2))
    product = torch.empty_like(left)
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for _ in range(20):
        begin.record()
        torch.mm(left, right, out=product)
        end.record()
        end.synchronize()
        best = min(best, begin.elapsed_time(end))
    assert best > rates.floor_ms("half", written_bytes=0, operations=2 * 4096**3)


def test_a_tiny_problem_is_launch_bound(tmp_path: Path) -> None:
    card = card_for(
        parse_problem(TINY, name="tiny", path=Path("tiny.py")),
        find_device("cuda"),
        "fp32",
        disk_cache=DiskCache(tmp_path),
    )
    assert "launches" in card.flags["launch-bound"]
    assert set(card.floor_ms.values()) == {0.0}


@pytest.mark.parametrize(("layer", "flagged"), [("Conv2d(256, 64, 3)", True), ("Linear(32, 64)", False)])
def test_a_convolution_whose_tf32_exceeds_kernelbenchs_tolerance_is_flagged(
    tmp_path: Path, layer: str, flagged: bool
) -> None:
    source = TINY.replace("torch.relu(x)", "self.layer(x)").replace("64, 64", "8, 256, 32, 32")
    init = f"    def __init__(self):\n        super().__init__()\n        self.layer = torch.nn.{layer}\n\n"
    source = source.replace("    def forward", f"{init}    def forward")
    before = torch.backends.cudnn.allow_tf32
    problem = parse_problem(source, name="layer", path=Path("layer.py"))
    card = card_for(problem, find_device("cuda"), "fp32", disk_cache=DiskCache(tmp_path))
    assert ("tf32-reference" in card.flags) is flagged
    assert torch.backends.cudnn.allow_tf32 == before

"""The Triton kernel of the sketch gives the result of torch, and is faster."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from kbevolve.evaluators.correctness.sketch import Sketch

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

DTYPES = [torch.float32, torch.float16, torch.bfloat16, torch.float64]


def made(*shape: int) -> Sketch:
    return Sketch(shape, device="cuda", seed=7)


def plain(*shape: int) -> Sketch:
    """The same sketch by torch alone."""
    sketch = made(*shape)
    sketch.__dict__["_fused"] = None
    return sketch


def randn(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.randn(*shape, device="cuda", generator=torch.Generator("cuda").manual_seed(1)).to(dtype)


def seconds(action: Callable[[], object]) -> float:
    action()
    torch.cuda.synchronize()
    started = time.perf_counter()
    for _ in range(5):
        action()
    torch.cuda.synchronize()
    return (time.perf_counter() - started) / 5


def test_the_kernel_is_used() -> None:
    assert made(1000, 1000)._fused is not None


_AHEAD = """
import os, torch
from kbevolve.evaluators.correctness.sketch import Sketch, compile_ahead
compile_ahead("cuda").join()
before = set(os.listdir(os.environ["TRITON_CACHE_DIR"]))
for shape in ((200, 331), (1024, 1024), (1, 20_483)):
    Sketch(shape, device="cuda", seed=7).of(torch.rand(shape, device="cuda"))
print(len(before), len(set(os.listdir(os.environ["TRITON_CACHE_DIR"])) - before))
"""


def test_sketches_of_fp32_compile_nothing_after_it_was_done_ahead(tmp_path: Path) -> None:
    environment = os.environ | {"TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", _AHEAD], env=environment, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 0
    assert after == 0


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(200, 331), (1, 20_483), (4097, 4099), (512, 65_536)])
def test_the_kernel_gives_the_result_of_torch(shape: tuple[int, int], dtype: torch.dtype) -> None:
    output = randn(*shape, dtype=dtype)
    one, other = made(*shape).of(output), plain(*shape).of(output)
    assert one.shape == other.shape
    assert one.dtype == torch.float64
    # Sums of up to some thousand numbers in fp64, in another order.
    assert float((one - other).abs().max()) < 1e-10


def test_the_kernel_is_deterministic() -> None:
    sketch, output = made(4097, 4099), randn(4097, 4099)
    assert torch.equal(sketch.of(output), sketch.of(output))


def test_one_wrong_element_is_seen() -> None:
    sketch, output = made(4097, 4099), randn(4097, 4099)
    spoiled = output.clone()
    spoiled[-1, -1] += 0.5
    assert sketch.distance(sketch.of(spoiled), sketch.of(output)) == pytest.approx(0.5, rel=1e-6)


def test_columns_of_a_larger_tensor_are_read_right() -> None:
    wide = randn(2000, 999)
    assert torch.equal(made(2000, 500).of(wide[:, :500]), made(2000, 500).of(wide[:, :500].contiguous()))


def test_an_output_that_is_not_finite_is_at_infinite_distance() -> None:
    sketch, output = made(1000, 1000), randn(1000, 1000)
    spoiled = output.clone()
    spoiled[500, 500] = math.nan
    assert sketch.distance(sketch.of(spoiled), sketch.of(output)) == math.inf


@pytest.mark.alone
def test_the_kernel_is_twice_as_fast_as_torch() -> None:
    output = randn(2048, 1 << 17)  # 1 GB
    fused, torchs = made(*output.shape), plain(*output.shape)
    mine, theirs = seconds(lambda: fused.of(output)), seconds(lambda: torchs.of(output))
    print(f"{1e3 * mine:.2f} ms against {1e3 * theirs:.2f} ms")
    assert mine < theirs / 2

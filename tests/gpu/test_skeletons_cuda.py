"""The skeletons of an fp32-accurate product that prompts may show, on a device of their architecture.

Where all tests pass, `prompts.VERIFIED` may name the language and the device.
"""

from collections.abc import Callable
from itertools import product as combinations
from typing import Any

import pytest
import torch

from kbevolve.evaluators.correctness import rule
from kbevolve.evolve.proposers.codegen.prompts import skeleton_text
from kbevolve.evolve.proposers.tuning.constraints import fits
from kbevolve.evolve.proposers.tuning.tunables import declared, with_values
from tests.imported import imported

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.cuda.is_available() or torch.cuda.get_device_capability() != (9, 0), reason="no device of sm_90"
    ),
]

SOURCES = {
    "cuda": skeleton_text("cuda"),
    "triton": skeleton_text("triton"),
    "gluon": skeleton_text("triton") + skeleton_text("gluon"),
}


def variants(name: str) -> list[str]:
    """The file with every setting of its tunables that fits; Gluon's with its own alone."""
    source = SOURCES[name]
    own = declared(skeleton_text(name))
    names = [one.name for one in own]
    settings = [dict(zip(names, values, strict=True)) for values in combinations(*(one.choices for one in own))]
    return [with_values(source, setting) for setting in settings if fits(source, setting)]


CASES = [(name, number) for name in SOURCES for number in range(len(variants(name)))]


@pytest.fixture(scope="module")
def product(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., torch.Tensor]:
    name, number = request.param
    module = imported(variants(name)[number], tmp_path_factory.mktemp("skeleton"), f"{name}{number}")
    found: Callable[..., torch.Tensor] = module.product
    return found


def error(mine: torch.Tensor, a: torch.Tensor, b: torch.Tensor) -> float:
    """The judge's E."""
    truth = a.double() @ b.double().T
    return float((mine.double() - truth).norm() / (truth - truth.mean()).norm())


UNIFORM = ("rand", "rand / 2^16")


def drawn(rows: int, columns: int, kind: str) -> torch.Tensor:
    tensor = torch.rand(rows, columns, device="cuda") if kind in UNIFORM else torch.randn(rows, columns, device="cuda")
    if kind == "rows of many sizes":
        tensor *= 2.0 ** torch.randint(-20, 20, (rows, 1), device="cuda")
    return tensor / 2**16 if kind.endswith("2^16") else tensor


@pytest.mark.parametrize("product", CASES, indirect=True, ids=[f"{name}-{number}" for name, number in CASES])
@pytest.mark.parametrize("kind", ["randn", "rand", "randn / 2^16", "rand / 2^16", "rows of many sizes"])
@pytest.mark.parametrize("shape", [(256, 256, 64), (512, 768, 512), (1024, 2048, 8192)])
def test_a_skeleton_is_as_accurate_as_fp32(
    product: Callable[..., torch.Tensor], kind: str, shape: tuple[int, int, int]
) -> None:
    torch.manual_seed(0)
    M, N, K = shape
    for _ in range(3):  # a race would not show each time
        a, b = drawn(M, K, kind), drawn(N, K, kind)
        found = error(product(a, b), a, b)
        print(f"{kind} {shape}: {found:.1e}, torch fp32 {error(a @ b.T, a, b):.1e}")
        # Sums of one sign are large beside their spread.
        assert found < (rule.CAPS["fp32"] if kind in UNIFORM else 5e-6)


@pytest.mark.parametrize("product", CASES, indirect=True, ids=[f"{name}-{number}" for name, number in CASES])
def test_a_nan_and_an_infinity_spoil_their_own_rows_only(product: Callable[..., torch.Tensor]) -> None:
    torch.manual_seed(0)
    a, b = torch.randn(256, 512, device="cuda"), torch.randn(512, 512, device="cuda")
    plain = product(a, b)
    a[3, 5], a[7, 9], b[11, 400], b[200, 1] = torch.nan, torch.inf, -torch.inf, torch.nan
    rows, columns = torch.ones(256, dtype=torch.bool), torch.ones(512, dtype=torch.bool)
    rows[[3, 7]], columns[[11, 200]] = False, False
    spoiled = product(a, b)
    assert torch.equal(spoiled[rows][:, columns], plain[rows][:, columns])
    assert not spoiled[~rows].isfinite().any()


@pytest.mark.alone
@pytest.mark.parametrize("product", [(name, 0) for name in SOURCES], indirect=True, ids=list(SOURCES))
def test_a_skeleton_is_faster_than_fp32_arithmetic(product: Callable[..., torch.Tensor]) -> None:
    a, b = torch.randn(4096, 4096, device="cuda"), torch.randn(4096, 4096, device="cuda")

    def milliseconds(call: Callable[[], Any]) -> float:
        times = []
        for _ in range(8):
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
            begin.record()
            call()
            end.record()
            torch.cuda.synchronize()
            times.append(begin.elapsed_time(end))
        return float(min(times[2:]))

    torch.backends.cuda.matmul.allow_tf32 = False
    mine, library = milliseconds(lambda: product(a, b)), milliseconds(lambda: a @ b.T)
    print(f"skeleton {mine:.3f} ms, torch fp32 {library:.3f} ms")
    assert 1.3 * mine < library

"""The accuracies that the prompt states for products of split operands, emulated on a CPU."""

import re
from collections.abc import Callable

import pytest
import torch

from kbevolve.archive.records import Operator
from kbevolve.evaluators.correctness.rule import CAPS
from kbevolve.evolve.proposers.codegen import prompts
from tests.evolve.doubles import brief_of

Rounding = Callable[[torch.Tensor], torch.Tensor]

#: The second part of an fp16 pair is multiplied by this, or it would be subnormal.
FP16_SCALE = 2.0**11


def tf32(x: torch.Tensor) -> torch.Tensor:
    """fp32 rounded to the nearest number with 10 bits behind the point, ties to even."""
    bits = x.view(torch.int32)
    return ((bits + 0x0FFF + ((bits >> 13) & 1)) & ~0x1FFF).view(torch.float32)


def fp16(x: torch.Tensor) -> torch.Tensor:
    return x.half().float()


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().float()


def fp8(x: torch.Tensor) -> torch.Tensor:
    return x.to(torch.float8_e4m3fn).double()


def parts(x: torch.Tensor, rounded: Rounding, count: int, scale: float) -> list[torch.Tensor]:
    """`count` low-precision tensors, as fp64, that add up to nearly x; each holds what the ones before left over."""
    found = []
    for index in range(count):
        part = rounded(x * scale**index) / scale**index
        found.append(part.double())
        x = x - part
    return found


def error(rounded: Rounding, products: int, scale: float = 1.0) -> float:
    """E of a product of random matrices from 1, 3 or 6 products of parts, with exact sums."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator) for shape in ((256, 1024), (1024, 256)))
    count = {1: 1, 3: 2, 6: 3}[products]
    left, right = (parts(x, rounded, count, scale) for x in (a, b))
    result = sum(left[i] @ right[j] for i in range(count) for j in range(count - i))
    truth = a.double() @ b.double()
    return float((result - truth).norm() / (truth - truth.mean()).norm())


def error_with_fp8() -> float:
    """E of one product of fp16 parts and two of fp8, which multiply a low part, with exact sums."""
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(shape, generator=generator) for shape in ((256, 1024), (1024, 256)))
    (ah, al), (bh, bl) = (parts(x, fp16, 2, FP16_SCALE) for x in (a, b))
    result = ah @ bh + fp8(ah) @ fp8(bl * FP16_SCALE) / FP16_SCALE + fp8(al * FP16_SCALE) @ fp8(bh) / FP16_SCALE
    truth = a.double() @ b.double()
    return float((result - truth).norm() / (truth - truth.mean()).norm())


@pytest.fixture(scope="module")
def prompt() -> str:
    return prompts.system(brief_of(Operator.REWRITE, device_type="cuda", device="NVIDIA H200, sm_90"), "fp32")


@pytest.mark.parametrize(
    ("words", "rounded", "products", "scale"),
    [
        (r"3 TF32 products or 3 of scaled fp16 pairs have E = (\S+) \(below\)", tf32, 3, 1.0),
        (r"3 TF32 products or 3 of scaled fp16 pairs have E = (\S+) \(below\)", fp16, 3, FP16_SCALE),
        (r", 3 bf16 ([^\s,]+)", bf16, 3, 1.0),
        (r", 6 bf16 ([^\s,]+)", bf16, 6, 1.0),
    ],
    ids=["3 TF32", "3 fp16", "3 bf16", "6 bf16"],
)
def test_the_stated_accuracy_is_that_of_the_products(
    prompt: str, words: str, rounded: Rounding, products: int, scale: float
) -> None:
    (stated,) = re.findall(words, prompt)
    assert 0.5 < error(rounded, products, scale) / float(stated) < 1, "stated as rounded up"


def test_the_stated_accuracy_with_fp8_is_that_of_the_products(prompt: str) -> None:
    (stated,) = re.findall(r"small products in fp8 ([^\s,]+)", prompt)
    assert 0.5 < error_with_fp8() / float(stated) < 1, "stated as rounded up"


@pytest.mark.parametrize("rounded", [tf32, fp16, bf16])
def test_one_product_of_rounded_operands_is_not_accurate_enough(prompt: str, rounded: Rounding) -> None:
    assert "One TF32, fp16 or bf16 product is not accurate enough" in prompt
    assert error(rounded, 1) > CAPS["fp32"]

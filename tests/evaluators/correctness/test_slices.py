from collections.abc import Sequence

import pytest
import torch

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.correctness.slices import Compute, compute_in_slices, separable_inputs
from kbevolve.evaluators.device.memory import is_out_of_memory

BATCH = 64
X = torch.randn(BATCH, 8, generator=torch.Generator().manual_seed(0))
#: As many rows as there are samples, but a weight.
SQUARE = torch.randn(BATCH, BATCH, generator=torch.Generator().manual_seed(1))
WEIGHT = torch.randn(8, 5, generator=torch.Generator().manual_seed(2))


def separable(compute: Compute, *tensors: torch.Tensor) -> tuple[int, ...] | None:
    def guarded(parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        try:
            return compute(parts)
        except RuntimeError as error:
            raise EvaluatorError(str(error)) from error

    return separable_inputs(guarded, tensors, compute(tensors), tolerance=5e-5)


def test_independent_samples_can_be_sliced() -> None:
    assert separable(lambda t: [t[0] @ t[1]], X, WEIGHT) == (0,)
    assert separable(lambda t: [torch.softmax(t[0], -1), t[0].sum(-1)], X) == (0,)
    assert separable(lambda t: [t[0] * t[1]], X, X + 1) == (0, 1)
    assert separable(lambda t: [t[0].argmax(-1)], X) == (0,)


def test_infinite_outputs_are_compared_like_others() -> None:
    masked = torch.where(X > 0, X, -torch.inf)
    assert separable(lambda t: [t[0] * 2], masked) == (0,)
    assert separable(lambda t: [t[0] - t[0][t[0].isfinite()].mean()], masked) is None


def test_a_weight_with_as_many_rows_as_samples_is_left_whole() -> None:
    assert separable(lambda t: [t[0] @ t[1]], SQUARE, SQUARE + 1) == (0,)
    assert separable(lambda t: [t[1] @ t[0]], SQUARE, SQUARE + 1) == (1,)


@pytest.mark.parametrize(
    "compute",
    [
        lambda t: [t[0] - t[0].mean(0)],
        lambda t: [t[0] / t[0].norm()],
        lambda t: [torch.cumsum(t[0], 0)],
        lambda t: [torch.softmax(t[0], 0)],
        lambda t: [t[0].flip(0)],
        lambda t: [t[0].roll(1, 0)],
        lambda t: [t[0].roll(-1, 0)],
        lambda t: [t[0].mean()],
        lambda t: [t[0].T],
        lambda t: [t[0], t[0].sum(0)],
        lambda t: [t[0].view(BATCH, 2, 4).sum(1)] if len(t[0]) == BATCH else _fail("view"),
        lambda t: [t[0] * 2 if len(t[0]) == BATCH else t[0]],
    ],
)
def test_dependent_samples_are_detected(compute: Compute) -> None:
    assert separable(compute, X) is None


def _fail(words: str) -> list[torch.Tensor]:
    raise EvaluatorError(words)


def out_of_memory() -> EvaluatorError:
    error = EvaluatorError("too large")
    error.__cause__ = torch.OutOfMemoryError("CUDA out of memory")
    return error


@pytest.mark.parametrize("pieces", [1, 2, 7, 64, 1000])
def test_slices_are_joined(pieces: int) -> None:
    sizes = []

    def compute(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        sizes.append(len(tensors[0]))
        return [tensors[0].double() @ tensors[1].double(), tensors[0].argmax(-1)]

    product, index = compute_in_slices(compute, (X, WEIGHT), (0,), pieces=pieces)
    assert torch.allclose(product, X.double() @ WEIGHT.double())
    assert product.dtype == torch.float64
    assert torch.equal(index, X.argmax(-1))
    assert max(sizes) == max(1, -(-BATCH // pieces))


def test_slices_shrink_until_they_fit() -> None:
    sizes = []

    def compute(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        sizes.append(len(tensors[0]))
        if len(tensors[0]) > 10:
            raise out_of_memory()
        return [tensors[0] * 2]

    assert torch.equal(compute_in_slices(compute, (X,), (0,), pieces=1)[0], X * 2)
    assert sizes[:4] == [64, 32, 16, 8]


def test_a_sample_that_does_not_fit_and_other_failures_are_errors() -> None:
    def too_large(tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        raise out_of_memory()

    with pytest.raises(EvaluatorError, match="too large"):
        compute_in_slices(too_large, (X,), (0,), pieces=1)
    with pytest.raises(EvaluatorError, match="broken"):
        compute_in_slices(lambda _: _fail("broken"), (X,), (0,), pieces=1)


def test_every_error_for_too_little_memory_is_recognised() -> None:
    assert is_out_of_memory(torch.OutOfMemoryError("CUDA out of memory"))
    assert is_out_of_memory(MemoryError())
    with pytest.raises(RuntimeError) as caught:
        torch.empty(1 << 60, dtype=torch.uint8)
    assert is_out_of_memory(caught.value)
    assert not is_out_of_memory(RuntimeError("mat1 and mat2 shapes cannot be multiplied"))
    assert not is_out_of_memory(None)

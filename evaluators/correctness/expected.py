"""The expected output of one draw of the inputs: the reference's own output, and the truth in fp64."""

import torch

from kbevolve.evaluators.correctness.draws import Draw
from kbevolve.evaluators.correctness.inputs import nominal, outlying, special
from kbevolve.evaluators.correctness.reference import Reference
from kbevolve.evaluators.correctness.truth import ExpectedOutput, all_finite, as_real


def solve(reference: Reference, draw: Draw) -> tuple[list[torch.Tensor], ExpectedOutput, bool]:
    """Inputs, the expected output with the weights that the reference has, and whether its truth is in fp64.

    Raises:
        EvaluatorError: the reference fails.
    """
    structure, inputs = reference.inputs(draw.seed, draw.transform)
    own = [_compact(tensor) for tensor in reference.output(structure, inputs)[1]]
    exact, in_fp64 = reference.truth(structure, inputs)
    truth = [_compact(each.double() if each.is_floating_point() else each) for each in exact]
    independent = None
    if draw.function is special:
        for right, mine in zip(truth, own, strict=True):
            if right.is_floating_point():  # where the reference overflows and fp64 does not, a kernel may as well
                right[~mine.isfinite()] = torch.nan
        plain = reference.output(*reference.inputs(draw.seed, nominal))[1]
        independent = [as_real(mine) == as_real(other) for mine, other in zip(own, plain, strict=True)]
    expected = ExpectedOutput(
        truth=truth,
        reference=own,
        finite=[all_finite(tensor) for tensor in truth],
        independent=independent,
        by_rows=draw.function not in (special, outlying),
    )
    return inputs, expected, in_fp64


def _compact(tensor: torch.Tensor) -> torch.Tensor:
    """Contiguous, without memory beyond its elements: torch returns some losses in the memory of their summands."""
    tensor = tensor.contiguous()
    return tensor.clone() if tensor.untyped_storage().nbytes() > tensor.nbytes else tensor

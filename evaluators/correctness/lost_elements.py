"""Elements that are lost beside much larger ones: each of a sample is compared with itself.

E, tiles and rows are norms, in which elements of 1e-6 count for nothing. Only for inputs as the problem draws them: on
enlarged ones honest kernels lose small elements as well, as ``log(1 + exp(x))`` does for x = -50.
"""

from collections.abc import Sequence

import torch

from kbevolve.evaluators.correctness.rule import MOST_LOST, ROW_BOUND, ROW_FLOOR, ROW_SLACK
from kbevolve.evaluators.correctness.truth import as_real

#: Elements of a sample; the share of one that are lost has a standard deviation of 0.5 % at `rule.MOST_LOST`.
_SAMPLED = 4096
#: Shorter tensors are judged by their norms alone.
_SHORTEST = 16

#: Of each tensor of an output, some elements.
Sample = tuple[torch.Tensor, ...]


def places_in(shapes: Sequence[Sequence[int]], *, device: torch.device, seed: int) -> list[torch.Tensor]:
    """Random places in each tensor."""
    generator = torch.Generator(device).manual_seed(seed)
    sizes = [torch.Size(shape).numel() for shape in shapes]
    return [
        torch.randint(size, (min(size, _SAMPLED) if size >= _SHORTEST else 0,), generator=generator, device=device)
        if size
        else torch.empty(0, dtype=torch.int64, device=device)
        for size in sizes
    ]


def sample(tensors: Sequence[torch.Tensor], places: Sequence[torch.Tensor]) -> Sample:
    """The elements at these places; none of integers and booleans, which must be equal."""
    return tuple(
        torch.take(as_real(tensor), place) if tensor.is_floating_point() or tensor.is_complex() else place[:0].double()
        for tensor, place in zip(tensors, places, strict=True)
    )


def lost_share(mine: Sample, right: Sample, reference: Sample) -> float:
    """The largest share of a tensor's sample that is off by much of itself, and by more than rounding explains.

    Args:
        mine: of a kernel's output.
        right: of the truth, at the same places.
        reference: of the reference's output, at the same places.
    """
    shares = [0.0]
    for got, want, theirs in zip(mine, right, reference, strict=True):
        if want.numel():
            want = want.double()
            accepted = torch.maximum(ROW_BOUND * want.abs(), ROW_SLACK * (theirs - want).abs()).clamp(min=ROW_FLOOR)
            shares.append(float((((got - want).abs() > accepted) & want.isfinite() & (want != 0)).double().mean()))
    return max(shares)


def is_lossy(share: float) -> bool:
    """Whether a kernel that loses this share of the elements is wrong."""
    return share > MOST_LOST


def describe(share: float) -> str:
    """What is wrong, in words."""
    return (
        f"{100 * share:.0f} % of the elements are off by more than {100 * ROW_BOUND:.0f} % of themselves, and by more "
        f"than {ROW_SLACK:.0f} times the reference's error: small elements are lost beside larger ones"
    )

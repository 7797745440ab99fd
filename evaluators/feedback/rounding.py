"""Separates rounding from mistakes, and bias from scatter: the remedies differ.

Rounding spreads an error over all elements in proportion to the rows and columns that they belong to; a mistake
concentrates it in some. The least-squares fit got = (1 - c) want splits a squared error into two parts that add up to
it: a bias, which sums of truncated numbers have, and a scatter, which rounded operands have.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch

#: An element is far off where its error is more than this multiple of the median: Gaussian noise reaches 8.
_FAR = 30.0
#: Elements of which the median is taken.
_SAMPLE = 1 << 20
#: Rows and columns below this share of the whole have the rounding of what was added up to them. Scaled inputs
#: (`correctness.inputs`) have rows of 0.12.
_ROUNDED_LINE = 0.1
#: A part of the error is called the main one from this share of the squared error on.
MAIN = 0.5
#: A fit is shown from this share on.
_SOME = 0.1
#: The errors relative to the spread and to the values are both given where they differ by this factor.
_WORTH_TELLING = 2.0
#: An error is among the largest above this multiple of the root mean square.
_LARGE = 2.0
#: Scatter of products in fp32, from so much on, by what leaves it (measured: `correctness.truth`).
_SCATTERS = (
    (1.5e-3, "bf16 operands"),
    (1e-4, "TF32 or fp16 operands without their low parts, or with the low part of one only,"),
)


@dataclass(frozen=True, slots=True)
class Fit:
    """The least-squares fit got = (1 - c) want over the finite elements."""

    c: float
    #: Share of the squared error that it explains.
    share: float
    #: Share of the elements too small in magnitude, among those that differ.
    too_small: float
    #: ||got - want|| / ||want||.
    relative_error: float

    def __str__(self) -> str:
        """As a formula."""
        return f"got = (1 {'-' if self.c >= 0 else '+'} {abs(self.c):.3g}) want"


def fit(mine: torch.Tensor, right: torch.Tensor) -> Fit:
    """The fit of an output to the truth, both fp64."""
    usable = mine.isfinite() & right.isfinite()
    got, want = mine[usable], right[usable]
    power, total = float(want.square().sum()), float((got - want).square().sum())
    if not power or not total:
        return Fit(0.0, 0.0, 0.0, 0.0)
    c = float(((want - got) * want).sum()) / power
    smaller = float((got.abs() < want.abs()).sum() / (got != want).sum())
    return Fit(c, min(1.0, c * c * power / total), smaller, (total / power) ** 0.5)


def scale_by_lines(right: torch.Tensor, *, least: float = _ROUNDED_LINE) -> torch.Tensor:
    """The typical size of each element: that of its row (last axis) times that of its column, over that of all.

    Rows and columns count with at least the share `least` of all.
    Inputs whose rows and columns have scales of their own give outputs, and roundings, that have them, too.
    """
    table = right.nan_to_num(0.0, 0.0, 0.0).reshape(-1, right.shape[-1] if right.ndim else 1).square()
    whole = table.mean().sqrt().clamp_min(torch.finfo(torch.float64).tiny)
    rows, columns = (table.mean(dim=axis, keepdim=True).sqrt() / whole for axis in (1, 0))
    scale = rows.clamp_min(least) * columns.clamp_min(least) * whole
    return scale.expand(table.shape).reshape(right.shape)


def is_concentrated(differences: torch.Tensor, mine: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether more than half of the squared error is in elements far above the median error.

    Far relative to the lines, and far relative to the value: the rounding of a sum is of the size of its terms, that of
    an exponential is of the size of the result.
    """
    compared = (mine != 0) | (right != 0)  # zeros, as behind a ReLU, are right for free
    errors, sizes = differences[compared], right[compared].abs()
    if not errors.numel() or not bool(errors.isfinite().all()):
        return errors.numel() > 0
    by_lines = errors / scale_by_lines(right)[compared]
    by_value = errors / sizes.clamp_min(torch.finfo(torch.float64).tiny)
    far = torch.ones_like(errors, dtype=torch.bool)
    for relative in (by_lines, by_value):
        far &= relative > _FAR * relative[:: max(1, len(relative) // _SAMPLE)].median()
    squares = by_lines.square()
    return float(squares[far].sum()) > MAIN * float(squares.sum())


def largest(differences: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """A mask of the elements with the largest errors relative to their lines; empty where all errors are equal."""
    relative = differences / scale_by_lines(right)
    return relative > _LARGE * relative.square().mean().sqrt()


def describe_rounding(mine: torch.Tensor, right: torch.Tensor, error: float, bound: float) -> Iterator[str]:
    """Lines on the error of an output, both fp64: bias and scatter in the unit of the limit.

    Args:
        mine: the output, or the rows of it that are examined.
        right: the truth.
        error: of the whole output, relative to the part of the truth that depends on the input.
        bound: the accepted error.
    """
    found = fit(mine, right)
    if found.relative_error * _WORTH_TELLING < error:
        share = 100 * found.relative_error / error
        yield (
            f"Relative to the values themselves it is {found.relative_error:.2g}: some {share:.2g} % of their size "
            "depends on the inputs, and the error is relative to that part."
        )
    bias, scatter = error * found.share**0.5, error * (1 - found.share) ** 0.5
    fits = f": {found} explains {100 * found.share:.0f} % of the squared error" if found.share >= _SOME else ""
    yield (
        f"Bias {bias:.2g}, scatter {scatter:.2g}{fits}; {100 * found.too_small:.0f} % of the outputs that differ are "
        "too small in magnitude."
    )
    yield _cause(found, bias, scatter, bound)


def _cause(found: Fit, bias: float, scatter: float, bound: float) -> str:
    if found.share < MAIN:
        size = next((f", of the size that {words} leave" for least, words in _SCATTERS if scatter >= least), "")
        size = size if bound < _SCATTERS[-1][0] else ""
        missing = (
            f", or {100 * scatter**2:.2g} % of the terms of each sum are missing" if scatter >= _SCATTERS[0][0] else ""
        )
        return f"Mostly scatter{size}: operands or partial results have too few bits{missing}."
    accepted = "; without it the output would be accepted" if scatter <= bound else ""
    if found.c > 0:
        return (
            "Mostly a bias toward zero: truncation, as in the accumulators of tensor cores and in conversions that do "
            f"not round to nearest{accepted}."
        )
    return f"Mostly a bias away from zero: a constant, a factor or an approximation that is slightly off{accepted}."

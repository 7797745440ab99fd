"""Describes how a wrong output is wrong, so that the next attempt can be right.

A mistake and an inaccuracy get different words. A mistake: where the wrong elements are, how far off, and whether a
second run makes the same. An inaccuracy: the limit, the reference's own error, bias and scatter. Both name the kind of
inputs. No text contains a seed.
"""

import math
from collections.abc import Mapping, Sequence

import torch

from kbevolve.evaluators.correctness.rule import POISONED, ROW_BOUND, ROW_SLACK, RUN
from kbevolve.evaluators.correctness.truth import Deviation, Scale, as_real
from kbevolve.evaluators.feedback.message import INACCURATE
from kbevolve.evaluators.feedback.rounding import MAIN, describe_rounding, fit, is_concentrated, largest, scale_by_lines
from kbevolve.evaluators.feedback.wrong_elements import describe_places

#: An element is plainly wrong beyond this share of its value plus the typical value of its row and column, or beyond
#: this multiple of the limit. Both are for the text only, and no tolerances of the judge.
_PLAINLY_WRONG = 1e-3
_BEYOND_LIMIT = 4.0
#: Rows and columns count as no smaller than this share of the whole.
_SMALLEST_LINE = 1e-4
#: An error below the first number, or below this multiple of the limit, can be rounding (bf16: 3e-3).
_LIKE_ROUNDING = 2e-2
_SMALL_MULTIPLE = 10.0
#: Errors below this share of the output's spread look like a few terms of a sum.
_FEW_TERMS = 0.5
#: From this c on, got = (1 - c) want says no more than that got is zero.
_ALL = 0.9
#: The places of two runs are the same if this share of what is wrong in either run is wrong in both.
_SAME_PLACES = 0.98
#: Rounding is the same in each run but for the order of atomic additions; a larger share of the error is a race.
_DIFFERS = 0.3
#: Examples shown.
_EXAMPLES = 5
#: Elements examined, by device: the text needs no more, a 2 GB output would need 10 GB of temporaries, and a CPU takes
#: some seconds for ten million.
_EXAMINED = {"cpu": 1 << 21, "cuda": 1 << 23}


class Mismatch:
    """One output that was not accepted: its description, and the comparison with a second run."""

    def __init__(
        self,
        outputs: Sequence[torch.Tensor],
        truth: Sequence[torch.Tensor],
        seen: Deviation,
        scale: Scale,
        *,
        names: Sequence[str] = (),
    ) -> None:
        """Examine the worst tensor of an output.

        Args:
            outputs: as the kernel returned them.
            truth: in fp64.
            seen: the output's errors.
            scale: what was accepted.
            names: of the tensors, where there are several.
        """
        outputs, truth = ([as_real(tensor) for tensor in tensors] for tensors in (outputs, truth))
        self._seen, self._scale = seen, scale
        self._near = max(_PLAINLY_WRONG, _BEYOND_LIMIT * scale.bound)
        pairs = list(zip(outputs, truth, strict=True))
        shares = [self._wrong_share(*pair) for pair in pairs] if len(pairs) > 1 else [(1.0, 1.0)]
        self._tensor = max(range(len(shares)), key=lambda index: shares[index])
        self._rows = _worst_rows(outputs[self._tensor], truth[self._tensor])
        self._mine, self._right = self._examined(outputs, truth)
        self._to_the_end = not self._right.ndim or self._rows.stop >= truth[self._tensor].shape[0]
        self._wrong = self._plainly_wrong(self._mine, self._right)
        self._differences = _difference(self._mine, self._right)
        self._name = ""
        if len(shares) > 1:
            self._name = f", {names[self._tensor] if names else f'output {self._tensor}'}"
            right = sum(share == (0, 0.0) for share in shares)
            self._name += f" ({right} of {len(shares)} are right)" if right else ""
        mistaken = bool(self._wrong.any()) and is_concentrated(self._differences, self._mine, self._right)
        like_rounding = seen.error < max(_LIKE_ROUNDING, _SMALL_MULTIPLE * scale.bound)
        #: Whether the error is like rounding, and not like a mistake.
        self.inaccurate = like_rounding and not mistaken

    def text(self, kind: str, passed: Mapping[str, float]) -> str:
        """The description, one fact a line.

        Args:
            kind: of the inputs, e.g. "large inputs".
            passed: the kinds that were accepted before, with the largest error of each.
        """
        head = f"{INACCURATE if self.inaccurate else 'wrong values'} on {kind}{self._name}: {self._limits()}"
        before = ", ".join(f"{other} ({error:.2g})" for other, error in passed.items())
        lines = [head, *([f"Accepted before, with these errors: {before}."] if before else [])]
        if self.inaccurate:
            lines += describe_rounding(self._mine, self._right, error=self._seen.error, bound=self._scale.bound)
            large = largest(self._differences, self._right)
            if places := self._described(large):
                lines.append(f"The largest errors are {places}.")
            lines.append(f"Largest differences: {self._examples(self._largest(), digits=9)}")
        else:
            lines += filter(None, [self._places(), self._sizes()])
            if bool(self._wrong.any()):
                lines.append(f"First: {self._examples(self._wrong, digits=6)}")
        return "\n".join(lines)

    def beside(self, outputs: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]) -> str:
        """What the outputs of a second run on the same inputs show, in one line; "" for rounding that is the same."""
        mine, right = self._examined([as_real(tensor) for tensor in outputs], [as_real(tensor) for tensor in truth])
        if self.inaccurate:
            apart = float(_difference(mine, self._mine).square().sum() / self._differences.square().sum()) ** 0.5
            if not apart > _DIFFERS:
                return ""
            return f"A second run on the same inputs differs from the first by {apart:.2g} times the error: a race?"
        again = self._plainly_wrong(mine, right)
        both, either = int((again & self._wrong).sum()), int((again | self._wrong).sum())
        same = bool(_same(mine, self._mine)[self._wrong].all())
        if not bool(again.any()):
            found = "was right: a race, memory that is read before it is written, or something kept between calls"
        elif both == either and same:
            found = "made the same elements wrong by the same values: an index, a bound or the formula, not a race"
        elif both >= _SAME_PLACES * either:
            found = "made the same elements wrong by other values: memory that is read before it is written, or a race"
        else:
            found = (
                f"made other elements wrong ({100 * both / either:.3g} % are wrong in both): a race, or memory that is "
                "read before it is written"
            )
        return f"A second run on the same inputs {found}."

    def _examined(
        self, outputs: Sequence[torch.Tensor], truth: Sequence[torch.Tensor]
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Copies of the examined rows: the kernel's outputs lie in memory that the next call overwrites."""
        return _rows(outputs[self._tensor], self._rows), _rows(truth[self._tensor], self._rows)

    def _wrong_share(self, output: torch.Tensor, right: torch.Tensor) -> tuple[float, float]:
        """Share of plainly wrong elements, and the largest difference, to order tensors by."""
        if not right.numel():
            return 0.0, 0.0
        rows = _worst_rows(output, right)
        mine, right = _rows(output, rows), _rows(right, rows)
        return float(self._plainly_wrong(mine, right).double().mean()), float(_difference(mine, right).amax())

    def _plainly_wrong(self, mine: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        typical = scale_by_lines(right, least=_SMALLEST_LINE)
        accepted = self._near * (right.abs().nan_to_num(0.0, 0.0, 0.0) + typical)
        return _difference(mine, right) > accepted

    def _limits(self) -> str:
        """The error and the limit that it exceeds."""
        seen, scale = self._seen, self._scale
        reference = f"limit {scale.bound:.2g} (the reference: {scale.reference_error:.2g})"
        if not math.isfinite(seen.error):
            return f"NaN or infinity in other places than in fp64; {reference}"
        if seen.error > scale.bound:
            return f"relative error {seen.error:.3g} against fp64, {reference}"
        if seen.worst_tile > scale.tile_bound:
            return (
                f"relative error {seen.worst_tile:.2g} against fp64 in the worst {RUN} consecutive elements, limit "
                f"{scale.tile_bound:.2g} ({seen.error:.2g} in all)"
            )
        return (
            f"the error of one row is {seen.worst_row:.3g} times what is accepted in it: {100 * ROW_BOUND:.0f} % of "
            f"the row, or {ROW_SLACK:.0f} times the reference's error (relative error of all rows: {seen.error:.2g})"
        )

    def _places(self) -> str:
        """Share and places of the wrong elements, and a simple relation of got and want."""
        count = int(self._wrong.sum())
        if not count:
            if math.isfinite(self._seen.error):
                return "no element is far off."
            share = f"{100 * POISONED:.0f} %"
            return f"more than {share} of the elements that depend on no NaN and no infinity among the inputs are NaN."
        share = f"{100 * count / self._wrong.numel():.3g} % of the elements are wrong"
        pattern = _pattern(self._mine, self._right, self._wrong)
        places = self._described(self._wrong)
        return f"{share}{f': {pattern}' if pattern else ''}{f'; {places}' if places else ''}."

    def _described(self, chosen: torch.Tensor) -> str:
        return describe_places(chosen, self._rows.start, self._to_the_end) if bool(chosen.any()) else ""

    def _sizes(self) -> str:
        """How large the errors of the wrong elements are, and of which sign."""
        chosen = self._wrong & self._mine.isfinite() & self._right.isfinite()
        mine, right = self._mine[chosen], self._right[chosen]
        finite = self._right[self._right.isfinite()]
        spread = float(finite.std(correction=0)) if finite.numel() else 0.0
        if not mine.numel() or not spread:
            return ""
        errors = (mine - right).abs() / spread
        typical = float(errors.square().mean().sqrt())
        words = (
            f"They are off by {typical:.2g} times the output's standard deviation (root mean square; at most "
            f"{float(errors.amax()):.2g}), {100 * float((mine.abs() < right.abs()).double().mean()):.0f} % are too "
            "small in magnitude"
        )
        found = fit(mine, right)
        if found.share > MAIN and found.c < _ALL:
            return f"{words}; {found} explains {100 * found.share:.0f} % of the squared error."
        if _PLAINLY_WRONG < typical < _FEW_TERMS:
            words += f", as if {100 * typical**2:.2g} % of the terms of their sums were missing"
        return f"{words}."

    def _largest(self) -> torch.Tensor:
        differences = self._differences
        return differences >= differences.flatten().topk(min(_EXAMPLES, differences.numel())).values[-1]

    def _examples(self, chosen: torch.Tensor, *, digits: int) -> str:
        first = self._rows.start
        return ", ".join(
            f"[{', '.join(map(str, [first + place[0], *place[1:]] if place else place))}] "
            f"got {self._mine[tuple(place)].item():.{digits}g} want {self._right[tuple(place)].item():.{digits}g}"
            for place in chosen.nonzero()[:_EXAMPLES].tolist()
        )


def _same(mine: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    return (mine == right) | (mine.isnan() & right.isnan())


def _difference(mine: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """|got - want|, infinite where it is not a number."""
    return torch.where(_same(mine, right), 0.0, (mine - right).abs()).nan_to_num(torch.inf, torch.inf)


def _rows(tensor: torch.Tensor, rows: slice) -> torch.Tensor:
    return (tensor[rows] if tensor.ndim else tensor).to(torch.float64, copy=True)


def _worst_rows(output: torch.Tensor, right: torch.Tensor) -> slice:
    """The rows of both with the largest difference, few enough to examine."""
    most = _EXAMINED[right.device.type]
    if right.numel() <= most or right.ndim == 0:
        return slice(0, right.shape[0] if right.ndim else 1)
    rows = max(1, most * right.shape[0] // right.numel())
    worst, first = -1.0, 0
    for start in range(0, right.shape[0], rows):
        mine, theirs = (as_real(tensor[start : start + rows]).double() for tensor in (output, right))
        largest = float(_difference(mine, theirs).amax())
        if largest >= worst:  # the last of equals: omitted rows are mostly at the end
            worst, first = largest, start
    return slice(first, min(first + rows, right.shape[0]))


def _pattern(mine: torch.Tensor, right: torch.Tensor, wrong: torch.Tensor) -> str:
    """The simplest relation of got and want that fits; "" when none does."""
    if mine.isnan().all():
        return "all NaN, or never written"
    if mine.isnan().any():
        return f"{100 * float(mine.isnan().double().mean()):.3g} % NaN, or never written"
    if not mine.any():
        return "all zeros"
    if mine.numel() > 1 and bool((mine == mine.flatten()[0]).all()):
        return "the same value everywhere"
    if mine.ndim >= 2 and mine.shape[-1] == mine.shape[-2] and torch.allclose(mine.mT, right, rtol=1e-3, atol=1e-3):
        return "transposed"
    if not mine[wrong].any():
        return "they are 0"
    if not right[wrong].any():
        return "they should be 0"
    usable = right.abs() > right.abs().mean() * 1e-3
    ratios = mine[usable] / right[usable]
    if ratios.numel() > 1 and float(ratios.std()) < 1e-3 * abs(float(ratios.mean())):
        return f"{float(ratios.mean()):.4g} times the right value everywhere"
    offsets = mine - right
    if offsets.numel() > 1 and float(offsets.std()) < 1e-3 * abs(float(offsets.mean())):
        return f"off by {float(offsets.mean()):.4g} everywhere"
    return ""

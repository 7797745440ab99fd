"""A kernel at other sizes of its problem: right at all of them, it is shape-general."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from random import Random

from kbevolve.configs.errors import UsageError, nearest
from kbevolve.configs.problem import Problem, constants_of, with_constants
from kbevolve.evaluators.generality.dimensions import Dimensions
from kbevolve.evaluators.generality.sizes import Sizes, draw_sizes
from kbevolve.evaluators.generality.variants import Variant, VariantVerdict, correct_and_judged

#: Tag of a kernel that is right at all sizes it was judged at.
SHAPE_GENERAL = "shape-general"
#: The kind of the sizes that the problem's file states.
OWN = "own sizes"


@dataclass(frozen=True)
class ShapeReport:
    """The verdicts at all sizes; the first is that at the problem's own."""

    verdicts: Sequence[VariantVerdict]

    @cached_property
    def is_general(self) -> bool:
        """Whether the kernel is right at all sizes that were judged: its own, and at least one other."""
        correct, judged = correct_and_judged(self.verdicts)
        return self.verdicts[0].is_correct and judged > 1 and correct == judged

    @property
    def tags(self) -> tuple[str, ...]:
        """Those of the kernel at the problem's own sizes, and `SHAPE_GENERAL`."""
        own = self.verdicts[0].evaluation
        return (*(own.tags if own else ()), *((SHAPE_GENERAL,) if self.is_general else ()))

    @property
    def summary(self) -> str:
        """One line."""
        correct, judged = correct_and_judged(self.verdicts)
        if judged < 2:
            return f"not {SHAPE_GENERAL}: no other size could be judged"
        if self.is_general:
            return f"{SHAPE_GENERAL}: right at all {judged} sizes"
        if self.verdicts[0].is_correct and correct == 1:
            return f"not {SHAPE_GENERAL}: right at the problem's own sizes only, and at none of {judged - 1} others"
        return f"not {SHAPE_GENERAL}: right at {correct} of {judged} sizes"


def own_sizes(problem: Problem) -> Variant:
    """The problem as it is."""
    return Variant(kind=OWN, words="", problem=problem, sizes={})


def given_sizes(problem: Problem, device_type: str, sizes: Sizes) -> Variant:
    """The problem with these values of its module constants; the others stay as they are.

    Raises:
        UsageError: it has no constant of such a name.
    """
    known = constants_of(problem.source)
    for name in sizes:
        if name not in known:
            raise UsageError(f"{problem.name} has no module constant {name} = number. {nearest(name, known)}")
    return _variant("given", problem, device_type, sizes)


def drawn_sizes(problem: Problem, device_type: str, *, seed: int) -> Iterator[Variant]:
    """The problem at sizes that depend on its text and the seed only.

    Raises:
        EvaluatorError: its file fails.
        UsageError: nothing in it is known to be a size.
    """
    found = Dimensions(problem.source_for(device_type), name=problem.name)
    if not found.found:
        raise UsageError(
            f"{problem.name}: no module constant (NAME = number) sets an axis of its inputs or outputs, so no other "
            "sizes can be drawn; name its sizes in the file, or name a constant with --shapes NAME=SIZE"
        )
    rng = Random(f"{problem.id}/{seed}")
    for drawn in draw_sizes(found.found, lambda sizes, most: found.runs(sizes, most_elements=most), rng):
        yield _variant(drawn.kind, problem, device_type, drawn.sizes)


def _variant(kind: str, problem: Problem, device_type: str, sizes: Mapping[str, int]) -> Variant:
    words = ", ".join(f"{name}={size}" for name, size in sizes.items())
    resized = with_constants(problem.source_for(device_type), sizes)
    changed = replace(problem, name=f"{problem.name} at {words}", source=resized, cpu_sizes={})
    return Variant(kind=kind, words=words, problem=changed, sizes=sizes)

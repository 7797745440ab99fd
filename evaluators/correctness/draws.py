"""Which draws of the inputs are tried: the kinds of distributions on which the reference stays accurate.

Where it does not when all inputs are changed, a milder kind is tried, and one input at a time: that one input must stay
a probability is no reason to leave the others unchanged.
"""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from kbevolve.evaluators.correctness.inputs import (
    EXTRA_KINDS,
    KINDS,
    Distribution,
    Only,
    Transform,
    alone,
    nominal,
    plan_transforms,
    shuffled,
)
from kbevolve.evaluators.correctness.reference import Reference, same_values

#: Most inputs on which a transform is tried alone.
_MOST_ALONE = 3


@dataclass(frozen=True, slots=True)
class Draw:
    """One draw of the inputs; the seed is the judge's secret."""

    seed: int
    transform: Distribution
    #: Which of the judge's weights the answer is for: 0 for the main ones.
    weights: int = 0

    @classmethod
    def of(cls, transform: Distribution) -> "Draw":
        """A draw with a seed of its own."""
        return cls(secrets.randbits(62), transform)

    @property
    def function(self) -> Transform:
        """The transform, of one input or of all."""
        return self.transform.transform if isinstance(self.transform, Only) else self.transform


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDraws:
    """The draws of the trials, and what was found out about the inputs."""

    draws: list[Draw]
    #: "nominal-inputs-only" where no transform is usable; "constant-input" where an input never changes.
    tags: tuple[str, ...]
    #: Whether kernels can be judged on inputs of which a row and a few elements are changed.
    changed_rows: bool


class DrawPlanner:
    """Plans the draws of one problem; `can_judge` says whether kernels can be judged on a draw."""

    def __init__(self, reference: Reference, can_judge: Callable[[Draw], bool]) -> None:
        self._reference = reference
        self._can_judge = can_judge

    def plan(self, first: Draw, count: int) -> PlannedDraws:
        """`count` draws, nominal ones and one of each kind of `KINDS` in turn, and then one of each other kind.

        Each of the others takes the place of a nominal draw, as long as there is one behind the first: every timed call
        is on nominal inputs, and checked, too.
        """
        usable: list[Distribution] = []
        extra: list[Draw] = []
        for kind in KINDS:
            found = self._usable(kind)
            usable += found[:1]
            extra += map(Draw.of, found[1:])
        for kind in EXTRA_KINDS:
            extra += map(Draw.of, self._usable(kind))
        constants, fixed = self._changed_constants()
        others = [*extra, *self._repetitions(first), *constants]
        planned = list(plan_transforms(count, usable)[1:])
        for _ in others:
            if nominal in planned:
                planned.remove(nominal)
        tags = {"nominal-inputs-only": not usable, "constant-input": fixed}
        return PlannedDraws(
            draws=[first, *map(Draw.of, planned), *others],
            tags=tuple(tag for tag, holds in tags.items() if holds),
            changed_rows=self._can_judge(Draw.of(alone)),
        )

    def _usable(self, kind: Sequence[Transform]) -> list[Distribution]:
        """The first transform of a kind that is usable on all inputs.

        Where that is not the most revealing one, also the most revealing one on each input where it is usable alone.
        """
        generator = torch.Generator(self._reference.device).manual_seed(0)
        touched = [index for index, one in enumerate(self._nominal()[1]) if kind[0](one, generator) is not one]
        if not touched:
            return []
        found: list[Distribution] = []
        for transform in kind:
            if self._can_judge(Draw.of(transform)):
                found.append(transform)
                break
        if found != [kind[0]] and len(touched) > 1:
            single = [Only(kind[0], index) for index in touched[:_MOST_ALONE]]
            found += [one for one in single if self._can_judge(Draw.of(one))]
        return found

    def _repetitions(self, first: Draw) -> list[Draw]:
        """Inputs of the first trial of which one row and a few elements of one tensor are changed, of a few tensors."""
        inputs = self._reference.inputs(first.seed, nominal)[1]
        indices = [index for index, tensor in enumerate(inputs) if tensor.ndim and tensor.numel() > 1]
        del inputs  # before a truth is computed
        some = secrets.SystemRandom().sample(indices, min(len(indices), _MOST_ALONE))
        chosen = [Draw(first.seed, Only(alone, index)) for index in some]
        return [draw for draw in chosen if self._can_judge(draw)]

    def _changed_constants(self) -> tuple[list[Draw], bool]:
        """Draws in which inputs are changed that the problem never changes; whether some cannot be changed."""
        structure, tensors = self._nominal()
        _, others = self._nominal()
        draws, fixed = [], _has_numbers(structure)
        for index, (one, other) in enumerate(zip(tensors, others, strict=True)):
            if not one.numel() or not same_values(one, other):
                continue
            draw = Draw.of(Only(shuffled, index))
            if self._can_judge(draw):
                draws.append(draw)
            elif not (one.is_floating_point() and one.ndim and one.count_nonzero()):
                fixed = True  # every transform scales the others
        return draws, fixed

    def _nominal(self) -> tuple[Any, list[torch.Tensor]]:
        return self._reference.inputs(secrets.randbits(62), nominal)


def _has_numbers(structure: Any) -> bool:
    """Whether plain numbers are among the inputs: the problem gives the same ones in every call."""
    if isinstance(structure, dict):
        ((kind, content),) = structure.items()
        return kind != "tensor" and _has_numbers(content)
    if isinstance(structure, list):
        return any(map(_has_numbers, structure))
    return isinstance(structure, int | float) and not isinstance(structure, bool)

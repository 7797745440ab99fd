"""Ideas that cannot help here, by what is known of device, task and kernel. What is not known masks nothing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbevolve.configs.playbook import PlaybookIdea
from kbevolve.configs.settings import Precision
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.state.normalise import ARITHMETIC, bottleneck_class

#: Share of the measured bandwidth from which a kernel is bound by memory: its arithmetic is hidden behind the traffic,
#: and only less traffic or fewer passes can help.
BOUND_BY_MEMORY = 0.8
#: Techniques that need matrix units, and those of them that keep fp32's accuracy.
_MATRIX, _SPLIT = ("tensor-cores", "split-precision"), "split-precision"
#: First architecture with matrix units.
_MATRIX_UNITS = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class Mask:
    """A reason why some ideas cannot help."""

    #: In a sentence, for the prompt.
    words: str
    techniques: frozenset[str] = frozenset()
    #: Classes of bottleneck (`evolve.state.normalise`).
    bottlenecks: frozenset[str] = frozenset()

    def hides(self, idea: PlaybookIdea) -> bool:
        """Whether it speaks against an idea of the playbook."""
        return idea.technique in self.techniques or bottleneck_class(idea.bottleneck) in self.bottlenecks


def masks_of(brief: Brief, precision: Precision) -> tuple[Mask, ...]:
    """What speaks against some ideas for a child, as far as anybody knows."""
    return tuple(_masks(brief, precision))


def unmasked(entries: Sequence[PlaybookIdea], masks: Sequence[Mask]) -> Sequence[PlaybookIdea]:
    """The ideas that may help; all of them if none would be left."""
    return [entry for entry in entries if not any(mask.hides(entry) for mask in masks)] or entries


def _masks(brief: Brief, precision: Precision) -> Iterator[Mask]:
    architecture = re.search(r"\bsm_(\d+)", brief.task.device)
    if brief.task.device_type == "cuda" and architecture and int(architecture[1]) < _MATRIX_UNITS:
        yield Mask(words="This device has no matrix units.", techniques=frozenset(_MATRIX))
    elif brief.task.device_type == "cuda" and precision == "fp32":
        words = "Matrix units round fp32 operands; they are accurate enough only with operands split into parts."
        yield Mask(words=words, techniques=frozenset({name for name in _MATRIX if name != _SPLIT}))
    share = _bandwidth_share(brief)
    if share is not None and share >= BOUND_BY_MEMORY:
        words = (
            f"The kernel already moves its bytes at {min(share, 1.0):.0%} of the bandwidth that this device reaches: "
            "less arithmetic cannot make it faster."
        )
        yield Mask(words=words, bottlenecks=frozenset({ARITHMETIC}))


def _bandwidth_share(brief: Brief) -> float | None:
    """The main parent's share of the measured bandwidth, by the problem's own bytes; None where it is not known."""
    if (
        brief.task.card is None
        or not brief.task.card.memory_ms
        or not brief.parents
        or "profiler" not in brief.feedback
    ):
        return None
    time_ms = brief.parents[0].evaluation.timing.time_ms
    return brief.task.card.memory_ms / time_ms if time_ms else None

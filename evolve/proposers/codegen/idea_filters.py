"""Filters for ideas that cannot help here, by device, task and kernel. What is unknown filters nothing."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbevolve.configs.playbook import PlaybookIdea
from kbevolve.configs.settings import Precision
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.state.normalise import ARITHMETIC, bottleneck_class

#: Share of the measured bandwidth from which a kernel counts as memory-bound: the traffic hides its arithmetic, and
#: only less traffic or fewer passes can help.
MEMORY_BOUND = 0.8
#: Techniques that need matrix units, and the one of them that keeps fp32's accuracy.
_MATRIX, _SPLIT = ("tensor-cores", "split-precision"), "split-precision"
#: First architecture with matrix units.
_MATRIX_UNITS = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class IdeaFilter:
    """A reason why some ideas cannot help."""

    #: A sentence for the prompt.
    reason: str
    techniques: frozenset[str] = frozenset()
    #: Classes of bottleneck (`evolve.state.normalise`).
    bottlenecks: frozenset[str] = frozenset()

    def excludes(self, idea: PlaybookIdea) -> bool:
        """Whether the reason applies to an idea of the playbook."""
        return idea.technique in self.techniques or bottleneck_class(idea.bottleneck) in self.bottlenecks


def filters_for(brief: Brief, precision: Precision) -> tuple[IdeaFilter, ...]:
    """The filters that apply to a child."""
    return tuple(_filters(brief, precision))


def helpful(entries: Sequence[PlaybookIdea], filters: Sequence[IdeaFilter]) -> Sequence[PlaybookIdea]:
    """The ideas that may help; all of them if none would be left."""
    return [entry for entry in entries if not any(one.excludes(entry) for one in filters)] or entries


def _filters(brief: Brief, precision: Precision) -> Iterator[IdeaFilter]:
    cuda = brief.task.device_type == "cuda"
    architecture = re.search(r"\bsm_(\d+)", brief.task.device)
    if cuda and architecture and int(architecture[1]) < _MATRIX_UNITS:
        yield IdeaFilter(reason="This device has no matrix units.", techniques=frozenset(_MATRIX))
    elif cuda and precision == "fp32":
        reason = "Matrix units round fp32 operands; they are accurate enough only with operands split into parts."
        yield IdeaFilter(reason=reason, techniques=frozenset(_MATRIX) - {_SPLIT})
    share = _bandwidth_share(brief)
    if share is not None and share >= MEMORY_BOUND:
        reason = (
            f"The kernel already moves its bytes at {min(share, 1.0):.0%} of the bandwidth that this device reaches: "
            "less arithmetic cannot make it faster."
        )
        yield IdeaFilter(reason=reason, bottlenecks=frozenset({ARITHMETIC}))


def _bandwidth_share(brief: Brief) -> float | None:
    """The main parent's share of the measured bandwidth, by the problem's own bytes; None when it is unknown."""
    card = brief.task.card
    if card is None or not card.memory_ms or not brief.parents or "profiler" not in brief.feedback:
        return None
    time_ms = brief.parents[0].evaluation.timing.time_ms
    return card.memory_ms / time_ms if time_ms else None

"""What limits a kernel, and filters for ideas that cannot help here. What is unknown filters nothing."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kbevolve.archive.formatting import percent_words
from kbevolve.archive.records import Backend
from kbevolve.configs.playbook import PlaybookIdea
from kbevolve.configs.settings import Precision
from kbevolve.evaluators.feedback.launching import launches_matter
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.state.normalise import ARITHMETIC, MEMORY, bottleneck_class

#: Share of the measured bandwidth from which a kernel counts as memory-bound: the traffic hides its arithmetic, and
#: only less traffic or fewer passes can help.
MEMORY_BOUND = 0.8
#: Share of a call's device time from which libraries count as its limit.
LIBRARY_SHARE = 0.5
#: Techniques that need matrix units; the second keeps fp32's accuracy.
_MATRIX, SPLIT = "tensor-cores", "split-precision"
#: First architecture with matrix units.
_MATRIX_UNITS = 70


@dataclass(frozen=True, slots=True, kw_only=True)
class IdeaFilter:
    """A reason why ideas of some techniques, or against some classes of bottleneck, cannot help."""

    #: A sentence for the prompt.
    reason: str
    techniques: tuple[str, ...] = ()
    bottlenecks: tuple[str, ...] = ()


def filters_for(brief: Brief, precision: Precision) -> list[IdeaFilter]:
    """The filters that apply to a child."""
    found = []
    if brief.task.device_type == "cuda":
        architecture = re.search(r"\bsm_(\d+)", brief.task.device)
        if architecture and int(architecture[1]) < _MATRIX_UNITS:
            found.append(IdeaFilter(reason="This device has no matrix units.", techniques=(_MATRIX, SPLIT)))
        elif precision == "fp32":
            reason = "Matrix units round fp32 operands; they are accurate enough only with operands split into parts."
            found.append(IdeaFilter(reason=reason, techniques=(_MATRIX,)))
    card = brief.task.card
    time_ms = brief.parents[0].evaluation.timing.time_ms if brief.parents and "profiler" in brief.feedback else None
    # The main parent's share of the measured bandwidth, by the problem's own bytes.
    share = card.memory_ms / time_ms if card and card.memory_ms and time_ms else 0.0
    if share >= MEMORY_BOUND:
        reason = (
            f"The kernel already moves its bytes at {percent_words(min(share, 1.0))} of the bandwidth that a copy "
            f"reaches: it can become {max(1.0, 1 / share):.2f} times as fast if it moves no fewer."
        )
        found.append(IdeaFilter(reason=reason, bottlenecks=(ARITHMETIC,)))
    return found


def limit_of(brief: Brief) -> str:
    """The class of what limits the main parent, by its profile, or else the problem, by its card; "" when unknown."""
    card = brief.task.card
    of_problem = {"memory": MEMORY, "arithmetic": ARITHMETIC}[card.bound_by] if card and card.memory_ms else ""
    if is_library_bound(brief) or "profiler" not in brief.feedback:
        return of_problem
    profile = brief.parents[0].evaluation.profile
    # The remedies after the colon may name other limits.
    named = profile.bottleneck.partition(":")[0] if profile else ""
    return bottleneck_class(named) or of_problem


def is_library_bound(brief: Brief) -> bool:
    """Whether most time of the main parent is a library's, as far as its profile shows; also without a parent."""
    if not brief.parents or brief.parents[0].kernel.backend is Backend.TORCH:
        return True
    profile = brief.parents[0].evaluation.profile if "profiler" in brief.feedback else None
    return profile is not None and sum(one.share for one in profile.launches if one.library) > LIBRARY_SHARE


def is_launch_heavy(brief: Brief) -> bool:
    """Whether fewer or cheaper launches of the main parent can help, as far as its profile shows."""
    found = brief.parents[0].evaluation if brief.parents and "profiler" in brief.feedback else None
    if found is None or found.profile is None or found.timing.time_ms is None:
        return False
    return launches_matter(found.profile.launches, found.timing.time_ms, found.profile.launch_cost)


def helpful(entries: Sequence[PlaybookIdea], filters: Sequence[IdeaFilter]) -> Sequence[PlaybookIdea]:
    """The ideas that may help; all of them if none would be left."""
    techniques = {technique for one in filters for technique in one.techniques}
    bottlenecks = {bottleneck for one in filters for bottleneck in one.bottlenecks}
    left = [
        entry
        for entry in entries
        if entry.technique not in techniques and bottleneck_class(entry.bottleneck) not in bottlenecks
    ]
    return left or entries

"""The host's time to launch a call beside the device's time to run it.

Calls in a row take the longer of the two. A single call on an idle device also waits for a part of the host's. The
judge's times hide some of it, because the device is busy with inputs and the L2 when a timed call begins.
"""

from collections.abc import Sequence

from kbevolve.archive.records import Launch, LaunchCost
from kbevolve.evaluators.analysis.rates import duration, percent
from kbevolve.evaluators.feedback.passes import kernel_ms

#: From this share of the device's time on, the host's time is worth an attempt. From 1 on it is the limit.
_WORTH = 0.2
_LIMIT = 1.0


def launches_matter(launches: Sequence[Launch], time_ms: float, cost: LaunchCost | None) -> bool:
    """Whether fewer or cheaper launches can help a user, as far as it was measured."""
    return _host_share(launches, time_ms, cost) >= _WORTH


def launches_limit(launches: Sequence[Launch], time_ms: float, cost: LaunchCost | None) -> bool:
    """Whether the host takes longer to launch a call than the device to run it."""
    return _host_share(launches, time_ms, cost) >= _LIMIT


def launching_words(launches: Sequence[Launch], time_ms: float, cost: LaunchCost | None) -> str:
    """What limits the kernel, or could be improved, about its launches; "" where they hardly matter."""
    if launches_limit(launches, time_ms, cost):
        return (
            "launch-bound: the host takes longer to launch a call than the device to run it; fewer launches, less work "
            "in Python, cached launchers, or a CUDA graph"
        )
    if launches_matter(launches, time_ms, cost):
        share = percent(_host_share(launches, time_ms, cost))
        return (
            f"the host takes {share} of the device's time to launch a call, which an idle device waits for; fewer "
            "launches, or cached launchers"
        )
    return ""


def launching_line(launches: Sequence[Launch], time_ms: float, cost: LaunchCost | None) -> str:
    """``The host needs 38 µs to launch the 7 kernels of a call; the device needs 21 µs.``; "" when unknown."""
    if cost is None:
        return ""
    count = cost.launches or 1
    what = f"the {count:.3g} kernels of a call" if count != 1 else "a call"
    ran = duration(_device_ms(launches, time_ms))
    return f"The host needs {duration(cost.host_ms)} to launch {what}; the device needs {ran}."


def _device_ms(launches: Sequence[Launch], time_ms: float) -> float:
    return kernel_ms(launches) or time_ms


def _host_share(launches: Sequence[Launch], time_ms: float, cost: LaunchCost | None) -> float:
    device_ms = _device_ms(launches, time_ms)
    return cost.host_ms / device_ms if cost and device_ms else 0.0

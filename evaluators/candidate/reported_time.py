"""The times that a worker reports: untrusted numbers, bounded by the judge's own clock."""

from typing import Any

from kbevolve.archive.records import Verdict
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.worker.channel import Message

#: Shorter than any call: no clock shows less, and quotients of such numbers overflow.
_LEAST_MS = 1e-6
#: A reported time may exceed the judge's own by this factor, because a GPU's clock differs a little from the judge's.
_CLOCK_SLACK = 1.01


def time_of(reply: Message, wall_ms: float) -> float:
    """Milliseconds of the one call that a reply reports; `wall_ms` by the judge's clock."""
    times = reply.get("times_ms")
    if not isinstance(times, list) or len(times) != 1:
        raise Rejection(Verdict.CRASHED, "its process sent a reply without a time")
    return milliseconds(times[0], wall_ms)


def milliseconds(value: Any, wall_ms: float) -> float:
    """A reported time; Rejection when it is none, or more than the judge's clock saw."""
    if not isinstance(value, float) or not _LEAST_MS <= value <= _CLOCK_SLACK * wall_ms:
        raise Rejection(Verdict.REFUSED, "not accepted: its process reported an impossible time")
    return value

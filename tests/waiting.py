"""Tests wait for what other threads and processes bring about, not for a time."""

import time
from collections.abc import Callable

#: Seconds after which a test gives up. Importing torch takes tens of seconds from a cold disk.
PATIENCE = 60.0


def until(holds: Callable[[], bool]) -> None:
    """Wait until it holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)

"""Admits evaluations to a judge: several kernels of one problem side by side, or one alone."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class AdmissionSlot:
    """One admitted evaluation."""

    #: Whether another was admitted at the same time, and may have used memory that this one needed.
    was_shared: bool = False


class Admission:
    """Admits threads by problem: a problem is set up once, and its data fill most of a device.

    A thread enters at once if its problem is the present one. Others wait until all slots of the present problem are
    free. A thread that wants to be alone enters before all threads that asked later.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._problem = ""
        self._slots: set[AdmissionSlot] = set()
        self._exclusive = False
        self._waiting_exclusive = 0

    @contextmanager
    def shared(self, problem: str) -> Iterator[AdmissionSlot]:
        """Enter beside others that evaluate kernels of the problem with this id."""
        with self._changed:
            self._changed.wait_for(
                lambda: not self._exclusive and not self._waiting_exclusive and self._is_open_to(problem)
            )
            self._problem = problem
            slot = AdmissionSlot(was_shared=bool(self._slots))
            for other in self._slots:
                other.was_shared = True
            self._slots.add(slot)
        try:
            yield slot
        finally:
            with self._changed:
                self._slots.discard(slot)
                self._changed.notify_all()

    @contextmanager
    def exclusive(self, problem: str) -> Iterator[None]:
        """Enter alone."""
        with self._changed:
            self._waiting_exclusive += 1
            try:
                self._changed.wait_for(lambda: not self._exclusive and not self._slots)
                self._exclusive = True
                self._problem = problem
            finally:
                self._waiting_exclusive -= 1
                self._changed.notify_all()
        try:
            yield
        finally:
            with self._changed:
                self._exclusive = False
                self._changed.notify_all()

    @property
    def is_shared(self) -> bool:
        """Whether several slots are taken now."""
        return len(self._slots) > 1

    def _is_open_to(self, problem: str) -> bool:
        return not self._slots or self._problem == problem

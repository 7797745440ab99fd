"""Who may use the device: several kernels that are tried, or one that is timed, with nobody beside it.

Trying and comparing take milliseconds at a time, so the gate is held for one call and not for a whole kernel, and who
wants the device alone comes first: a pipeline moves at the pace of its timing. While a compiler runs, a thread steps
back (`DeviceGate.released`). A worker that is starting holds no candidate yet, and takes seconds: it is not
waited for but stopped while somebody is alone (`DeviceGate.in_background`).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Protocol

from kbevolve.evaluators.device.devices import Device, beside, exclusive, shared


class BackgroundProcess(Protocol):
    """What can be stopped where it is."""

    def pause(self, *, wait: bool = True) -> None:
        """Stop it; returns when it stands, at once without `wait`."""
        ...

    def resume(self) -> None:
        """Let it go on."""
        ...


class DeviceGate:
    """The gate to one device, for the threads of one judge; other kbevolve processes keep to it as well.

    A thread that holds the gate may pass again; within `exclusive` it stays alone. Nobody may wait for another thread
    while he holds it.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._changed = threading.Condition()
        self._inside = 0
        self._alone = False
        self._waiting = 0
        self._mine = threading.local()
        self._bystanders: list[BackgroundProcess] = []
        # Those that stand still for who is alone now.
        self._stopped: list[BackgroundProcess] = []
        # For all of them together, beside other kbevolve processes.
        self._standing = ExitStack()

    @contextmanager
    def shared(self) -> Iterator[float]:
        """Beside others; yields the seconds that were waited."""
        if self._held:
            yield 0.0
            return
        waited = self._enter()
        try:
            yield waited
        finally:
            self._leave()

    @contextmanager
    def exclusive(self) -> Iterator[float]:
        """Alone; yields the seconds that were waited.

        Raises:
            RuntimeError: the thread holds the gate beside others, and would wait for itself.
        """
        if self._held == "exclusive":
            yield 0.0
            return
        if self._held:
            raise RuntimeError("a thread that shares the device wants it alone; it must leave the gate first")
        started = time.perf_counter()
        with self._changed:
            self._waiting += 1
            try:
                self._changed.wait_for(lambda: not self._inside and not self._alone)
                self._alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        self._mine.held = "exclusive"
        try:
            self._still()
            with exclusive(self._device):
                yield self._count(started)
        finally:
            self._mine.held = ""
            try:
                with shared(self._device), self._changed:
                    if self._bystanders:
                        self._standing.enter_context(beside(self._device))
                    self._open()
            except BaseException:  # Ctrl-C while another process has it
                with self._changed:
                    self._open()
                raise

    @contextmanager
    def released(self) -> Iterator[None]:
        """Step back for a while if the thread shares the device; who has it alone keeps it."""
        if self._held != "shared":
            yield
            return
        self._leave()
        try:
            yield
        finally:
            self._enter()

    @contextmanager
    def in_background(self, bystander: BackgroundProcess) -> Iterator[None]:
        """Have a process use the device a little, with nobody waiting for it: it stands still while somebody is alone.

        It may come at any time. The first one stands still until the device can be shared.
        """
        with self._changed:
            joined = self._alone or bool(self._bystanders)
            if joined:
                self._join(bystander)
        if not joined:
            bystander.pause(wait=False)
            with self.shared(), self._changed:
                if not self._bystanders:
                    self._standing.enter_context(beside(self._device))
                self._join(bystander)
                bystander.resume()
        try:
            yield
        finally:
            with self._changed:
                self._bystanders.remove(bystander)
                if not self._bystanders:
                    self._standing.close()

    def _join(self, bystander: BackgroundProcess) -> None:
        if self._alone:
            bystander.pause(wait=False)
            self._stopped.append(bystander)
        self._bystanders.append(bystander)

    def _still(self) -> None:
        """Stop all bystanders; some may have just got ready. Who comes from now on is stopped as it comes."""
        with self._changed:
            bystanders = tuple(self._bystanders)
            self._stopped.extend(bystanders)
        for wait in (False, True):  # none goes on while another is waited for
            for bystander in bystanders:
                bystander.pause(wait=wait)
        with self._changed:
            self._standing.close()

    def _open(self) -> None:
        """Nobody is alone any more; in one step, so that who comes meanwhile is not forgotten."""
        self._alone = False
        for bystander in self._stopped:
            bystander.resume()
        self._stopped.clear()
        self._changed.notify_all()

    @property
    def waited(self) -> float:
        """Seconds that the calling thread has waited here in all."""
        return getattr(self._mine, "waited", 0.0)

    @property
    def _held(self) -> str:
        return getattr(self._mine, "held", "")

    def _enter(self) -> float:
        started = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._inside += 1
        with ExitStack() as beside:
            beside.callback(self._step_out)
            beside.enter_context(shared(self._device))
            self._mine.beside = beside.pop_all()
        self._mine.held = "shared"
        return self._count(started)

    def _count(self, started: float) -> float:
        """Seconds since then, added to what this thread has waited."""
        seconds = time.perf_counter() - started
        self._mine.waited = self.waited + seconds
        return seconds

    def _leave(self) -> None:
        self._mine.held = ""
        self._mine.beside.close()

    def _step_out(self) -> None:
        with self._changed:
            self._inside -= 1
            self._changed.notify_all()

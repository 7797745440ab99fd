"""The device gate: several kernels share the device while they are tried; a kernel that is timed has it alone.

A thread holds the gate for one call, which takes milliseconds, and not for a whole kernel. A thread that wants the
device alone goes first, because timing limits the throughput of the pipeline. A worker that starts or imports a
kernel takes seconds and needs the device little: no thread waits for it, but it is paused while a kernel is timed
(`DeviceGate.in_background`). While a compiler runs, a thread leaves the gate, and the compiler is in the background
(`DeviceGate.released`).
"""

import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Protocol

from kbevolve.configs.errors import EvaluatorError
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import Device

#: Between two looks whether another judge wants the device, for which background processes are paused.
_LOOK_SECONDS = 0.02


class BackgroundProcess(Protocol):
    """A process that can be paused at any point."""

    def pause(self, *, wait: bool = True) -> None:
        """Pause it. With `wait`, returns when it has stopped."""
        ...

    def resume(self) -> None:
        """Let it continue."""
        ...


class DeviceGate:
    """The gate of one device for the threads of one judge; it also takes the machine's locks on the device.

    Reentrant: a thread inside `exclusive` stays alone. A thread that holds the gate must not wait for another thread.
    """

    def __init__(self, device: Device) -> None:
        self._device = device
        self._changed = threading.Condition()
        # Threads that share the device, whether one has it alone, and threads that wait to have it alone.
        self._sharing = 0
        self._alone = False
        self._waiting = 0
        self._mine = threading.local()
        self._background: list[BackgroundProcess] = []
        # Those that are paused for the thread that is alone.
        self._paused: list[BackgroundProcess] = []
        # The machine's lock, shared by all background processes, and those that are paused for another judge.
        self._background_lock = ExitStack()
        self._yielding: list[BackgroundProcess] | None = None
        self._watched = False
        self._closed = threading.Event()

    def close(self) -> None:
        """Let no thread wait for another process any more; those that do raise EvaluatorError."""
        self._closed.set()

    @contextmanager
    def shared(self) -> Iterator[float]:
        """Use the device together with other threads; yields the seconds of waiting."""
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
        """Use the device alone; yields the seconds of waiting.

        Raises:
            RuntimeError: the thread already shares the device, and would wait for itself.
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
                self._changed.wait_for(lambda: not self._sharing and not self._alone)
                self._alone = True
            finally:
                self._waiting -= 1
                self._changed.notify_all()
        self._mine.held = "exclusive"
        try:
            self._pause_background()
            with lock.exclusive(self._device, self._closed):
                yield self._count(started)
        finally:
            self._mine.held = ""
            try:
                with lock.shared(self._device, self._closed), self._changed:
                    if self._background:
                        self._background_lock.enter_context(lock.shared_again(self._device))
                    self._open()
            except BaseException:  # Ctrl-C while another process has the device
                with self._changed:
                    self._open()
                raise

    @contextmanager
    def released(self, process: BackgroundProcess) -> Iterator[None]:
        """Leave the gate for a while if the thread shares the device; a thread that has it alone keeps it.

        Meanwhile its process is in the background: a compiler on the next core makes launches of a timed kernel slow.
        """
        if self._held != "shared":
            yield
            return
        self._leave()
        try:
            with self.in_background(process):
                yield
        finally:
            self._enter()

    @contextmanager
    def in_background(self, process: BackgroundProcess) -> Iterator[None]:
        """Let a process use the device a little. No thread waits for it; it is paused while a thread is alone.

        So it is while another judge of this machine has the device alone, which waits for a moment only. May be
        entered at any time. The first process is paused until the device can be shared.
        """
        with self._changed:
            joined = self._alone or bool(self._background)
            if joined:
                self._join(process)
        if not joined:
            process.pause(wait=False)
            with self.shared(), self._changed:
                if not self._background:
                    self._background_lock.enter_context(lock.shared_again(self._device))
                self._join(process)
                process.resume()
        try:
            yield
        finally:
            with self._changed:
                self._background.remove(process)
                if not self._background:
                    self._background_lock.close()

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread has the device alone."""
        return self._held == "exclusive"

    @property
    def waited(self) -> float:
        """Seconds that the calling thread has waited here in all."""
        return getattr(self._mine, "waited", 0.0)

    @property
    def _held(self) -> str:
        return getattr(self._mine, "held", "")

    def _join(self, process: BackgroundProcess) -> None:
        if self._alone or self._yielding is not None:
            process.pause(wait=False)
            (self._paused if self._yielding is None else self._yielding).append(process)
        self._background.append(process)
        if not self._watched:
            self._watched = True
            threading.Thread(target=self._watch, name="kbevolve-device-watch", daemon=True).start()

    def _watch(self) -> None:
        """As long as there are background processes, pause them whenever another judge wants to have the device alone.

        They hold the machine's lock, and a judge would wait for the last of them.
        """
        while True:
            time.sleep(_LOOK_SECONDS)
            with self._changed:
                if not self._background or self._closed.is_set():
                    self._watched = False
                    return
                if self._alone or not lock.is_wanted(self._device):
                    continue
                self._yielding = list(self._background)
                for wait in (False, True):
                    for process in self._yielding:
                        process.pause(wait=wait)
                self._background_lock.close()
            with suppress(EvaluatorError), lock.shared(self._device, self._closed):
                with self._changed:
                    self._end_yielding()
                continue
            with self._changed:  # the judge was closed while it waited
                self._end_yielding()

    def _end_yielding(self) -> None:
        """Let the paused processes continue, unless a thread is alone by now, which does so when it is done."""
        paused, self._yielding = self._yielding or [], None
        if self._alone:
            self._paused.extend(paused)
            return
        if self._background and not self._closed.is_set():
            self._background_lock.enter_context(lock.shared_again(self._device))
        for process in paused:
            process.resume()

    def _pause_background(self) -> None:
        """Pause all background processes, some of which may have left by now. A later one is paused when it joins."""
        with self._changed:
            processes = tuple(self._background)
            self._paused.extend(processes)
        for wait in (False, True):  # all are signalled before the first is waited for
            for process in processes:
                process.pause(wait=wait)
        with self._changed:
            self._background_lock.close()

    def _open(self) -> None:
        """End `exclusive`, in one step, so that a process that joins meanwhile is resumed as well."""
        self._alone = False
        for process in self._paused:
            process.resume()
        self._paused.clear()
        self._changed.notify_all()

    def _enter(self) -> float:
        started = time.perf_counter()
        with self._changed:
            self._changed.wait_for(lambda: not self._alone and not self._waiting)
            self._sharing += 1
        with ExitStack() as sharing:
            sharing.callback(self._stop_sharing)
            sharing.enter_context(lock.shared(self._device, self._closed))
            self._mine.sharing = sharing.pop_all()
        self._mine.held = "shared"
        return self._count(started)

    def _count(self, started: float) -> float:
        """The seconds since `started`, added to what this thread has waited."""
        seconds = time.perf_counter() - started
        self._mine.waited = self.waited + seconds
        return seconds

    def _leave(self) -> None:
        self._mine.held = ""
        self._mine.sharing.close()

    def _stop_sharing(self) -> None:
        with self._changed:
            self._sharing -= 1
            self._changed.notify_all()

"""The fork servers of one device.

A GPU has two. Importing Inductor takes as long as importing torch, and the first kernels of a run need none of it. So
workers come from a server without it until one with it is ready.
"""

import threading

from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.sandbox import launch
from kbevolve.evaluators.sandbox.forkserver import ForkServer

#: Forked workers in a row that fail, where programs start, before no more are forked.
_MOST_FAILURES = 2


class ForkServers:
    """Opens fork servers when they are needed, and new ones for those that have died; for several threads."""

    def __init__(self, device: Device, early: ForkServer | None = None) -> None:
        """`early` was opened before the device was known (`launch.open_fork_server_early`); `close` closes it."""
        self._device = device
        #: With Inductor, and without.
        self._servers: dict[bool, ForkServer] = {}
        if early is not None:
            early.allow(launch.fork_server_rights(device, early.directory).for_landlock())
            self._servers[False] = early
        # Whether forked workers work on this system, and how many failed since the last one that worked.
        self._can_fork = True
        self._failures = 0
        self._lock = threading.Lock()

    def living(self) -> ForkServer | None:
        """The one to fork the next worker; None where workers cannot be forked."""
        with self._lock:
            if not self._can_fork:
                return None
            if self._device.type == "cpu":
                return self._open(inductor=False)
            found = self._open(inductor=True)
            return self._open(inductor=False) if found is not None and not found.is_ready else found

    @property
    def complete(self) -> bool:
        """Whether the next worker has everything that workers have here: on a GPU, Inductor."""
        if self._device.type == "cpu" or not self._can_fork:
            return True
        found = self._servers.get(True)
        return found is not None and found.is_ready

    def worked(self) -> None:
        """A forked worker is ready."""
        with self._lock:
            self._failures = 0

    def failed(self, server: ForkServer) -> None:
        """This one forked no worker, but a program started.

        If the server lives and that happens twice in a row, forked workers do not work here; once it may be a device
        or a machine without memory.
        """
        with self._lock:
            self._failures += server.alive
            self._can_fork = self._can_fork and self._failures < _MOST_FAILURES

    def close(self) -> None:
        """End all with their workers."""
        with self._lock:
            for server in self._servers.values():
                server.close()
            self._servers.clear()

    def _open(self, *, inductor: bool) -> ForkServer | None:
        found = self._servers.get(inductor)
        if found is not None and not found.alive:
            self._servers.pop(inductor).close()
            found = None
        if found is None:
            found = launch.open_fork_server(self._device, inductor=inductor)
            if found is None:
                self._can_fork = False
            else:
                self._servers[inductor] = found
        return found

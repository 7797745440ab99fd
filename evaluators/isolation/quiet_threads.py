"""Keeps the judge's own threads off the cores that kernels are timed on."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class QuietThreads:
    """While anybody is inside, torch's thread pool in this process sleeps.

    After any use its threads spin for 10 ms, on the cores that the workers are timed on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._before = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """For the calling thread; how many threads torch had is put back by the last who leaves."""
        with self._lock:
            if not self._inside:
                self._before = torch.get_num_threads()
            self._inside += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside -= 1
                if not self._inside:
                    torch.set_num_threads(self._before)

"""Keeps torch's threads in the judge's process off the cores that kernels are timed on."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class QuietThreads:
    """A context in which torch uses one thread in this process.

    After any use the threads of torch's pool spin for 10 ms, on the cores that the workers are timed on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Thread -> how many times it has entered.
        self._inside: Counter[int] = Counter()
        self._before = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """Reentrant. OpenMP keeps the number of threads for each calling thread, so each one restores it on leaving."""
        me = threading.get_ident()
        with self._lock:
            if not self._inside:
                self._before = torch.get_num_threads()
            self._inside[me] += 1
            torch.set_num_threads(1)
        try:
            yield
        finally:
            with self._lock:
                self._inside[me] -= 1
                if not self._inside[me]:
                    del self._inside[me]
                    torch.set_num_threads(self._before)

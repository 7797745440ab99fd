"""Keeps the judge's own threads off the cores that kernels are timed on."""

import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import torch


class QuietThreads:
    """While anybody is inside, torch's thread pool in this process sleeps.

    After any use its threads spin for 10 ms, on the cores that the workers are timed on.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        # Thread -> how often it has entered.
        self._inside: Counter[int] = Counter()
        self._before = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        """For the calling thread, which may enter again. How many threads torch uses is a number of each thread's own
        (OpenMP's), so everybody who leaves puts it back.
        """
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

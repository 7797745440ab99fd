"""torch's number of threads while kernels are timed."""

import threading
from concurrent.futures import ThreadPoolExecutor

import torch

from kbevolve.evaluators.judging.judge import _one_thread


def test_each_thread_gets_its_threads_back() -> None:
    """torch counts threads for each thread; once only the last thread to leave got its number back."""
    together, left_first = threading.Barrier(2, timeout=20), threading.Event()

    def visit(first: bool) -> tuple[int, int]:
        with _one_thread(2), _one_thread(2):
            together.wait()
            inside = torch.get_num_threads()
            if not first:
                assert left_first.wait(20)
        after = torch.get_num_threads()
        left_first.set()
        return inside, after

    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with ThreadPoolExecutor(2) as pool:
            assert list(pool.map(visit, (True, False))) == [(1, 2), (1, 2)]
    finally:
        torch.set_num_threads(before)

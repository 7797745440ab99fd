"""Reading a file costs little beside judging it, also in a process of its own."""

import math
import time
from collections.abc import Callable
from contextlib import closing

from kbevolve.evaluators.lint import lint
from kbevolve.evaluators.lint.process import LintProcess
from tests.evaluators.lint.test_lint import SEEDS
from tests.evaluators.lint.test_process import HONEST


def _seconds(call: Callable[[], object], clock: Callable[[], float]) -> float:
    start = clock()
    call()
    return clock() - start


def test_a_process_of_its_own_costs_little() -> None:
    alone = apart = math.inf
    deadline = time.monotonic() + 20
    with closing(LintProcess()) as reader:
        reader.lint(HONEST)
        while apart - alone >= 0.005 or alone == math.inf:
            assert time.monotonic() < deadline
            alone = min(alone, _seconds(lambda: lint(HONEST), time.perf_counter))
            apart = min(apart, _seconds(lambda: reader.lint(HONEST), time.perf_counter))


def test_a_long_kernel_is_read_in_milliseconds() -> None:
    source = max((file.read_text() for file in SEEDS), key=len)
    assert source.count("\n") > 400
    lint(source)
    # 17 ms on one core of an AMD EPYC, where Python compiles the file in 0.94 ms (2026-11-29).
    compiled = min(_seconds(lambda: compile(source, "kernel.py", "exec"), time.process_time) for _ in range(5))
    assert min(_seconds(lambda: lint(source), time.process_time) for _ in range(5)) < 60 * compiled

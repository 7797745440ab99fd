"""How far measurements of one kernel in fresh processes lie apart; a difference that small is a tie."""

import math
import threading
from collections import defaultdict

from kbevolve.evaluators.timing.statistics import Speedup, between_processes, tie_width


class Repeatability:
    """The speedups that one judge has measured; for several threads."""

    def __init__(self, tie: float) -> None:
        """`tie`: the smallest share up to which a difference is a tie."""
        self._tie = tie
        self._lock = threading.Lock()
        # Problem -> kernel -> log speedups, each measured in fresh processes.
        self._measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, problem: str, kernel: str, speedup: Speedup) -> None:
        """Add one measurement of a kernel."""
        with self._lock:
            self._measured[problem][kernel].append(math.log(speedup.estimate))

    def tie(self, problem: str) -> float:
        """Share up to which a difference is noise between processes."""
        with self._lock:
            return tie_width(self._tie, between_processes(self._measured[problem].values()))

"""How far measurements of one kernel in fresh processes lie apart: a difference that small is no merit."""

import math
import threading
from collections import defaultdict

from kbevolve.evaluators.timing.statistics import Speedup, between_processes, tie_width


class Repeatability:
    """Remembers what was measured in one judge's life; for several threads."""

    def __init__(self, tie: float) -> None:
        """`tie`: share up to which a difference is a tie at least."""
        self._tie = tie
        self._lock = threading.Lock()
        # Problem -> kernel -> log speedups, each measured in fresh processes.
        self._measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def note(self, problem: str, kernel: str, speedup: Speedup) -> None:
        """One more measurement of a kernel."""
        with self._lock:
            self._measured[problem][kernel].append(math.log(speedup.estimate))

    def tie(self, problem: str) -> float:
        """Share up to which a difference is noise between processes."""
        with self._lock:
            return tie_width(self._tie, between_processes(self._measured[problem].values()))

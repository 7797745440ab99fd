"""How far measurements of one kernel in fresh processes lie apart; a difference that small is a tie."""

import math
import statistics
import threading
from collections import defaultdict

#: Standard deviations between processes that a difference must exceed: noise alone does that in fewer than 3 of 1000.
_SIGMAS = 3.0


class Repeatability:
    """The speedups that one judge has measured; for several threads."""

    def __init__(self, tie: float) -> None:
        """`tie`: the smallest share up to which a difference is a tie."""
        self._tie = tie
        self._lock = threading.Lock()
        # Problem -> kernel -> log speedups, each measured in fresh processes.
        self._measured: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))

    def add(self, problem: str, kernel: str, speedup: float) -> None:
        """Add one measurement of a kernel in a process of its own, that nothing disturbed."""
        with self._lock:
            self._measured[problem][kernel].append(math.log(speedup))

    def tie(self, problem: str) -> float:
        """Share up to which a difference is noise, by the deviation between processes, pooled over the kernels."""
        with self._lock:
            groups = [values for values in self._measured[problem].values() if len(values) > 1]
            squares = sum((len(values) - 1) * statistics.variance(values) for values in groups)
        freedom = sum(len(values) - 1 for values in groups)
        return max(self._tie, _SIGMAS * math.sqrt(squares / freedom) if freedom else 0.0)

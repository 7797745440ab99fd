"""The correct kernels that a run keeps in mind: the fittest and the newest, however many it has created."""

import bisect
from collections import deque
from collections.abc import Iterable, Iterator

#: Kernels kept of each kind. Proposers that learn from numbers fit some tens of values (a skeleton's tunables), which a
#: few hundred settings determine; those far behind the best hardly count in such a fit (`tuning.surrogate`). The newest
#: are kept beside the fittest because a skeleton that is tried now has no data among the fittest yet.
FITTEST, NEWEST = 512, 256


#: The position of a kernel, the fittest first, the earlier one of equals: -fitness, number, id.
Rank = tuple[float, int, str]


class Leaderboard:
    """Ids of kernels with their fitness, in order of creation; of a million it keeps `FITTEST` and `NEWEST`."""

    def __init__(self) -> None:
        self._number = 0
        self._fittest: list[Rank] = []
        self._newest: deque[Rank] = deque(maxlen=NEWEST)
        self._withdrawn: set[str] = set()

    def __len__(self) -> int:
        """How many kernels were added in all."""
        return self._number

    def add(self, kernel_id: str, fitness: float) -> None:
        """Add a kernel; each only once."""
        rank = (-fitness, self._number, kernel_id)
        self._number += 1
        self._newest.append(rank)
        bisect.insort(self._fittest, rank)
        del self._fittest[FITTEST:]

    def withdraw(self, kernel_ids: Iterable[str]) -> None:
        """Kernels that did not pass a second evaluation are ranked no more."""
        self._withdrawn.update(kernel_ids)

    def is_valid(self, kernel_id: str) -> bool:
        """Whether a kernel was not withdrawn."""
        return kernel_id not in self._withdrawn

    def ranked(self) -> Iterator[str]:
        """The fittest that were not withdrawn, the best first."""
        return (kernel for _, _, kernel in self._fittest if self.is_valid(kernel))

    def in_order(self) -> list[str]:
        """Everything that is kept, withdrawn kernels too, in order of creation."""
        return [kernel for _, kernel in sorted({rank[1:] for rank in (*self._fittest, *self._newest)})]

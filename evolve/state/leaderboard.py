"""The correct kernels that a run keeps in mind: the fittest and the newest, however many it has bred."""

import bisect
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass

#: Kernels kept of each kind. Proposers that learn from numbers fit some tens of values (a skeleton's tunables), which a
#: few hundred settings determine; those far behind the best hardly count in such a fit (`tuning.surrogate`). The newest
#: are kept beside the fittest because a skeleton that is tried now has no data among the fittest yet.
FITTEST, NEWEST = 512, 256


@dataclass(frozen=True, slots=True, order=True)
class _Place:
    """Where a kernel stands; the fittest first, the earlier one of equals."""

    disfavour: float
    number: int
    kernel: str


class History:
    """Ids of kernels with their fitness, in the order of birth; of a million it keeps `FITTEST` and `NEWEST`."""

    def __init__(self) -> None:
        self._number = 0
        self._fittest: list[_Place] = []
        self._newest: deque[_Place] = deque(maxlen=NEWEST)

    def add(self, kernel_id: str, fitness: float) -> None:
        """Take note of a kernel; each only once."""
        place = _Place(-fitness, self._number, kernel_id)
        self._number += 1
        self._newest.append(place)
        bisect.insort(self._fittest, place)
        del self._fittest[FITTEST:]

    def __len__(self) -> int:
        """How many kernels were added in all."""
        return self._number

    def ranked(self) -> Iterator[str]:
        """The fittest, the best first."""
        return (place.kernel for place in self._fittest)

    def in_order(self) -> list[str]:
        """Everything that is kept, in the order of birth."""
        kept = {place.number: place.kernel for place in (*self._fittest, *self._newest)}
        return [kept[number] for number in sorted(kept)]

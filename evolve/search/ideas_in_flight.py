"""The ideas that children of open generations carry out, so that no other of these children repeats one.

Models answer in any order. A child chooses its idea when all that were asked for before it (by generation, then by
island) have chosen theirs. So the choice does not depend on who answers first, and a resumed run chooses alike.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import Condition

from kbevolve.archive.records import Idea
from kbevolve.configs.errors import Unanswered

#: A child's place: its generation and its island.
Place = tuple[int, int]


@dataclass(slots=True)
class IdeasInFlight:
    """Thread-safe. Children are announced in the order of their places."""

    #: The ideas that were chosen.
    _chosen: dict[Place, Idea] = field(default_factory=dict)
    #: Children that have not chosen; with the error of one that could not.
    _open: dict[Place, BaseException | None] = field(default_factory=dict)
    _changed: Condition = field(default_factory=Condition)

    def expect(self, place: Place, idea: Idea | None) -> None:
        """Announce a child: its idea, or None for one that will choose."""
        with self._changed:
            if idea is None:
                self._open[place] = None
            else:
                self._chosen[place] = idea

    def choose(self, place: Place, choice: Callable[[tuple[Idea, ...]], Idea], *, closed: int) -> Idea:
        """Wait for all earlier children; then `choice` is called with their ideas.

        `closed` is the newest generation of which the child knows the results; its ideas are not in flight.

        Raises:
            Unanswered: an earlier child cannot choose, because its question is open or its proposer failed.
        """
        with self._changed:
            self._changed.wait_for(lambda: all(error or other >= place for other, error in self._open.items()))
            for other, error in self._open.items():
                if other < place:
                    raise Unanswered("g{}/i{} must choose its idea first".format(*other)) from error
            earlier = sorted(other for other in self._chosen if other < place and other[0] > closed)
            idea = choice(tuple(self._chosen[other] for other in earlier))
            self._chosen[place] = idea
            self._settle(place)
            return idea

    @contextmanager
    def being_written(self, place: Place) -> Iterator[None]:
        """While a proposer writes a child. Afterwards no other waits for it, even if it chose no idea."""
        try:
            yield
        except BaseException as error:
            with self._changed:
                if place in self._open:
                    self._open[place] = error
                self._changed.notify_all()
            raise
        with self._changed:
            self._settle(place)

    def forget(self, generation: int) -> None:
        """Forget the children of a generation, and of all before it."""
        with self._changed:
            for place in [place for place in self._chosen if place[0] <= generation]:
                del self._chosen[place]

    def _settle(self, place: Place) -> None:
        self._open.pop(place, None)
        self._changed.notify_all()

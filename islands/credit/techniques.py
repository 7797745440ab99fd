"""What is believed of each technique against each bottleneck, from the general to the particular.

A run has a hundred children for more than a hundred pairs of technique and bottleneck: too few for most pairs. So each
belief starts from a more general one. The order: the technique on other problems, the pair on other problems, the
technique in this run, the pair in this run, the pair on this island. A more general belief counts as a few children at
most, so that the particular can refute the general. (An island's children are in the run's tallies, too: a belief is
too sure by those few children.)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kbevolve.islands.credit.credit import FADING
from kbevolve.islands.credit.posterior import Belief, Tally

#: Children that a more general belief counts as, at most.
CARRIED = 4.0
#: A technique; or a technique and a bottleneck; or both and an island.
Key = tuple[str, ...]
_NO_TALLIES: Mapping[Key, Tally] = MappingProxyType({})
_NOTHING: Mapping[Key, tuple[int, Tally]] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Experience:
    """Tallies of all levels. Immutable: every child makes a new one, and a brief may keep an old one."""

    #: What other problems taught, of techniques and of pairs.
    elsewhere: Mapping[Key, Tally] = field(default_factory=lambda: _NO_TALLIES)
    #: Of this run, of techniques, of pairs, and of pairs on an island; with each, the number of its last child.
    here: Mapping[Key, tuple[int, Tally]] = field(default_factory=lambda: _NOTHING)
    #: Children so far.
    children: int = 0

    def with_child(self, technique: str, bottleneck: str, island: int, gain: float | None) -> "Experience":
        """After a child.

        Args:
            technique: of its idea.
            bottleneck: the class of what the idea is against; "" when unknown.
            island: of the child.
            gain: log of its speedup over its parent; None when it was not valid.
        """
        children = self.children + 1
        here = dict(self.here)
        keys: tuple[Key, ...] = ((technique,), (technique, bottleneck), (technique, bottleneck, str(island)))
        for key in keys:
            here[key] = children, self._now(key, children).with_child(gain)
        return Experience(elsewhere=self.elsewhere, here=here, children=children)

    def belief(self, technique: str, bottleneck: str, island: int | None = None) -> Belief:
        """What is believed of a technique against a bottleneck, on an island or in the whole run."""
        belief = Belief()
        for tally in self._levels(technique, bottleneck, island):
            if tally.children:
                belief = belief.at_most(CARRIED).after(tally)
        return belief

    def tally(self, technique: str, bottleneck: str | None = None) -> Tally:
        """What is remembered of a technique, or of it against one bottleneck, in this run."""
        return self._now((technique,) if bottleneck is None else (technique, bottleneck), self.children)

    def pairs(self) -> Iterator[tuple[str, str]]:
        """Techniques and bottlenecks that were tried in this run, in the order of their first child."""
        return ((key[0], key[1]) for key in self.here if len(key) == 2)

    def _levels(self, technique: str, bottleneck: str, island: int | None) -> Iterator[Tally]:
        general: tuple[Key, ...] = ((technique,), (technique, bottleneck))
        for key in general:
            yield self.elsewhere.get(key, Tally())
        here = general if island is None else (*general, (technique, bottleneck, str(island)))
        for key in here:
            yield self._now(key, self.children)

    def _now(self, key: Key, children: int) -> Tally:
        """A tally, faded since its last child."""
        at, tally = self.here.get(key, (children, Tally()))
        return tally.faded(FADING ** (children - at))

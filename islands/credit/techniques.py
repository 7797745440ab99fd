"""What is believed of each technique against each bottleneck, from the general to the particular.

A run has a hundred children for more than a hundred pairs of technique and bottleneck, so most pairs would never be
known by their own children alone. Each belief starts from the one above it: what other problems taught of the
technique, then of the pair; what this run taught of the technique, then of the pair; and last what the pair did on the
island itself. Whatever comes from above counts as a few children at most, so that the particular can refute the
general. (An island's children are in the tallies above it, too: that makes a belief those few children too sure.)
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from kbevolve.islands.credit.credit import FADING
from kbevolve.islands.credit.posterior import Belief, Tally

#: Children that what comes from above is worth at most.
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
    #: Of this run, of techniques, of pairs, and of pairs on an island; beside each the child at which it was last told.
    here: Mapping[Key, tuple[int, Tally]] = field(default_factory=lambda: _NOTHING)
    #: Children so far.
    children: int = 0

    def with_child(self, technique: str, bottleneck: str, island: int, gain: float | None) -> "Experience":
        """After a child.

        Args:
            technique: what its idea is filed under.
            bottleneck: the class of what the idea is against; "" when nobody said.
            island: where it was born.
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
        """A tally with what was forgotten since it was last told."""
        at, tally = self.here.get(key, (children, Tally()))
        return tally.faded(FADING ** (children - at))

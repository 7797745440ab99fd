"""The named ladders: what characterises each, and the drawing of its parts from its seed."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from random import Random

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import UsageError, nearest
from kbevolve.evolve.simulation.ladder import FailingRegion, Ladder, Need, Parameter, Technique
from kbevolve.evolve.simulation.landscape import ProgramFailure

#: Techniques by the names of the playbook. The first four make the niches.
TECHNIQUES = ("block-tiling", "vectorize", "tensor-cores", "fusion", "async-copy", "persistent", "work-split")
#: Log speedup of a program without any technique: half as fast as the reference.
NAIVE = -0.7
#: Parameters of each technique, and choices of each: with the rungs, thousands of millions of programs.
PARAMETERS = (1, 2)
CHOICES = (4, 5, 6)
#: Loss (log) of the worst choice of a parameter, from and to.
WEIGHT = (0.04, 0.16)
#: Share of the faults that a parameter can avoid.
AVOIDABLE = 0.7
#: What goes wrong in a planted fault, with weights.
CAUSES: Mapping[tuple[Verdict, str], float] = {
    (Verdict.BUILD_FAILED, "out of shared memory"): 0.3,
    (Verdict.BUILD_FAILED, "the compiler gave up"): 0.1,
    (Verdict.CRASHED, "illegal memory access"): 0.2,
    (Verdict.WRONG, "edges of the tile are wrong"): 0.2,
    (Verdict.WRONG, "differs between runs"): 0.1,
    (Verdict.TIMED_OUT, "hangs at a barrier"): 0.1,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Character:
    """What distinguishes one ladder from another."""

    seed: int
    #: Mean log gain of a technique's top rung.
    gain: float
    #: Loss (log) of the rungs between the first and the top one, which then brings all at once; 0 for even steps.
    dip: float
    #: Share of the techniques whose upper rungs need another technique.
    needy: float
    #: Pairs of techniques that interact, and the standard deviation of each pair of rungs (log).
    pairs: int
    rugged: float
    #: Planted regions of failures.
    faults: int
    #: How far fame is off, standard deviation (log).
    rumour: float
    #: Whether the first technique is a trap: famous and an easy gain, but it spoils the three that bring most.
    trap: bool = False


LADDERS: Mapping[str, Character] = {
    # Smooth: even steps, mild interactions; what is said of techniques is about right.
    "ladder-a": Character(seed=3, gain=0.32, dip=0.0, needy=0.2, pairs=5, rugged=0.02, faults=4, rumour=0.08),
    # Rugged: every second step depends on the company it is in, and more of the space fails.
    "ladder-b": Character(seed=30, gain=0.30, dip=0.03, needy=0.5, pairs=14, rugged=0.12, faults=8, rumour=0.15),
    # Deceptive: what helps at first is an obstacle later, and what helps most begins with a loss.
    "ladder-c": Character(
        seed=22, gain=0.42, dip=0.06, needy=0.4, pairs=6, rugged=0.04, faults=6, rumour=0.2, trap=True
    ),
}
#: The trap's rungs, its fame, and what it costs each technique that it spoils (log).
_TRAP_GAINS = (0.0, 0.35, 0.5, 0.6)
_TRAP_FAME = 0.8
_SPOILT = 0.65


@cache
def find_ladder(name: str) -> Ladder:
    """A named ladder.

    Raises:
        UsageError: there is none of this name.
    """
    if name not in LADDERS:
        raise UsageError(f"no ladder {name!r}. {nearest(name, LADDERS)}")
    return draw_ladder(name, LADDERS[name])


def draw_ladder(name: str, character: Character) -> Ladder:
    """The ladder of a character; its seed decides every number."""
    rng = Random(f"ladder/{character.seed}")
    techniques = _techniques(character, rng)
    parameters = tuple(
        _parameter(position, len(technique.gains), rng)
        for position, technique in enumerate(techniques)
        for _ in range(rng.choice(PARAMETERS))
    )
    return Ladder(
        name=name,
        base=NAIVE,
        techniques=techniques,
        parameters=parameters,
        pairs=_pairs(character, techniques, rng),
        faults=tuple(_fault(techniques, parameters, rng) for _ in range(character.faults)),
    )


def _techniques(character: Character, rng: Random) -> tuple[Technique, ...]:
    # A technique needs only such as come earlier in this order, so that no two wait for each other.
    order = rng.sample(range(len(TECHNIQUES)), len(TECHNIQUES))
    drawn: dict[int, Technique] = {}
    for place, position in enumerate(order):
        name = TECHNIQUES[position]
        if character.trap and position == 0:
            drawn[position] = Technique(name=name, gains=_TRAP_GAINS, need=None, fame=_TRAP_FAME)
            continue
        gains = _gains(character, rng)
        # What is spoilt by the trap must not need it.
        earlier = [other for other in order[:place] if not (character.trap and other == 0)]
        need = None
        if earlier and rng.random() < character.needy:
            need = Need(rung=rng.randrange(1, len(gains)), other=rng.choice(earlier), reached=rng.choice((1, 2)))
        fame = max(0.0, gains[-1] + rng.gauss(0, character.rumour))
        drawn[position] = Technique(name=name, gains=gains, need=need, fame=fame)
    return tuple(drawn[position] for position in range(len(TECHNIQUES)))


def _gains(character: Character, rng: Random) -> tuple[float, ...]:
    """Cumulative gains: even steps up to the top rung's, or losses until the top rung pays."""
    rungs = rng.choice((3, 4, 4, 5))
    top = character.gain * rng.uniform(0.5, 1.5)
    if character.dip:
        between = [-character.dip * rng.uniform(0.0, 2.0) for _ in range(rungs - 2)]
    else:
        between = [top * rung / (rungs - 1) for rung in range(1, rungs - 1)]
    return (0.0, *between, top)


def _parameter(technique: int, rungs: int, rng: Random) -> Parameter:
    choices = rng.choice(CHOICES)
    best = rng.randrange(choices)
    # A higher rung mostly wants a neighbouring value of the rung below.
    drift = [best]
    for _ in range(rungs - 1):
        drift.append(min(choices - 1, max(0, drift[-1] + rng.choice((-1, 0, 1)))))
    return Parameter(technique=technique, choices=choices, best=tuple(drift), weight=rng.uniform(*WEIGHT))


def _pairs(
    character: Character, techniques: Sequence[Technique], rng: Random
) -> dict[tuple[int, int], tuple[tuple[float, ...], ...]]:
    """Tables of interactions. Rung 0 interacts with nothing: a technique that is not used changes nothing."""
    everyone = [(first, second) for first in range(len(techniques)) for second in range(first + 1, len(techniques))]
    tables = {pair: _table(techniques, pair, character.rugged, rng) for pair in rng.sample(everyone, character.pairs)}
    if character.trap:
        greatest = sorted(range(1, len(techniques)), key=lambda at: techniques[at].gains[-1], reverse=True)[:3]
        for other in sorted(greatest):
            table = tables.get((0, other)) or _table(techniques, (0, other), 0.0, rng)
            tables[0, other] = tuple(
                tuple(value - (_SPOILT if first and second else 0.0) for second, value in enumerate(row))
                for first, row in enumerate(table)
            )
    return tables


def _table(
    techniques: Sequence[Technique], pair: tuple[int, int], deviation: float, rng: Random
) -> tuple[tuple[float, ...], ...]:
    rows, columns = (len(techniques[position].gains) for position in pair)
    return tuple(
        tuple(rng.gauss(0, deviation) if first and second else 0.0 for second in range(columns))
        for first in range(rows)
    )


def _fault(techniques: Sequence[Technique], parameters: Sequence[Parameter], rng: Random) -> FailingRegion:
    """A region that begins with two techniques in use; a parameter of one of them avoids most of these."""
    first, second = rng.sample(range(len(techniques)), 2)
    # The top rungs of two techniques at least: a fault that no parameter avoids must not close half the space.
    avoidable = rng.random() < AVOIDABLE
    rungs = {
        position: rng.randrange(1, len(techniques[position].gains) - 1)
        if avoidable
        else len(techniques[position].gains) - 1
        for position in (first, second)
    }
    verdict, cause = rng.choices(list(CAUSES), list(CAUSES.values()))[0]
    signature = f"{verdict.name}: {cause} ({techniques[first].name} with {techniques[second].name})"
    bad = None
    if avoidable:
        position = rng.choice([at for at, one in enumerate(parameters) if one.technique in (first, second)])
        half = parameters[position].choices // 2
        low, high = rng.choice(((0, half - 1), (parameters[position].choices - half, parameters[position].choices - 1)))
        bad = (position, low, high)
    return FailingRegion(failure=ProgramFailure(verdict=verdict, signature=signature), rungs=rungs, bad=bad)

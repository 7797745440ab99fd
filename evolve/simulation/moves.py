"""How one program becomes another: along a technique, by other parameters, a crossing, a rewrite, a way out of a fault.

Pure functions of a landscape, programs and a `Random`. Each keeps to programs that exist; one that finds no other in
`TRIES` draws returns the program it was given, which is then a duplicate, as with a model that has nothing to add.
"""

from collections.abc import Callable
from functools import lru_cache
from random import Random

from kbevolve.evolve.simulation.landscape import Gene, Landscape, Program, families

#: Draws before a move gives up. In files of real spaces every other configuration may be missing.
TRIES = 40
#: Share of rung changes that go one rung up, and of parameter changes that go to a neighbouring value: those who
#: optimise by hand do the next thing.
UP = 0.7
NEAR = 0.6
#: Share of the families that a rewrite takes over from its parent.
KEPT = 0.6


def along(landscape: Landscape, program: Program, family: str, edits: int, rng: Random) -> Program:
    """`edits` genes changed: one of the family, then others of it, then any."""
    own = families(landscape.genes)[family]

    def draw() -> Program:
        first = own[0] if landscape.genes[own[0]].rung and rng.random() < UP else rng.choice(own)
        rest = [position for position in own if position != first]
        rng.shuffle(rest)
        others = [position for position in range(len(program)) if position not in own]
        rng.shuffle(others)
        return _stepped(landscape.genes, program, (first, *rest, *others)[:edits], rng)

    return _other(landscape, program, draw)


def retuned(landscape: Landscape, program: Program, edits: int, rng: Random) -> Program:
    """`edits` parameters changed, no technique added or dropped."""
    positions = [position for position, gene in enumerate(landscape.genes) if not gene.rung and gene.choices > 1]
    count = min(edits, len(positions))
    return _other(landscape, program, lambda: _stepped(landscape.genes, program, rng.sample(positions, count), rng))


def crossed(landscape: Landscape, first: Program, second: Program, rng: Random) -> Program:
    """Each family whole from one of two programs; neither of the two where there is another."""
    groups = list(families(landscape.genes).values())

    def draw() -> Program:
        child = list(first)
        for positions in groups:
            if rng.random() < 0.5:
                for position in positions:
                    child[position] = second[position]
        return tuple(child) if tuple(child) != second else first

    return _other(landscape, first, draw)


def rewritten(landscape: Landscape, program: Program, family: str, rng: Random) -> Program:
    """A whole new program around one technique: some families as in the parent, the others at random."""

    def draw() -> Program:
        child = list(program)
        for name, positions in families(landscape.genes).items():
            if name != family and rng.random() >= KEPT:
                for position in positions:
                    child[position] = rng.randrange(landscape.genes[position].choices)
        own = families(landscape.genes)[family]
        return _stepped(landscape.genes, tuple(child), own[:1], rng)

    return _other(landscape, program, draw)


def taken_over(landscape: Landscape, program: Program, donor: Program, family: str) -> Program:
    """The program with one family as another program has it; itself when there is no such program."""
    child = list(program)
    for position in families(landscape.genes)[family]:
        child[position] = donor[position]
    return tuple(child) if landscape.exists(tuple(child)) else program


def ways_out(landscape: Landscape, program: Program, rng: Random) -> Program | None:
    """A valid program one gene away from a failing one; None when all of these fail too."""
    positions = list(range(len(program)))
    rng.shuffle(positions)
    for position in positions:
        choices = [choice for choice in range(landscape.genes[position].choices) if choice != program[position]]
        rng.shuffle(choices)
        for choice in choices:
            near = _with(program, position, choice)
            if landscape.exists(near) and landscape.failure(near) is None:
                return near
    return None


@lru_cache(maxsize=4096)
def potential(landscape: Landscape, program: Program, family: str) -> float:
    """What a technique can still bring to this program: the largest gain by one gene of the family, log, at least 0.

    It depends on what the program has already; searches never see it.
    """
    now = landscape.true_value(program)
    if now is None:
        return 0.0
    best = now
    for position in families(landscape.genes)[family]:
        for choice in range(landscape.genes[position].choices):
            near = _with(program, position, choice)
            value = landscape.true_value(near) if landscape.exists(near) else None
            if value is not None:
                best = max(best, value)
    return best - now


def _other(landscape: Landscape, program: Program, draw: Callable[[], Program]) -> Program:
    for _ in range(TRIES):
        child = draw()
        if child != program and landscape.exists(child):
            return child
    return program


def _stepped(genes: tuple[Gene, ...], program: Program, positions: tuple[int, ...] | list[int], rng: Random) -> Program:
    child = list(program)
    for position in positions:
        child[position] = _step(genes[position], program[position], rng)
    return tuple(child)


def _step(gene: Gene, now: int, rng: Random) -> int:
    """Another choice of a gene, mostly a near one; the same only when it has no other."""
    if gene.rung and now + 1 < gene.choices and rng.random() < UP:
        return now + 1
    near = [choice for choice in (now - 1, now + 1) if 0 <= choice < gene.choices]
    if near and not gene.rung and rng.random() < NEAR:
        return rng.choice(near)
    others = [choice for choice in range(gene.choices) if choice != now]
    return rng.choice(others) if others else now


def _with(program: Program, position: int, choice: int) -> Program:
    return (*program[:position], choice, *program[position + 1 :])

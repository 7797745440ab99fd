"""Tuning without a model, as in `proposers.tuning.proposer`: a draw from what was learnt of every value chooses."""

import math
from collections.abc import Mapping
from random import Random

from kbevolve.evolve.proposers.tuning.proposer import CANDIDATES, CHANGES
from kbevolve.evolve.proposers.tuning.surrogate import Surrogate
from kbevolve.evolve.simulation.landscape import Landscape, Program
from kbevolve.evolve.simulation.moves import retuned


def tuned(landscape: Landscape, parent: Program, scores: Mapping[Program, float | None], rng: Random) -> Program | None:
    """A program that differs from its parent in values of parameters only; None when all that were drawn are known.

    Args:
        landscape: where.
        parent: whose techniques it has.
        scores: all programs that were tried, with their log speedups; None for failures.
        rng: the only source of randomness.
    """
    near = {retuned(landscape, parent, rng.choice(CHANGES), rng) for _ in range(CANDIDATES)}
    fresh = sorted(near - scores.keys() - {parent})
    if not fresh:
        return None
    rungs = [at for at, gene in enumerate(landscape.genes) if gene.rung]
    parameters = [(at, gene.name) for at, gene in enumerate(landscape.genes) if not gene.rung]

    def values(program: Program) -> dict[str, str]:
        return {name: str(program[at]) for at, name in parameters}

    relatives = {
        program: score
        for program, score in scores.items()
        if score is not None and all(program[at] == parent[at] for at in rungs)
    }
    surrogate = Surrogate(
        {gene.name: [str(choice) for choice in range(gene.choices)] for gene in landscape.genes if not gene.rung},
        [values(program) for program in relatives],
        [math.exp(score) for score in relatives.values()],
        rng,
    )
    return max(fresh, key=lambda program: surrogate.score(values(program)))

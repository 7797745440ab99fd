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
    relatives = {
        program: score
        for program, score in scores.items()
        if score is not None and _techniques(landscape, program) == _techniques(landscape, parent)
    }
    surrogate = Surrogate(
        {gene.name: [str(choice) for choice in range(gene.choices)] for gene in landscape.genes if not gene.rung},
        [_values(landscape, program) for program in relatives],
        [math.exp(score) for score in relatives.values()],
        rng,
    )
    return max(fresh, key=lambda program: surrogate.score(_values(landscape, program)))


def _techniques(landscape: Landscape, program: Program) -> Program:
    return tuple(choice for gene, choice in zip(landscape.genes, program, strict=True) if gene.rung)


def _values(landscape: Landscape, program: Program) -> dict[str, str]:
    return {gene.name: str(choice) for gene, choice in zip(landscape.genes, program, strict=True) if not gene.rung}

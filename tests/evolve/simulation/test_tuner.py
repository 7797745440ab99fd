from random import Random

from kbevolve.evolve.simulation.ladders import find_ladder
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.simulation.searchers.ours import tuned

LADDER = find_ladder("ladder-a")
PARENT = LADDER.start()[0]
#: A parameter with several values.
PLACE = next(at for at, gene in enumerate(LADDER.genes) if not gene.rung and gene.choices > 2)


def with_value(value: int) -> Program:
    return (*PARENT[:PLACE], value, *PARENT[PLACE + 1 :])


def children(scores: dict[Program, float | None], count: int) -> list[Program | None]:
    return [tuned(LADDER, PARENT, scores, Random(seed)) for seed in range(count)]


def test_techniques_stay_and_what_was_tried_is_not_tried_again() -> None:
    scores: dict[Program, float | None] = {PARENT: 0.0}
    for seed in range(60):
        child = tuned(LADDER, PARENT, scores, Random(seed))
        assert child is not None
        assert child not in scores
        assert all(a == b for a, b, gene in zip(child, PARENT, LADDER.genes, strict=True) if gene.rung), (
            "tuning changes values alone"
        )
        scores[child] = None


def test_a_value_that_paid_is_tried_more_often() -> None:
    better = (PARENT[PLACE] + 1) % LADDER.genes[PLACE].choices

    def share(gain: float) -> float:
        found = children({PARENT: 0.0, with_value(better): gain}, 150)
        return sum(child is not None and child[PLACE] == better for child in found) / 150

    assert share(0.6) > 2 * share(-0.6)

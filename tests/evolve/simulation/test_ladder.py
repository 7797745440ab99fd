"""The named ladders: exact, hard enough, and of different character."""

import itertools
import math
from random import Random

import pytest

from kbevolve.archive.records import Verdict
from kbevolve.configs.errors import UsageError
from kbevolve.evolve.simulation.ladder import FailingRegion, Ladder, Need, Parameter, Technique
from kbevolve.evolve.simulation.ladders import LADDERS, draw_ladder, find_ladder
from kbevolve.evolve.simulation.landscape import Program, ProgramFailure

FAULT = ProgramFailure(verdict=Verdict.CRASHED, signature="CRASHED: illegal memory access")


def little_ladder() -> Ladder:
    """Small enough to be enumerated: 2 techniques of 3 rungs, 3 parameters, needs, a pair and both kinds of fault."""
    return Ladder(
        name="little",
        base=-0.5,
        techniques=[
            Technique(name="tiling", gains=(0.0, 0.1, 0.3), need=None, fame=0.2),
            Technique(name="fusion", gains=(0.0, -0.05, 0.6), need=Need(rung=2, other=0, reached=1), fame=0.2),
        ],
        parameters=[
            Parameter(technique=0, choices=4, best=(0, 1, 2), weight=0.2),
            Parameter(technique=1, choices=5, best=(0, 3, 4), weight=0.1),
            Parameter(technique=1, choices=4, best=(0, 0, 0), weight=0.05),
        ],
        pairs={(0, 1): ((0.0, 0.0, 0.0), (0.0, 0.02, -0.2), (0.0, 0.05, 0.1))},
        faults=[
            FailingRegion(failure=FAULT, rungs={0: 2, 1: 2}, bad=(1, 3, 4)),
            FailingRegion(failure=FAULT, rungs={0: 2, 1: 1}, bad=(0, 2, 2)),
        ],
    )


def everything(ladder: Ladder) -> list[Program]:
    return list(itertools.product(*(range(gene.choices) for gene in ladder.genes)))


def climbed(ladder: Ladder, program: Program) -> Program:
    """The end of the steepest climb by single genes."""

    def worth(program: Program) -> float:
        value = ladder.true_value(program)
        return -math.inf if value is None else value

    while True:
        near = [
            (*program[:at], choice, *program[at + 1 :])
            for at, gene in enumerate(ladder.genes)
            for choice in range(gene.choices)
        ]
        best = max(near, key=worth)
        if worth(best) <= worth(program):
            return program
        program = best


def share_of_best(ladder: Ladder, program: Program) -> float:
    value = ladder.true_value(program)
    return 0.0 if value is None else math.exp(value - ladder.optimum)


def test_the_optimum_is_what_enumeration_finds() -> None:
    ladder = little_ladder()
    values = [value for program in everything(ladder) if (value := ladder.true_value(program)) is not None]
    assert len(values) < len(everything(ladder))
    assert ladder.optimum == pytest.approx(max(values), abs=1e-12)


def test_the_optimum_keeps_clear_of_faults_that_nothing_avoids() -> None:
    ladder = little_ladder()
    barred = FailingRegion(failure=FAULT, rungs={1: 2})
    other = Ladder(
        name="barred",
        base=ladder.base,
        techniques=ladder.techniques,
        parameters=ladder.parameters,
        pairs=ladder.pairs,
        faults=[*ladder.faults, barred],
    )
    values = [value for program in everything(other) if (value := other.true_value(program)) is not None]
    assert other.optimum == pytest.approx(max(values), abs=1e-12)
    assert other.optimum < ladder.optimum


def test_a_rung_pays_only_beside_what_it_needs() -> None:
    ladder = little_ladder()
    with_need, without = ladder.true_value((1, 2, 1, 4, 0)), ladder.true_value((0, 2, 0, 4, 0))
    assert with_need == pytest.approx(-0.5 + 0.1 + 0.6 - 0.2)
    assert without == pytest.approx(-0.5 - 0.05 - 0.12)


def test_a_parameter_matters_only_while_its_technique_is_in_use() -> None:
    ladder = little_ladder()
    assert ladder.true_value((0, 0, 0, 0, 0)) == ladder.true_value((0, 0, 3, 4, 3)) == -0.5
    near, far = ladder.true_value((1, 0, 1, 0, 0)), ladder.true_value((1, 0, 3, 0, 0))
    assert near is not None
    assert far is not None
    assert near > far


def test_a_name_decides_everything_and_another_seed_gives_another_ladder() -> None:
    found, again = find_ladder("ladder-b"), draw_ladder("ladder-b", LADDERS["ladder-b"])
    assert found.optimum == again.optimum
    assert found.faults == again.faults
    assert len({find_ladder(name).optimum for name in LADDERS}) == len(LADDERS)


def test_an_unknown_ladder_is_refused_with_the_nearest() -> None:
    with pytest.raises(UsageError, match=r"no ladder 'ladder-d'. Nearest: .*ladder-a"):
        find_ladder("ladder-d")


@pytest.mark.parametrize("name", LADDERS)
def test_300_random_programs_do_not_find_the_optimum(name: str) -> None:
    ladder, rng = find_ladder(name), Random(1)
    drawn = [tuple(rng.randrange(gene.choices) for gene in ladder.genes) for _ in range(300)]
    assert max(share_of_best(ladder, program) for program in drawn) < 0.75
    assert math.prod(gene.choices for gene in ladder.genes) > 1e9


@pytest.mark.parametrize("name", LADDERS)
def test_failures_fill_regions_and_say_the_same_there(name: str) -> None:
    ladder, rng = find_ladder(name), Random(2)
    drawn = [tuple(rng.randrange(gene.choices) for gene in ladder.genes) for _ in range(600)]
    failures = [failure for program in drawn if (failure := ladder.failure(program))]
    assert 0.25 < len(failures) / len(drawn) < 0.75
    assert 3 <= len({failure.signature for failure in failures}) <= LADDERS[name].faults


def test_ladders_are_smooth_rugged_and_deceptive() -> None:
    """By the steepest climb: a leads to the top, b to many different tops, c from the start into the trap."""
    smooth, rugged, deceptive = map(find_ladder, LADDERS)
    assert share_of_best(smooth, climbed(smooth, smooth.start()[0])) > 0.9
    rng = Random(3)
    tops = {}
    for ladder in (smooth, rugged):
        drawn = [tuple(rng.randrange(gene.choices) for gene in ladder.genes) for _ in range(40)]
        valid = [program for program in drawn if ladder.true_value(program) is not None]
        tops[ladder.name] = len({climbed(ladder, program)[: len(ladder.techniques)] for program in valid[:8]})
    assert tops["ladder-a"] < tops["ladder-b"]
    trapped = climbed(deceptive, deceptive.start()[0])
    assert trapped[0] > 0
    assert share_of_best(deceptive, trapped) < 0.6
    assert deceptive.fame(deceptive.genes[0].family) == max(one.fame for one in deceptive.techniques)

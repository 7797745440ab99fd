"""How a brief is made, from what the population knows."""

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from kbevolve.archive.records import Kernel, Operator
from kbevolve.configs.settings import Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.tuning.tunables import with_values
from kbevolve.evolve.state.transfer import TransferredKernel, TransferredKnowledge
from kbevolve.evolve.strategies import strategy_of
from kbevolve.evolve.strategies.brief_maker import TRANSFER_UNTIL, BriefMaker
from kbevolve.evolve.strategies.evolve import RANKS, RIVALS, RIVALS_FROM, RIVALS_UNTIL, selection_at
from kbevolve.islands.selection import FAR_AHEAD, NicheSelection, RivalSelection
from kbevolve.islands.stagnation import Stage
from tests.evolve.doubles import DEVICE, context_of, settings
from tests.evolve.state.test_population import Story

A_DOUBLE = Device(type="cpu", index=0, fingerprint=DEVICE, description="a double")
NOTHING = TransferredKnowledge()
WRITING, OFFLINE = (Operator.MUTATE, Operator.REWRITE, Operator.CROSS), (Operator.TUNE,)


def searched(
    story: Story,
    chosen: Settings,
    *,
    times: int = 300,
    operators: Collection[Operator] = WRITING,
    window: int = 0,
    transfer: TransferredKnowledge = NOTHING,
) -> list[Brief]:
    """Briefs of so many generations, all on what the population knows now."""
    context = replace(context_of(story.archive, story.run, A_DOUBLE, chosen), transfer=transfer)
    briefs = BriefMaker(context=context, population=story.population, operators=frozenset(operators), window=window)
    made = [briefs.brief(generation=generation, island=0, known=lambda _: False) for generation in range(1, times + 1)]
    return [brief for brief in made if brief is not None]


def populated(*speedups: float) -> Story:
    story = Story()
    for speedup in speedups:
        text = f"UNROLL = {story.number}  # tune: 1, 2\n\n\nclass ModelNew: number = {story.number}\n"
        story.create(speedup, generation=0, operator=Operator.SEED, text=text)
    return story


def firsts(briefs: list[Brief]) -> Counter[float]:
    return Counter(brief.parents[0].fitness for brief in briefs)


def test_ranks_are_steep_where_a_model_writes_and_flat_where_tunables_change() -> None:
    story, chosen = populated(3.0, 2.0, 1.0), settings(islands=1)
    assert firsts(searched(story, chosen))[3.0] > 270
    assert firsts(searched(story, chosen, operators=OFFLINE))[3.0] < 240
    assert firsts(searched(story, settings(islands=1, selection_pressure=0.0)))[3.0] < 150


def test_a_kernel_whose_settings_were_all_tried_has_no_more_children() -> None:
    """The best kernel may have two settings, while others have many: its children would end the run."""
    story, chosen = populated(3.0, 2.0, 1.0), settings(islands=1)
    context = context_of(story.archive, story.run, A_DOUBLE, chosen)
    briefs = BriefMaker(context=context, population=story.population, operators=frozenset(OFFLINE))
    best = next(one for one in story.population.island(0).members if one.fitness == 3.0)
    family = {Kernel.from_source(with_values(best.kernel.source, {"UNROLL": value})).id for value in "12"}

    def made(known: set[str]) -> Counter[float]:
        found = [briefs.brief(generation=one, island=0, known=known.__contains__) for one in range(1, 101)]
        return firsts([brief for brief in found if brief is not None])

    everyone = {one.kernel.id for one in story.population.island(0).members}
    assert made(everyone)[3.0] > 30
    tried = made(everyone | family)
    assert tried[3.0] == 0
    assert tried.total() == 100


def test_a_run_without_improvements_breeds_flatly() -> None:
    story = populated(3.0, 2.0, 1.0)
    story.population.end_generation()
    for _ in range(25):
        story.create(0.5)
    story.population.end_generation()
    assert firsts(searched(story, settings(islands=1), window=100))[3.0] == 300
    assert firsts(searched(story, settings(islands=1), window=25))[3.0] < 270


def test_what_an_operator_has_brought_decides_how_often_it_is_used() -> None:
    story = populated(1.0, 2.0)
    (parent,) = [member for member in story.population.island(0).members if member.fitness == 1.0]
    for number in range(1, 46):
        operator = (Operator.CROSS, Operator.MUTATE, Operator.REWRITE)[number % 3]
        speedup = 1.4 if operator is Operator.CROSS else None
        story.create(speedup, operator=operator, generation=number, slot=0, parents=(parent.kernel.id,))
    by_credit = Counter(brief.operator for brief in searched(story, settings(islands=1, operator_choice="credit")))
    by_shares = Counter(brief.operator for brief in searched(story, settings(islands=1)))
    assert by_credit[Operator.CROSS] > 2 * by_shares[Operator.CROSS] > 0
    assert set(by_credit) == set(WRITING)


def test_a_kernel_of_a_similar_problem_is_for_some_of_the_first_children() -> None:
    story = populated(1.0)
    transferred = TransferredKernel(problem="L1/other", kernel="k", speedup=2.0, source="class ModelNew: ...")
    transfer = TransferredKnowledge(kernels=(transferred,))
    shown = [brief.learnt.transferred_kernel for brief in searched(story, settings(islands=1), transfer=transfer)]
    assert 110 < shown.count(transferred) < 190
    for _ in range(TRANSFER_UNTIL):
        story.create(0.5)
    assert not any(
        brief.learnt.transferred_kernel for brief in searched(story, settings(islands=1), transfer=transfer, times=40)
    )


@pytest.mark.parametrize(
    ("lead", "island", "backend", "expected"),
    [
        # Of six islands on a GPU two write Triton, two CUDA C++, and two are free.
        (1.1 * FAR_AHEAD, 3, "triton", True),
        (0.9 * FAR_AHEAD, 3, "triton", False),
        (1.1 * FAR_AHEAD, 3, "cuda", False),
        (1.1 * FAR_AHEAD, 1, "triton", False),
        (1.1 * FAR_AHEAD, 1, "cuda", True),
        (1.1 * FAR_AHEAD, 2, "cuda", True),
        (1.1 * FAR_AHEAD, 0, "triton", False),  # its own island
    ],
)
def test_a_champion_far_ahead_is_shown_to_islands_of_its_language(
    lead: float, island: int, backend: str, expected: bool
) -> None:
    story = Story(islands=6)
    start = story.create(1.0, generation=0, operator=Operator.SEED, text="class ModelNew: start = 1\n")
    for other in range(1, 6):
        story.population.enter(other, start.id)
    story.population.end_generation()
    words = {"triton": "import triton\n\n\n@triton.jit\ndef k(x): ...\n", "cuda": 'SOURCE = "__global__ void k();"\n'}
    champion = story.create(lead, generation=1, text=f"{words[backend]}\n\nclass ModelNew: ...\n")
    assert champion.backend.value == backend
    story.population.end_generation()
    context = context_of(story.archive, story.run, replace(A_DOUBLE, type="cuda"), settings(islands=6))
    similar = TransferredKernel(problem="L1/other", kernel="k", speedup=2.0, source="class ModelNew: ...")
    context = replace(context, transfer=TransferredKnowledge(kernels=(similar,)))
    briefs = BriefMaker(context=context, population=story.population, operators=frozenset(WRITING))

    def made(generation: int) -> list[Brief]:
        found = [briefs.brief(generation=one, island=island, known=lambda _: False) for one in range(generation, 20)]
        return [brief for brief in found if brief is not None]

    for brief in made(2):
        assert [member.kernel for member in brief.inspirations] == ([champion] if expected else [])
    instead = [brief.learnt.transferred_kernel for brief in made(2)]
    assert (similar in instead) is not expected, "a kernel of another problem would be shown instead"
    story.population.end_generation()
    assert not any(brief.inspirations for brief in made(3)), "once"


def test_rivals_breed_only_in_a_run_that_is_stuck() -> None:
    assert selection_at(Stage.SEARCHING, RANKS, stalled=RIVALS_FROM) == RANKS
    at = (20, 30, 40, RIVALS_UNTIL - 1, RIVALS_UNTIL, 400)
    shares = [getattr(selection_at(Stage.SEARCHING, RANKS, stalled=stalled), "share", 0.0) for stalled in at]
    assert shares == [0.0, RIVALS / 2, RIVALS, RIVALS, 0.0, 0.0]
    late = selection_at(Stage.BACKTRACKING, RANKS, stalled=RIVALS_UNTIL - 1)
    assert isinstance(late, RivalSelection)
    assert isinstance(late.otherwise, NicheSelection)


@pytest.mark.parametrize(
    ("named", "languages"),
    [
        ({}, ["triton", "cuda", None, None]),
        ({"backend": "cute"}, ["cute"] * 4),
        ({"island_backends": ("triton", "tilelang", "cuda")}, ["triton", "tilelang", "cuda", "triton"]),
    ],
)
def test_islands_write_the_languages_that_the_settings_name(named: dict[str, Any], languages: list[str | None]) -> None:
    story = Story(islands=4)
    start = story.create(1.0, generation=0, operator=Operator.SEED, text="class ModelNew: start = 1\n")
    for other in range(1, 4):
        story.population.enter(other, start.id)
    story.population.end_generation()
    context = context_of(story.archive, story.run, replace(A_DOUBLE, type="cuda"), settings(islands=4, **named))
    briefs = BriefMaker(context=context, population=story.population, operators=frozenset(WRITING))
    found = [briefs.brief(generation=1, island=island, known=lambda _: False) for island in range(4)]
    assert [brief and brief.island.policy.backend for brief in found] == languages


def test_a_baseline_writes_the_language_that_the_settings_name() -> None:
    story = Story(islands=2)
    start = story.create(1.0, generation=0, operator=Operator.SEED, text="class ModelNew: start = 1\n")
    story.population.enter(1, start.id)
    story.population.end_generation()
    chosen = settings(islands=2, strategy="best-of-n", island_backends=("cute", "triton"))
    context = context_of(story.archive, story.run, replace(A_DOUBLE, type="cuda"), chosen)
    briefs = BriefMaker(
        context=context,
        population=story.population,
        operators=frozenset(WRITING),
        strategy=strategy_of(chosen.search),
    )
    found = [briefs.brief(generation=1, island=island, known=lambda _: False) for island in range(2)]
    assert [brief and brief.island.policy.backend for brief in found] == ["cute", "triton"]

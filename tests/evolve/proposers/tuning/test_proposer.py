"""The proposer without a model: always new, always legal, and better than drawing at random."""

import math
from random import Random

from kbevolve.archive.records import BirthState, Kernel, Operator
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.proposers.tuning.surrogate import Surrogate
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of
from kbevolve.islands.island import Member
from tests.evolve.doubles import KnownEvaluator, brief_of, kernel, problem, speed_of


def member(tuned: Kernel) -> Member:
    return Member(kernel=tuned, evaluation=KnownEvaluator().evaluate(problem(), tuned), niche="m0c0d0l0")


def brief(
    *parents: Kernel, seed: int = 0, history: tuple[Kernel, ...] = (), operator: Operator = Operator.TUNE
) -> Brief:
    seen = {old.id for old in (*parents, *history)}
    return brief_of(
        operator, *map(member, parents), seed=seed, history=tuple(map(member, history)), known=seen.__contains__
    )


def test_a_child_is_new_legal_and_says_what_changed() -> None:
    for seed in range(50):
        asked = brief(kernel(), seed=seed)
        proposal = TunablesProposer().propose(asked)
        assert proposal.kernel is not None
        assert not asked.known(proposal.kernel.id)
        changed = [
            (old, new)
            for old, new in zip(declared(asked.parents[0].kernel.source), declared(proposal.kernel.source), strict=True)
            if old.value != new.value
        ]
        assert 1 <= len(changed) <= 3
        assert proposal.note == ", ".join(f"{old.name} {old.value} → {new.value}" for old, new in changed)
        assert all(new.value in old.choices for old, new in changed)


def test_the_same_random_numbers_make_the_same_child() -> None:
    children = {TunablesProposer().propose(brief(kernel(), seed=3)).note for _ in range(5)}
    assert len(children) == 1


def test_crossing_mixes_two_parents_of_one_skeleton() -> None:
    first, second = kernel(UNROLL=8), kernel(TILE=32, PACK=1)
    proposal = TunablesProposer().propose(brief(first, second, operator=Operator.CROSS))
    assert proposal.kernel is not None
    assert proposal.parents == (first.id, second.id)


def test_every_setting_is_found_before_the_space_is_exhausted() -> None:
    everything = {kernel().id}
    history = [kernel()]
    for step in range(200):
        proposal = TunablesProposer().propose(brief(kernel(), seed=step, history=tuple(history)))
        if proposal.kernel is None:
            assert proposal.state is BirthState.EXHAUSTED
            break
        everything.add(proposal.kernel.id)
        history = [*history, proposal.kernel]
    assert len(everything) == 4 * 4 * 2 * 2


def test_without_tunables_there_is_nothing_to_propose() -> None:
    bare = Kernel.from_source("class ModelNew: ...\n")
    assert TunablesProposer().propose(brief(bare)).state is BirthState.EXHAUSTED


def test_the_surrogate_learns_what_values_are_worth() -> None:
    choices = {tunable.name: tunable.choices for tunable in declared(kernel().source)}
    measured = [kernel(UNROLL=unroll, TILE=tile) for unroll in (1, 2, 8) for tile in (8, 32, 64)]
    settings = [values_of(known.source) for known in measured]
    speeds = [speed_of(setting) for setting in settings]
    scores = [
        Surrogate(choices, settings, speeds, Random(seed)).score(values_of(kernel(UNROLL=8, TILE=32).source))
        - Surrogate(choices, settings, speeds, Random(seed)).score(values_of(kernel(UNROLL=1, TILE=8).source))
        for seed in range(40)
    ]
    true = math.log(speed_of({"UNROLL": "8", "TILE": "32"}) / speed_of({"UNROLL": "1", "TILE": "8"}))
    assert abs(sum(scores) / len(scores) - true) < 0.25
    assert min(scores) < max(scores), "every draw is the same, so nothing is explored"

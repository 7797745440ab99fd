"""The proposer without a model: always new, always legal, and better than drawing at random."""

import pytest

from kbevolve.archive.records import BirthState, Kernel, Operator
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer, has_untried
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of, with_values
from kbevolve.islands.island import Member
from tests.evolve.doubles import KnownEvaluator, brief_of, kernel, problem


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
        assert changed
        assert proposal.note == ", ".join(f"{old.name} {old.value} → {new.value}" for old, new in changed)
        assert all(new.value in old.choices for old, new in changed)


SMALL = "A = 0  # tune: 0, 1\nB = 4  # tune: 4, 8\n# tune if: A or B == 4\nclass ModelNew: ...\n"


@pytest.mark.parametrize(("untried", "expected"), [(None, False), ({"A": "1"}, True), ({"A": "0", "B": "8"}, False)])
def test_a_small_space_without_a_new_setting_is_known_as_such(untried: dict[str, str] | None, expected: bool) -> None:
    settings = [{"A": a, "B": b} for a in "01" for b in "48"]
    left = [one for one in settings if untried is None or any(one[name] != value for name, value in untried.items())]
    known = {Kernel.from_source(with_values(SMALL, one)).id for one in left}
    assert has_untried(SMALL, known.__contains__) == expected


def test_a_large_space_always_has_a_new_setting() -> None:
    assert has_untried("A = 0  # tune: " + ", ".join(map(str, range(40))), lambda _: True)
    assert not has_untried("class ModelNew: ...", lambda _: False)


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


def test_values_without_effect_cost_no_evaluation() -> None:
    text = "FAST = 1  # tune: 0, 1\nTILE = 64  # tune: 32, 64, 128\n# tune TILE if: FAST\nclass ModelNew: ...\n"
    start = Kernel.from_source(text)
    known, made = {start.id}, [values_of(text)]
    for seed in range(20):
        asked = brief_of(Operator.TUNE, member(start), seed=seed, known=known.__contains__)
        child = TunablesProposer().propose(asked).kernel
        if child is None:
            break
        known.add(child.id)
        made.append(values_of(child.source))
    else:
        pytest.fail("the space has four settings")
    assert sorted((one["FAST"], one["TILE"]) for one in made) == [("0", "32"), ("1", "128"), ("1", "32"), ("1", "64")]


def test_a_setting_that_is_not_allowed_is_not_proposed() -> None:
    proposer = TunablesProposer(allows=lambda setting: setting["UNROLL"] != "8")
    for seed in range(20):
        child = proposer.propose(brief(kernel(), seed=seed)).kernel
        assert child is not None
        assert values_of(child.source)["UNROLL"] != "8"


@pytest.mark.parametrize("other", ["", "\nOTHER = 1\n"], ids=["of the skeleton", "of another"])
def test_values_with_which_kernels_failed_are_left_alone(other: str) -> None:
    def beside(unroll: int, tile: int, pack: int) -> Kernel:
        return Kernel.from_source(kernel(UNROLL=unroll, TILE=tile, PACK=pack).source + other)

    failed = tuple(beside(8, tile, pack) for tile, pack in ((16, 0), (32, 1), (64, 0)))
    passed = tuple(beside(unroll, tile, pack) for unroll, tile, pack in ((1, 16, 0), (2, 32, 1), (4, 64, 0)))

    def proposed(failed: tuple[Kernel, ...]) -> list[str]:
        seen = {one.id for one in (*failed, *passed)}
        found = []
        for seed in range(40):
            asked = brief_of(
                Operator.TUNE, member(kernel()), seed=seed, history=tuple(map(member, passed)), failed=failed,
                known=seen.__contains__,
            )  # fmt: skip
            child = TunablesProposer().propose(asked).kernel
            assert child is not None
            found.append(values_of(child.source)["UNROLL"])
        return found

    assert 2 * proposed(failed).count("8") < proposed(()).count("8")

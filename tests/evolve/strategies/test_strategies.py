"""What all strategies have in common, and how a run refuses one that cannot work."""

from pathlib import Path
from typing import get_args

import pytest

from kbevolve.archive.records import BirthState, Idea, Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import SettingsError, UsageError
from kbevolve.configs.settings import SearchSettings, Settings
from kbevolve.evolve.proposers.base import Brief, Proposal
from kbevolve.evolve.proposers.codegen.ideas import choose_idea
from kbevolve.evolve.proposers.factory import build_proposers
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.strategies import STRATEGIES, check_strategy, fitted
from tests.evolve.doubles import KnownEvaluator, ScriptedProposer, kernel
from tests.evolve.strategies.conftest import run_search, settings_of

OFFLINE = [name for name, kind in STRATEGIES.items() if not kind.needs_model]


def test_every_strategy_has_its_name_in_the_settings() -> None:
    assert tuple(STRATEGIES) == get_args(SearchSettings.model_fields["strategy"].annotation)
    assert next(iter(STRATEGIES)) == SearchSettings().strategy


@pytest.mark.parametrize("strategy", OFFLINE)
def test_a_strategy_without_a_model_keeps_to_its_budget_and_finds_something(strategy: str) -> None:
    archive, evaluator = Archive(":memory:"), KnownEvaluator()
    assert run_search(archive, settings_of(strategy, generations=60, evaluations=20), evaluator=evaluator) is (
        StopReason.EVALUATIONS_SPENT
    )
    assert 20 <= evaluator.asked.total() <= 21
    best = archive.runs.champion(archive.runs.get().id)
    assert best is not None
    assert best.speedup > 1.5  # the starts have 0.82 and 0.98


@pytest.mark.parametrize("strategy", OFFLINE)
def test_a_strategy_without_a_model_resumes_where_it_was(strategy: str, tmp_path: Path) -> None:
    settings = settings_of(strategy, generations=10)
    whole = Archive(":memory:")
    run_search(whole, settings)
    with pytest.raises(KeyboardInterrupt):
        run_search(tmp_path / "cut.db", settings, evaluator=KnownEvaluator(interrupt_at=6))
    run_search(tmp_path / "cut.db", settings)
    with Archive(tmp_path / "cut.db") as archive:
        for one, other in zip(archive.runs.births("double-1"), whole.runs.births("double-1"), strict=True):
            assert (one.id, one.kernel, one.parents, one.state) == (other.id, other.kernel, other.parents, other.state)


def test_strategies_of_one_seed_do_not_share_their_luck() -> None:
    created = []
    for strategy in ("best-of-n", "greedy"):
        archive = Archive(":memory:")
        run_search(archive, settings_of(strategy, generations=6, islands=1), starts=(kernel(),))
        created.append([birth.kernel for birth in archive.runs.births("double-1") if birth.generation == 1])
    assert created[0] != created[1]


@pytest.mark.parametrize("strategy", [name for name in STRATEGIES if name not in OFFLINE])
def test_a_strategy_that_needs_a_model_says_so(strategy: str) -> None:
    settings = settings_of(strategy)
    with pytest.raises(
        UsageError, match=rf"{strategy} needs a model \(.*\); add --model NAME .* evolve, best-of-n or g"
    ):
        check_strategy(settings, build_proposers(settings))


def test_serial_strategies_make_one_child_after_another() -> None:
    wide = Settings.from_tree({"search": {"strategy": "greedy", "islands": 4, "lookahead": 2}})
    with pytest.raises(UsageError, match=r"wants search\.islands = 1 and search\.lookahead = 0, not 4 and 2"):
        check_strategy(wide, {Operator.TUNE})
    narrow = fitted(wide)
    assert (narrow.search.islands, narrow.search.lookahead) == (1, 0)
    check_strategy(narrow, {Operator.TUNE})
    assert fitted(Settings()) == Settings()
    assert fitted(settings_of("refine", repair_turns=2)).search.repair_turns == 0, "it repairs by itself"


def test_openevolve_refuses_a_proposer_that_is_no_model() -> None:
    settings = settings_of("openevolve").model_copy(update={"proposer": "package.module:Class"})
    with pytest.raises(SettingsError, match="openevolve asks models itself"):
        build_proposers(settings)


def test_what_is_shown_of_a_kernel_follows_the_switches_of_refine() -> None:
    briefs: dict[tuple[str, ...], list[Brief]] = {}

    def answer(brief: Brief) -> Proposal:
        child = kernel(TILE=brief.rng.choice((8, 16, 32, 64)), UNROLL=brief.rng.choice((1, 2, 4, 8)), WRONG=1)
        return Proposal(state=BirthState.CREATED, kernel=child, note="a child")

    for feedback in (("generation",), ("generation", "execution")):
        writer = ScriptedProposer(answer)
        proposers = {
            **dict.fromkeys((Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR), writer),
            Operator.TUNE: TunablesProposer(),
        }
        run_search(Archive(":memory:"), settings_of("refine", generations=3, feedback=feedback), proposers=proposers)
        briefs[feedback] = writer.briefs
    blind, informed = briefs.values()
    assert [brief.operator for brief in blind] == [Operator.REWRITE, Operator.MUTATE, Operator.MUTATE]
    assert [brief.operator for brief in informed] == [Operator.REWRITE, Operator.REPAIR, Operator.REPAIR]
    assert all(brief.repair is None for brief in blind)


@pytest.mark.parametrize("strategy", ["best-of-n", "refine", "greedy", "tree"])
def test_a_baseline_carries_out_the_first_idea_however_much_is_known(strategy: str) -> None:
    ideas = tuple(
        Idea(title=title, mechanism="m", technique="t", expected_gain=gain)
        for title, gain in (("one", 1.1), ("two", 2.0))
    )
    chosen = []

    def answer(brief: Brief) -> Proposal:
        chosen.append(choose_idea(ideas, brief))
        child = kernel(TILE=brief.rng.choice((8, 16, 32, 64)), UNROLL=brief.rng.choice((1, 2, 4, 8)))
        return Proposal(state=BirthState.CREATED, kernel=child, note="a child")

    proposers = {operator: ScriptedProposer(answer) for operator in Operator if operator is not Operator.SEED}
    run_search(Archive(":memory:"), settings_of(strategy, generations=6, islands=1, lookahead=0), proposers=proposers)
    assert len(chosen) >= 6
    assert set(chosen) == {ideas[0]}


@pytest.mark.slow
def test_tree_carries_the_same_idea_out_again(tmp_path: Path) -> None:
    from tests.evolve.loopback import Loopback
    from tests.evolve.strategies.conftest import fickle

    with pytest.MonkeyPatch.context() as patch, Loopback(otherwise=fickle) as server:
        patch.setenv("no_proxy", "127.0.0.1")
        settings = settings_of(
            "tree", generations=4, islands=2, tree_ideas=2, tree_implementations=2, repair_turns=0, base=server.base
        )
        run_search(tmp_path / "run.db", settings)
        wanted = sum("Answer with JSON" in request.last for request in server.requests)
    with Archive(tmp_path / "run.db") as archive:
        bred = [birth for birth in archive.runs.births("double-1") if birth.generation]
    ideas = [[birth.idea for birth in bred if birth.generation == generation] for generation in (1, 2, 3, 4)]
    assert ideas[0] == ideas[1]
    assert ideas[2] == ideas[3]
    assert wanted == 4, "ideas are asked for by the first child of each only"

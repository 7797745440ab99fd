"""`kbevolve run --strategy`, as a user types it, and what models see by the switches of `refine`."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Launch, Operator, Profile
from kbevolve.archive.store import Archive
from kbevolve.configs.playbook import load_playbook
from kbevolve.configs.settings import Feedback
from kbevolve.evolve.proposers.codegen import prompts
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs import session
from kbevolve.islands.island import Member
from tests.evolve.doubles import PROBLEM_TEXT, KnownEvaluator, KnownJudge, brief_of, kernel, problem, replace_starts
from tests.evolve.strategies.conftest import settings_of

RUN = ("run", "--problem", "double.py", "--device", "cpu", "--generations", "3", "--set", "evaluation.confirm_rounds=2")


@pytest.fixture
def type_in(kbevolve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """The command line in a folder of its own, with a judge that knows all speeds."""
    (tmp_path / "double.py").write_text(PROBLEM_TEXT)
    monkeypatch.chdir(tmp_path)
    replace_starts(monkeypatch, StartingKernel(kernel=kernel(), note="naive"))
    KnownJudge().replace_judge(monkeypatch)
    return kbevolve


def test_a_run_says_its_strategy_and_keeps_it(type_in: Any) -> None:
    outcome = type_in(*RUN, "--strategy", "greedy")
    assert outcome.code == 0, outcome.err
    assert "Strategy greedy: (1+1): every child from the best so far." in outcome.out
    with Archive(Path("kbevolve.db")) as archive:
        births = archive.runs.births(archive.runs.get().id)
        assert {birth.island for birth in births} == {0}, "whatever the preset has"
        settings = session.settings_of(archive.runs.get(), {})
    assert (settings.search.strategy, settings.search.lookahead) == ("greedy", 0)
    changed = type_in("resume", "--strategy", "evolve", "--generations", "5")
    assert (changed.code, "search.strategy cannot change within a run" in changed.err) == (2, True)
    assert type_in("resume", "--generations", "5").code == 0
    assert "greedy" in type_in("archive", "show", "latest").out


def test_a_strategy_that_cannot_work_is_refused_before_the_archive_is_touched(type_in: Any) -> None:
    outcome = type_in(*RUN, "--strategy", "refine")
    assert (outcome.code, "strategy refine needs a model" in outcome.err) == (2, True)
    assert not Path("kbevolve.db").exists()
    assert type_in(*RUN, "--strategy", "annealing").code == 2


@pytest.mark.parametrize(
    ("given", "shown", "hidden"),
    [
        (("execution", "profiler"), ("times as fast as eager", "softmax_kernel"), ("not shown",)),
        (("execution",), ("times as fast as eager",), ("softmax_kernel", "not shown")),
        (("generation",), ("its results are not shown",), ("times as fast as eager", "softmax_kernel")),
    ],
)
def test_prompts_show_of_the_parent_what_they_may(
    given: tuple[Feedback, ...], shown: tuple[str, ...], hidden: tuple[str, ...]
) -> None:
    launch = Launch(name="softmax_kernel", share=1.0, microseconds=9.0, launches=1.0)
    found = replace(KnownEvaluator().evaluate(problem(), kernel()), profile=Profile(launches=(launch,)))
    parent = Member(kernel=kernel(), evaluation=found, niche="n")
    brief = brief_of(Operator.REWRITE, parent, feedback=frozenset(given))
    prompt = prompts.ideas(brief, (), load_playbook())
    assert kernel().source.strip() in prompt
    assert all(words in prompt for words in shown)
    assert not any(words in prompt for words in hidden)
    assert settings_of("refine", feedback=given).search.feedback == given

"""`kbevolve compare`, as a user types it: every run once, the table, the figure, the object."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import StopReason
from kbevolve.archive.store import Archive
from kbevolve.evolve.cli.commands import compare as command
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs import session
from tests.evolve.doubles import PROBLEM_TEXT, KnownJudge, kernel, replace_starts
from tests.evolve.loopback import Loopback
from tests.evolve.strategies.conftest import fickle

BUDGET = 12


@pytest.fixture
def compare(kbevolve: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:
    """The command in a folder of its own, with a judge that knows all speeds."""
    (tmp_path / "double.py").write_text(PROBLEM_TEXT)
    monkeypatch.chdir(tmp_path)
    starts = (StartingKernel(kernel=kernel(), note="naive"), StartingKernel(kernel=kernel(TILE=16), note="tiled"))
    replace_starts(monkeypatch, *starts)
    words = ("--problem", "double.py", "--device", "cpu", "--max-evaluations", BUDGET, "--seeds", 2)
    short = ("--set", "evaluation.confirm_rounds=2")

    def call(*more: object, judge: KnownJudge | None = None) -> Any:
        (judge or KnownJudge()).replace_judge(monkeypatch)
        return kbevolve("compare", *words, *short, *more)

    return call


@pytest.mark.slow
def test_every_run_is_made_once_and_the_same_command_reads_them_again(compare: Any, tmp_path: Path) -> None:
    first = compare("--strategies", "greedy,best-of-n", "-o", "c.svg", "--json")
    assert first.code == 0, first.err
    lines = first.err.splitlines()
    assert lines[0] == "2 strategies, 2 seeds, 12 evaluations each: 4 runs."
    assert [line.split(":")[0] for line in lines[1:5]] == [
        "greedy, seed 0", "best-of-n, seed 0", "greedy, seed 1", "best-of-n, seed 1",
    ]  # fmt: skip
    assert lines[5].split() == [
        "strategy", "at_3", "at_6", "at_12", "against_greedy", "published", "valid", "duplicates",
        "evaluations", "device",
    ]  # fmt: skip
    found = json.loads(first.out)
    assert found["evaluations"] == BUDGET
    assert list(found["strategies"]) == ["greedy", "best-of-n"]
    greedy, sampling = found["strategies"].values()
    assert greedy["evaluations"] == sampling["evaluations"] == [BUDGET, BUDGET], "what another run has judged counts"
    assert greedy["against_first"] is None
    assert sampling["against_first"]["mean"] == pytest.approx(sampling["at"]["12"]["mean"] / greedy["at"]["12"]["mean"])
    assert greedy["at"]["3"]["mean"] <= greedy["at"]["12"]["mean"]
    assert greedy["confirmed"] == [True, True]
    assert "greedy" in (tmp_path / "c.svg").read_text()

    judge = KnownJudge()
    second = compare("--strategies", "greedy,best-of-n", "-o", "c.svg", "--json", judge=judge)
    assert "4 runs, 4 finished." in second.err
    assert not judge.asked
    assert json.loads(second.out) == found
    third = compare("--strategies", "greedy,evolve", "-o", "c.svg", "--seed", 1)
    assert "4 runs, 1 finished." in third.out, "seeds 1 and 2; another seed or strategy is another run"
    other = compare("--strategies", "greedy", "-o", "c.svg", "--set", "search.child_discount=0.5")
    assert "finished" not in other.out


@pytest.mark.slow
def test_a_comparison_that_was_interrupted_goes_on(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = command.run_session, iter(range(100))

    def until_second(*arguments: Any, **named: Any) -> Any:
        if next(calls) == 1:
            monkeypatch.setattr(KnownJudge, "interrupt_at", None, raising=False)
            context = arguments[0]
            context.archive.add_stop(context.run.id, StopReason.INTERRUPTED)
            return session.Ending(reason=StopReason.INTERRUPTED)
        return original(*arguments, **named)

    monkeypatch.setattr(command, "run_session", until_second)
    first = compare("--strategies", "greedy,best-of-n")
    assert first.code == 130
    assert "the same command continues" in first.out
    monkeypatch.setattr(command, "run_session", original)
    second = compare("--strategies", "greedy,best-of-n")
    assert "4 runs, 1 finished, 1 started." in second.out
    assert second.code == 0
    with Archive(Path("kbevolve.db")) as archive:
        assert len(archive.runs.summaries()) == 4


@pytest.mark.slow
def test_what_models_cost_is_in_the_table(compare: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    Path("prices.yaml").write_text("prices:\n  loopback-*: {prompt: 10, completion: 100}\n")
    with Loopback(otherwise=fickle) as server:
        model = ("--model", "fickle", "--api-base", server.base, "--set", "budget.prices=prices.yaml")
        outcome = compare("--strategies", "best-of-n,refine", "--json", "--seeds", 1, *model)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["strategies"]["refine"]
    assert found["tokens"] > 10_000
    assert found["dollars"] == pytest.approx(found["tokens"] * 2e-5, rel=0.9)
    assert f"${found['dollars']:.2f}" in outcome.err
    assert found["valid"] < 1


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--strategies", "gready"), "no strategy 'gready'. Nearest: greedy."),
        (("--strategies", ","), "no strategy is named"),
        (("--strategy", "greedy"), "name the strategies with --strategies"),
        (("--strategies", "tree"), "strategy tree needs a model"),
        (("-o", "c.gif"), "cannot draw .gif"),
        (("--set", "budget.evaluations=null", "--max-evaluations", "0"), "budget.evaluations"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_anything_is_run(
    compare: Any, words: tuple[str, ...], why: str
) -> None:
    outcome = compare(*words)
    assert outcome.code == 2
    assert why in outcome.err
    assert not Path("kbevolve.db").exists() or not _runs()


def _runs() -> int:
    with Archive(Path("kbevolve.db")) as archive:
        return len(archive.runs.summaries())


def test_a_comparison_without_a_budget_is_refused(kbevolve: Any) -> None:
    outcome = kbevolve("compare", "--problem", "L1/matmul")
    assert (outcome.code, "--max-evaluations 60" in outcome.err) == (2, True)

"""Every strategy against a scripted model: what it leaves, that it resumes where it was, and that it is replayed."""

import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Operator, StopReason, Verdict
from kbevolve.evolve.strategies import STRATEGIES
from tests.evolve.doubles import KnownEvaluator
from tests.evolve.loopback import Answer, Loopback, Request
from tests.evolve.strategies.conftest import Cycling, content, fickle, run_search, settings_of

pytestmark = pytest.mark.usefixtures("no_proxy")

EVALUATIONS = 12
#: Kinds of answers that leave a new kernel.
LASTING = ("good", "wrong", "broken", "good")
#: One strategy stands for all by default; the others have the same tests among the slow ones.
EACH = [pytest.param(name, marks=[] if name == "evolve" else pytest.mark.slow) for name in STRATEGIES]


@pytest.fixture(scope="module", params=EACH)
def recorded(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A strategy, and a folder with its recorded run: ``run.db`` and ``run.jsonl``; its server is gone."""
    folder = tmp_path_factory.mktemp(request.param)
    with pytest.MonkeyPatch.context() as patch, Loopback(otherwise=Cycling()) as server:
        patch.setenv("no_proxy", "127.0.0.1")
        settings = settings_of(request.param, generations=60, evaluations=EVALUATIONS, base=server.base)
        reason = run_search(folder / "run.db", settings, record=folder / "run.jsonl")
        assert reason is StopReason.EVALUATIONS_SPENT
    return request.param, folder


def test_a_run_keeps_to_its_budget_and_sees_all_kinds_of_answers(recorded: tuple[str, Path]) -> None:
    strategy, folder = recorded
    found = content(folder / "run.db")
    assert EVALUATIONS <= len(found["verdicts"]) <= EVALUATIONS + 3, "what was in flight is finished, with its repairs"
    assert {Verdict.CORRECT, Verdict.WRONG} <= {one.verdict for one in found["verdicts"].values()}
    states = {birth.state for birth in found["births"]}
    assert {BirthState.CREATED, BirthState.DUPLICATE} <= states
    assert any("broken" in source for source in found["kernels"].values())
    repaired = any(birth.operator is Operator.REPAIR for birth in found["births"])
    assert repaired == (strategy != "openevolve")
    assert found["confirmed"], "no kernel was confirmed"
    for birth in found["births"]:
        assert birth.operator is Operator.SEED or birth.parents, f"{birth.id} has no parents"


def test_a_replayed_run_is_the_recorded_one(
    recorded: tuple[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy, folder = recorded

    def no_network(*_: Any) -> None:
        raise AssertionError("a replay opened a connection")

    monkeypatch.setattr(socket.socket, "connect", no_network)
    settings = settings_of(strategy, generations=60, evaluations=EVALUATIONS)
    run_search(tmp_path / "again.db", settings, replay=folder / "run.jsonl")
    assert content(tmp_path / "again.db") == content(folder / "run.db")


def model_for(strategy: str) -> Callable[[Request], Answer]:
    """The fickle model. A refinement sends the same request again after prose or a duplicate, and would have the same
    answer for ever; so may OpenEvolve, whose parents are the same again. These get new kernels only."""
    return partial(fickle, kinds=LASTING, new=True) if strategy in ("refine", "openevolve") else fickle


@pytest.fixture(scope="module", params=EACH)
def undisturbed(request: Any, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A strategy, and the archive of an undisturbed run, by a model that answers the same to the same."""
    file = tmp_path_factory.mktemp(request.param) / "run.db"
    with pytest.MonkeyPatch.context() as patch, Loopback(otherwise=model_for(request.param)) as server:
        patch.setenv("no_proxy", "127.0.0.1")
        settings = settings_of(request.param, generations=60, evaluations=EVALUATIONS, base=server.base)
        run_search(file, settings)
    assert len(content(file)["verdicts"]) > 8, "it would be over before it is cut"
    return request.param, file


@pytest.mark.slow
@pytest.mark.parametrize("cut", [2, 7])
def test_a_resumed_run_is_the_undisturbed_one(undisturbed: tuple[str, Path], tmp_path: Path, cut: int) -> None:
    strategy, file = undisturbed
    with Loopback(otherwise=model_for(strategy)) as server:
        settings = settings_of(strategy, generations=60, evaluations=EVALUATIONS, base=server.base)
        first, second = KnownEvaluator(interrupt_at=cut), KnownEvaluator()
        with pytest.raises(KeyboardInterrupt):
            run_search(tmp_path / "cut.db", settings, evaluator=first)
        before = len(server.requests)
        run_search(tmp_path / "cut.db", settings, evaluator=second)
        assert len(server.requests) > before
    assert content(tmp_path / "cut.db") == content(file)
    assert max((first.asked + second.asked).values()) == 1, "a kernel was judged twice"

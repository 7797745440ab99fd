"""What every `Confirmer` must do: the judge, the fleet, and the double of the search's tests."""

from collections.abc import Iterator

import pytest

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.settings import Settings, WorkSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.evaluator import Confirmer
from kbevolve.evaluators.fleet.fleet import local_fleet
from kbevolve.evaluators.judging.judge import Judge
from tests.contracts.test_evaluators import RIGHT, problem
from tests.evaluators.simulated import NAME as SIMULATED
from tests.evolve.doubles import KnownConfirmer

FIRST = Kernel.from_source(RIGHT)
SECOND = Kernel.from_source(RIGHT.replace("x * (", "(x + 0) * ("))
WRONG = Kernel.from_source(RIGHT.replace("WRONG = 0", "WRONG = 1"))
ROUNDS = 3


@pytest.fixture(scope="module", params=["judge", "double", "fleet"])
def confirmer(request: pytest.FixtureRequest) -> Iterator[Confirmer]:
    if request.param == "double":
        yield KnownConfirmer(failing={WRONG.id})
        return
    settings = Settings.load(base=Settings.preset("cpu"), preset="smoke").evaluation
    if request.param == "fleet":
        with local_fleet((find_device("cpu"),), settings, WorkSettings(), judge=SIMULATED) as fleet:
            yield fleet
        return
    with Judge(find_device("cpu"), settings) as judge:
        yield judge


@pytest.mark.slow
def test_every_kernel_is_timed_in_the_same_rounds_or_failed(confirmer: Confirmer) -> None:
    contest = confirmer.compete(problem(), [FIRST, WRONG, SECOND], rounds=ROUNDS)
    assert contest.times.keys() == {FIRST.id, SECOND.id}
    assert len(contest.reference) == ROUNDS
    for rounds in (contest.reference, *contest.times.values()):
        assert len(rounds) == ROUNDS
        assert all(calls and all(call > 0 for call in calls) for calls in rounds)
    (failure,) = contest.failed.values()
    assert (failure.kernel, failure.problem) == (WRONG.id, problem().id)
    assert failure.verdict < Verdict.CORRECT
    assert failure.message
    assert contest.tie >= 0.01


@pytest.mark.slow
def test_one_kernel_meets_the_reference_alone(confirmer: Confirmer) -> None:
    contest = confirmer.compete(problem(), [FIRST], rounds=ROUNDS)
    assert list(contest.times) == [FIRST.id]
    assert len(contest.reference) == ROUNDS


def test_no_kernel_is_timed_when_all_fail(confirmer: Confirmer) -> None:
    contest = confirmer.compete(problem(), [WRONG], rounds=ROUNDS)
    assert (contest.times, contest.failed.keys()) == ({}, {WRONG.id})

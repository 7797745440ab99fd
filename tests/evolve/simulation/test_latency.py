"""What searches cost in author calls and hours, where authors and the judge take their time."""

import json
from collections.abc import Sequence

import pytest
from click.testing import CliRunner

from kbevolve.configs.errors import UsageError
from kbevolve.evolve.cli.commands.bench_search import bench_search
from kbevolve.evolve.simulation import latency
from kbevolve.evolve.simulation.ladders import find_ladder
from kbevolve.evolve.simulation.landscape import Program
from kbevolve.evolve.simulation.latency import (
    LOOKAHEADS,
    Latency,
    SimulatedAttempt,
    Timeline,
    compare_lookaheads,
    simulated,
    timeline,
)
from kbevolve.evolve.simulation.searcher import Setup, run_episode
from kbevolve.evolve.simulation.searchers.ours import OurSearcher
from kbevolve.evolve.simulation.simulated_llm import SimulatedLLM

LADDER = find_ladder("ladder-a")
START = SimulatedAttempt(written=False, judged=True, value=0.0)
FAILED = SimulatedAttempt(written=True, judged=True, value=None)
TUNED = SimulatedAttempt(written=False, judged=True, value=0.1)
KNOWN = SimulatedAttempt(written=True, judged=False, value=0.0)


def good(value: float) -> SimulatedAttempt:
    return SimulatedAttempt(written=True, judged=True, value=value)


def timed(*generations: Sequence[Sequence[SimulatedAttempt]], lookahead: int = 0) -> Timeline:
    """An author takes 10 seconds, the judge 3."""
    return timeline([[[START]], *generations], lookahead=lookahead, latency=Latency(author=10, judge=3))


@pytest.fixture(autouse=True)
def _punctual(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SPREAD", 0.0)


def test_a_generation_waits_for_the_one_before_unless_it_looks_ahead() -> None:
    generations = [[good(0.1)], [good(0.2)]], [[good(0.3)], [good(0.4)]]
    waiting, overlapping = timed(*generations), timed(*generations, lookahead=1)
    assert waiting.calls == [3, 3, 19, 19]
    assert waiting.known == [(3, 0.0), (16, 0.1), (19, 0.2), (32, 0.3), (35, 0.4)]
    assert overlapping.calls == [3, 3, 3, 3]
    assert overlapping.known == [(3, 0.0), (16, 0.1), (19, 0.2), (22, 0.3), (25, 0.4)]
    assert (waiting.end, overlapping.end) == (35, 25)


def test_repairs_ask_again_and_known_and_tuned_children_cost_less() -> None:
    found = timed([[FAILED, good(0.2)], [KNOWN], [TUNED]])
    assert found.calls == [3, 3, 16]
    assert found.known == [(3, 0.0), (6, 0.1), (13, 0.0), (29, 0.2)]


def test_the_judge_takes_older_generations_first() -> None:
    late = [[FAILED, good(0.5)]], [[good(0.1)]] * 5
    # Five younger kernels wait from second 13 on. The repair arrives at 26, is judged from 28 on, and one of them last.
    found = timed(*late, lookahead=1)
    assert found.known[-2:] == [(31, 0.5), (34, 0.1)]


def test_calls_under_way_are_paid_for_when_a_speed_is_reached() -> None:
    found = timed([[good(0.3)], [good(0.2)]], [[good(0.1)]], lookahead=1)
    assert found.until(0.25) == (3, 16)
    assert found.until(0.0) == (3, 3), "those that the first verdict brings about, too"
    assert found.until(0.4) is None
    assert [found.after(calls) for calls in (0, 2, 3)] == [0.0, 0.0, 0.3]


@pytest.mark.parametrize("lookahead", LOOKAHEADS)
def test_the_first_generations_are_made_from_the_starts_alone(lookahead: int) -> None:
    made: list[OurSearcher] = []
    parents: list[Program] = []

    class Watched(OurSearcher):
        def task(self, spent: int):  # type: ignore[no-untyped-def]
            task = super().task(spent)
            parents.append(task.parents[0])
            return task

    def make(setup: Setup) -> OurSearcher:
        made.append(Watched(setup, lookahead=lookahead, islands=6))
        return made[0]

    run_episode(LADDER, make, llm=SimulatedLLM(slips={}), budget=60, seed=1)
    first = next(number for number, parent in enumerate(parents) if parent not in LADDER.start())
    assert 6 * (1 + lookahead) <= first < 6 * (2 + lookahead)


def test_seconds_change_nothing_but_the_hours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(latency, "SPREAD", 0.3)
    slow, fast = (
        simulated("ladder-a", 40, 1, 5, latency=Latency(author=author, judge=15), islands=3) for author in (600, 1)
    )
    assert slow.end > 5 * fast.end
    assert len(slow.calls) == len(fast.calls)
    assert sorted(value for _, value in slow.known) == sorted(value for _, value in fast.known)


@pytest.mark.slow
def test_fewer_author_calls_reach_a_speed_without_lookahead() -> None:
    scores = compare_lookaheads(
        ["ladder-a"], latency=Latency(author=600, judge=15), budgets=[30], seeds=24, islands=6, jobs=2
    )
    none, _, two = scores
    assert [one.lookahead for one in scores] == [0, 1, 2]
    assert none.calls_se == none.hours_se == 0
    assert two.calls - none.calls > 2 * two.calls_se
    assert two.hours < none.hours
    assert 0 < none.target < 1
    assert none.reached >= 0.5


def test_the_command_prints_a_table_and_json() -> None:
    options = ["--latency", "60:5", "--ladder", "ladder-a", "--seeds", "2", "--budgets", "20,30", "--jobs", "1"]
    done = CliRunner().invoke(bench_search, options)
    assert done.exit_code == 0, done.output
    rows = [line.split()[:3] for line in done.output.splitlines() if line.strip()[:1].isdigit()]
    assert rows == [[budget, "1", lookahead] for budget in ("20", "30") for lookahead in "012"]
    assert "Author calls and hours" in done.output
    done = CliRunner().invoke(bench_search, [*options, "--islands", "3", "--json"])
    found = json.loads(done.output.splitlines()[-1])
    assert {(one["landscape"], one["islands"]) for one in found} == {("ladder-a", 3)}
    assert all(one["calls"] > 0 and one["hours"] > 0 for one in found)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--latency", "60"], "60:15"),
        (["--latency", "a:b"], "60:15"),
        (["--latency", "5:0"], "60:15"),
        (["--latency", "nan:1"], "60:15"),
        (["--latency", "60:5", "--searchers", "greedy"], "give one of them"),
        (["--islands", "3"], "--islands is for --latency"),
    ],
)
def test_options_that_make_no_sense_are_refused(options: list[str], words: str) -> None:
    done = CliRunner().invoke(bench_search, ["--ladder", "ladder-a", "--seeds", "2", *options])
    assert isinstance(done.exception, UsageError)
    assert words in str(done.exception)

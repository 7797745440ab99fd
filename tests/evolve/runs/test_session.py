"""One session of a run: problem card, search with contests, baselines; the judge is a double."""

import re
from collections.abc import Callable
from dataclasses import replace
from io import StringIO
from typing import Any, TypeVar

import pytest
from rich.console import Console

from kbevolve.archive import store
from kbevolve.archive.parts import changed
from kbevolve.archive.records import ProblemCard, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import EvaluatorError, ProblemError, SettingsError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import BudgetSettings, LLMSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.main import cli
from kbevolve.evolve.cli.render.progress import LineProgress, LiveProgress, progress_for
from kbevolve.evolve.cli.render.summary import print_summary
from kbevolve.evolve.proposers.seeds.seeds import StartingKernel
from kbevolve.evolve.runs.evaluators import JudgeDevices
from kbevolve.evolve.runs.session import Ending, open_run, run_session
from kbevolve.evolve.search.events import Event
from tests.evolve.doubles import DEVICE, KnownJudge, context_of, kernel, problem, replace_starts, settings, speed_of

DEVICE_HERE = Device(type="cpu", index=0, fingerprint=DEVICE, description="a double")
HERE = JudgeDevices(devices=(DEVICE_HERE,), device=DEVICE_HERE)
CHOSEN = settings(generations=3)
Display = TypeVar("Display", LineProgress, LiveProgress)


def shown_on(console: Console, kind: type[Display]) -> Display:
    archive = Archive(":memory:")
    run = open_run(archive, problem(), DEVICE_HERE, CHOSEN)
    return kind(context_of(archive, run, DEVICE_HERE, CHOSEN), HERE, console)


class Session:
    """An archive, the lines for the user, and the events."""

    def __init__(self) -> None:
        self.archive = Archive(":memory:")
        self.said: list[str] = []
        self.events: list[Event] = []

    def run(self, chosen: Settings = CHOSEN, observer: Callable[[Event], None] | None = None) -> Ending:
        run = open_run(self.archive, problem(), DEVICE_HERE, chosen)
        observe = observer or self.events.append
        return run_session(
            context_of(self.archive, run, DEVICE_HERE, chosen), HERE, observer=observe, say=self.said.append
        )


@pytest.fixture
def session_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Session]:
    def with_judge(judge: KnownJudge) -> Session:
        judge.replace_judge(monkeypatch)
        starts = (StartingKernel(kernel=kernel(), note="naive"), StartingKernel(kernel=kernel(UNROLL=2), note="better"))
        replace_starts(monkeypatch, *starts)
        return Session()

    return with_judge


def test_a_run_is_confirmed_and_its_baselines_are_measured(session_with: Any) -> None:
    judge = KnownJudge(flags={"launch-bound": "a call takes 20 µs"})
    home = session_with(judge)
    ending = home.run()
    assert ending.reason is StopReason.GENERATIONS
    assert [one.name for one in ending.baselines] == ["compile", "graph"]
    assert home.archive.runs.champion(home.archive.runs.get().id) is not None
    assert home.archive.problems.card(problem().id, DEVICE, "fp32").flags == judge.flags
    assert home.said[0] == "L1/double: launch-bound: a call takes 20 µs"
    assert judge.closed


def test_the_first_problem_card_stays(session_with: Any) -> None:
    """A resumed run and a replay ask what was asked before, although eager takes another time today."""

    class Hasty(KnownJudge):
        def card(self, problem: Any) -> Any:
            return replace(super().card(problem), eager_ms=next(times), peaks=peaks)

    times, peaks = iter((3.0, 2.0, 1.0, 0.5)), dict[str, float]()
    judge = Hasty(flags={"launch-bound": "a call takes 20 µs"})
    home = session_with(judge)

    def kept() -> float:
        home.run(settings(generations=1))
        return float(home.archive.problems.card(problem().id, DEVICE, "fp32").eager_ms)

    assert [kept(), kept()] == [3.0, 3.0]
    judge.flags = {"shared-output": "found by a newer judge"}
    assert kept() == 1.0, "but a verdict that changed is news"
    peaks["copy"] = 4e12
    assert kept() == 0.5, "and so are rates, which an older judge did not measure"


def test_transferred_knowledge_is_written_unless_it_is_turned_off(session_with: Any) -> None:
    home = session_with(KnownJudge())
    for transfer, written in ((True, True), (False, False)):
        home.run(settings(generations=1, transfer=transfer))
        assert (home.archive.runs.transfer(home.archive.runs.get().id) is not None) is written


def test_baselines_can_be_left_out(session_with: Any) -> None:
    judge = KnownJudge()
    assert session_with(judge).run(settings(generations=1, evaluation={"baselines": False})).baselines == ()
    assert not judge.measured_baselines


@pytest.mark.parametrize("failure", [EvaluatorError("no compiler; install one"), KeyboardInterrupt()])
def test_a_run_is_valid_without_its_baselines(session_with: Any, failure: BaseException) -> None:
    class Without(KnownJudge):
        def baselines(self, problem: Any) -> Any:
            raise failure

    home = session_with(Without())
    ending = home.run()
    assert (ending.reason, ending.baselines) == (StopReason.GENERATIONS, ())
    assert home.archive.runs.summaries()[0].stopped is StopReason.GENERATIONS


def test_a_degenerate_problem_is_refused_unless_forced(session_with: Any) -> None:
    home = session_with(KnownJudge(flags={"degenerate": "an output of zeros passes."}))
    with pytest.raises(ProblemError, match=r"L1/double is degenerate: an output of zeros passes; .* --force"):
        home.run()
    assert home.archive.runs.births(home.archive.runs.get().id) == []
    forced = settings(generations=1, evaluation={"force": True})
    assert home.run(forced).reason is StopReason.GENERATIONS


def test_an_interrupted_run_has_neither_final_nor_baselines(session_with: Any) -> None:
    judge = KnownJudge()
    home = session_with(judge)

    def stop(event: Event) -> None:
        if event.generation == 2:
            raise KeyboardInterrupt

    assert home.run(observer=stop).reason is StopReason.INTERRUPTED
    made = home.archive.runs.confirmations(home.archive.runs.get().id)
    assert {one.purpose for one in made} == {"challenge"}
    assert not judge.measured_baselines


@pytest.mark.slow
def test_the_displays_show_the_confirmed_number(session_with: Any) -> None:
    home = session_with(KnownJudge())
    console = Console(record=True, width=150, force_terminal=False)
    home.run(observer=shown_on(console, LineProgress))
    champion = home.archive.runs.champion(home.archive.runs.get().id)
    said = console.export_text()
    assert f"{champion.speedup:#.3g}× (confirmed) [" in said
    assert champion.kernel in said

    home = session_with(KnownJudge())
    home.run()
    (contest,) = {event.contest for event in home.events if len(event.contest) == 1}
    live = shown_on(Console(record=True, width=150), LiveProgress)
    shown = Console(record=True, width=150)
    shown.print(live.shown(next(event for event in home.events if event.contest)))
    shown.print(live.shown(home.events[-1]))
    text = shown.export_text()
    assert f"measuring {contest[0]} again, beside eager" in text
    assert f"{champion.speedup:#.3g}× (confirmed)" in text


def test_the_user_says_how_much_is_shown(session_with: Any) -> None:
    """With -v a line for each attempt, with -q no progress, and of the summary the result."""

    def said(*options: str) -> tuple[str, str]:
        home = session_with(KnownJudge())
        run = open_run(home.archive, problem(), DEVICE_HERE, CHOSEN)
        context = context_of(home.archive, run, DEVICE_HERE, CHOSEN)
        console = Console(record=True, width=200, force_terminal=False)
        with cli.make_context("kbevolve", [*options, "run"]), progress_for(context, HERE, console) as progress:
            ending = run_session(context, HERE, observer=progress)
            progressed = console.export_text()
            print_summary(console, context, ending)
        return progressed, console.export_text()

    attempts = r"^[0-9a-f]{16}  g\d"
    progress, summary = said("-v")
    assert len(re.findall(attempts, progress, re.MULTILINE)) > CHOSEN.search.generations
    assert "Archive:" in summary
    assert not re.findall(attempts, said()[0], re.MULTILINE)
    progress, summary = said("-q")
    assert progress == ""
    assert summary.startswith("Best: ")
    assert summary.count("\n") == 1


def test_a_terminal_is_not_left_empty_while_judges_start() -> None:
    written = StringIO()
    with shown_on(Console(file=written, force_terminal=True, width=80), LiveProgress):
        assert "L1/double" in written.getvalue()
        assert "starting …" in written.getvalue()


def test_the_summary_states_what_is_published(session_with: Any) -> None:
    home = session_with(KnownJudge())
    ending = home.run()
    run = home.archive.runs.get()
    console = Console(record=True, width=200)
    print_summary(console, context_of(home.archive, run, DEVICE_HERE, CHOSEN), ending)
    champion = home.archive.runs.champion(run.id)
    text = console.export_text()
    assert f"Best: {champion.kernel}, {champion.speedup:#.3g}× over eager (confirmed)" in text
    assert f"{champion.speedup / 2:#.3g}× over the best of eager and compile (compile)" in text
    assert "graph failed: no graphs here" in text
    assert f"kbevolve archive lineage {champion.kernel}" in text
    # The better of the two starts is 1.12 times eager; `KnownJudge` prepares each kernel in 0.1 s.
    judged = len(home.archive.runs.evaluations(run.id))
    gain = (champion.speedup / speed_of({"UNROLL": "2"}) - 1) * 100
    assert f"Cost: {judged} evaluations, 0:01 of device time, " in text
    assert f" in all; per percent of the {gain:.3g} %" in text
    assert f"{judged / gain:.3g} evaluations, {judged / 10 / gain:.3g} s of device time" in text


class CardJudge(KnownJudge):
    """Knows a roofline."""

    def card(self, problem: Problem) -> ProblemCard:
        return replace(super().card(problem), eager_ms=10.0, roofline_ms={"fp32": 2.0})


def test_the_summary_says_how_far_the_roofline_is(session_with: Any) -> None:
    home = session_with(CardJudge(precision_class="fp32"))
    ending = home.run()
    run = home.archive.runs.get()
    context = context_of(home.archive, run, DEVICE_HERE, CHOSEN)
    champion = home.archive.runs.champion(run.id)
    share = f"{200 / champion.time_ms:.0f} % of the roofline"

    def said() -> str:
        console = Console(record=True, width=200)
        print_summary(console, context, ending)
        return console.export_text()

    assert f"(confirmed), {share}, " in said()
    words = "No kernel is confirmed to be faster than eager, which takes 10.0 ms, 20 % of the roofline."
    assert words not in said()
    home.archive.runs.champion = lambda run: replace(champion, speedup=1.0, speedup_low=0.98, speedup_high=1.02)
    assert words in said()


def test_a_run_that_has_spent_its_budget_is_over(session_with: Any) -> None:
    judge = KnownJudge()
    home = session_with(judge)
    chosen = settings(generations=30).model_copy(update={"budget": BudgetSettings(evaluations=8)})
    ending = home.run(chosen)
    assert ending.reason is StopReason.EVALUATIONS_SPENT
    assert judge.measured_baselines
    console = Console(record=True, width=200)
    population = ending.population
    print_summary(
        console, context_of(home.archive, home.archive.runs.get(), DEVICE_HERE, chosen),
        Ending(reason=ending.reason, population=population),
    )  # fmt: skip
    text = console.export_text()
    assert "stopped: its evaluations are spent; `kbevolve resume --max-evaluations N` allows more" in text
    assert "kbevolve resume --set budget.evaluations=null" in text


def test_a_run_says_that_it_waits_for_another_process(session_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    line = "Another kbevolve process is measuring on this device; this run goes on whenever that one is done."
    home = session_with(KnownJudge())
    home.run()
    assert line not in home.said
    monkeypatch.setattr("kbevolve.evaluators.device.lock.is_taken", lambda device: True)
    home.run()
    assert home.said.count(line) == 1


def test_ctrl_c_before_any_verdict_does_not_call_kernels_wrong(session_with: Any) -> None:
    home = session_with(KnownJudge())

    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    ending = home.run(observer=stop)
    assert ending.reason is StopReason.INTERRUPTED
    console = Console(record=True, width=200)
    print_summary(console, context_of(home.archive, home.archive.runs.get(), DEVICE_HERE, CHOSEN), ending)
    text = console.export_text()
    assert "No kernel was correct" not in text
    assert "interrupted" in text


def test_the_wall_time_of_a_run_counts_every_session(session_with: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    judge = KnownJudge()
    home = session_with(judge)
    chosen = settings(generations=3).model_copy(update={"budget": BudgetSettings(wall_seconds=3000)})

    def stop(event: Event) -> None:
        raise KeyboardInterrupt

    assert home.run(chosen, observer=stop).reason is StopReason.INTERRUPTED
    run = home.archive.runs.get()
    first = home.archive.runs.wall_seconds(run.id)
    assert 0 < first < 60

    with monkeypatch.context() as patch:
        patch.setattr(store, "now", lambda: "2025-01-01T10:00:00.000+00:00")
        began = home.archive.start_session(run.id)
        patch.setattr(store, "now", lambda: "2025-01-01T10:50:00.000+00:00")
        home.archive.end_session(run.id, began)
    context = context_of(home.archive, run, DEVICE_HERE, chosen)
    ending = run_session(context, HERE, observer=home.events.append, say=home.said.append)
    assert (ending.reason, ending.baselines) == (StopReason.WALL_TIME_SPENT, ())
    assert "torch.compile is not timed" in home.said[-1]
    assert not judge.measured_baselines
    assert home.archive.run_view(run).last_generation() == 0
    assert home.archive.runs.wall_seconds(run.id) > 3000 + first


def test_a_limit_that_cannot_be_kept_is_refused_first(session_with: Any) -> None:
    home = session_with(KnownJudge())
    chosen = settings().model_copy(
        update={"budget": BudgetSettings(dollars=3), "llm": LLMSettings(model="nobody", api_base="http://127.0.0.1:9")}
    )
    with pytest.raises(SettingsError, match="price of model 'nobody'"):
        home.run(chosen)
    assert home.archive.runs.births(home.archive.runs.get().id) == []


def test_the_display_shows_what_several_judges_do(session_with: Any) -> None:
    home = session_with(KnownJudge())
    home.run()
    last = home.events[-1]
    first, second = home.archive.runs.births(home.archive.runs.get().id)[:2]
    live = shown_on(Console(record=True, width=150), LiveProgress)

    def now(**changes: Any) -> str:
        shown = Console(record=True, width=150)
        shown.print(live.shown(changed(last, **changes)))
        return shown.export_text().removesuffix("\n").split("\n")[-1].strip()

    assert now(judging=(first,)) == f"judging {first.kernel}: naive"
    assert now(judging=(replace(first, note=""),)) == f"judging {first.kernel}"
    assert now(judging=(first, second), waiting=5, asked=3) == "judging 2 kernels; 5 more wait; 3 requested from models"
    assert now(contest=("a", "b"), judging=(first, second)) == "measuring a again, beside b, eager; judging 2 kernels"
    assert now() == "", "nothing is under way"

"""Generations that overlap: neither the number and speed of judges nor the place of a kill changes the archive."""

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, Evaluation, Idea, Kernel, Operator, StopReason
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import Settings
from kbevolve.evolve.proposers.base import Brief, Proposal, Proposer
from kbevolve.evolve.search import search as search_module
from kbevolve.evolve.search.search import Search
from kbevolve.evolve.strategies.base import TUNED_LOOKAHEAD
from kbevolve.evolve.strategies.evolve import INSPIRED_FROM
from kbevolve.islands.selection import FAR_AHEAD
from tests.evolve.doubles import KnownConfirmer, KnownEvaluator, ScriptedProposer, kernel, open_run, search, settings

SLOW = pytest.mark.slow
STARTS = [kernel(), kernel(UNROLL=2)]
#: Kernels that look better than they are, or do not pass again: contests with every outcome.
LUCK = {kernel(UNROLL=2, TILE=32).id: 1.4, kernel(UNROLL=4, TILE=32).id: 1.3}
FAILING = {kernel(UNROLL=4, TILE=32, PACK=1).id, kernel(UNROLL=2, TILE=16).id}


class Slow(KnownEvaluator):
    """Answers after a random delay, independent of the run's seed; counts how many kernels it has at once."""

    def __init__(self, *, milliseconds: float = 2.0, interrupt_at: int | None = None) -> None:
        super().__init__(interrupt_at=interrupt_at, luck=LUCK)
        self.milliseconds = milliseconds
        self.at_once = self.most = 0
        self._lock = threading.Lock()

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        with self._lock:
            found = super().evaluate(problem, kernel)
            self.at_once += 1
            self.most = max(self.most, self.at_once)
        time.sleep(Random().random() * self.milliseconds / 1e3)
        with self._lock:
            self.at_once -= 1
        return found


def written(brief: Brief) -> Proposal:
    """A model of few words, so that it repeats itself and others, and is often wrong."""
    time.sleep(Random().random() / 1e3)
    broken = brief.rng.random() < 0.5
    word = brief.rng.randrange(6)
    source = f"class ModelNew: broken = {word}\n" if broken else kernel(UNROLL=brief.rng.choice((1, 2, 4, 8))).source
    if brief.rng.random() < 0.3:
        source = kernel(TILE=brief.rng.choice((16, 32, 64)), PACK=1).source
    kernel_ = Kernel.from_source(source)
    shown = [
        [failure.kernel.id for failure in brief.learnt.failures],
        [parent.kernel.id for parent in brief.parents],
        [parent.children for parent in brief.parents],
        [member.kernel.id for member in brief.learnt.history],
        [member.kernel.id for member in brief.inspirations],
        brief.repair and (brief.repair.kernel.id, brief.repair.evaluation.message, brief.repair.idea),
        brief.known(kernel_.id),
        brief.learnt.memory,
        (brief.island.stage, brief.island.policy.name),
    ]
    idea = Idea(title=f"idea {word}", mechanism="m", technique="t") if brief.repair is None else brief.repair.idea
    # The prompt is all that the brief says: whatever of it depended on time would be seen in the archive.
    return Proposal(
        state=BirthState.CREATED, kernel=kernel_, idea=idea, note=source[:20], prompt=repr(shown), model="m"
    )


def drawn(brief: Brief) -> Proposal:
    """Any setting that the run has not had: the tunables' proposer without its learning, for speed."""
    for _ in range(100):
        choices = {"UNROLL": (1, 2, 4, 8), "TILE": (8, 16, 32, 64), "PACK": (0, 1), "WRONG": (0, 0, 1)}
        found = kernel(**{name: brief.rng.choice(values) for name, values in choices.items()})
        if not brief.known(found.id):
            return Proposal(state=BirthState.CREATED, kernel=found, prompt=repr(len(brief.learnt.history)))
    return Proposal(state=BirthState.EXHAUSTED)


def model() -> dict[Operator, Proposer]:
    scripted = ScriptedProposer(written)
    writing = dict.fromkeys((Operator.MUTATE, Operator.REWRITE, Operator.CROSS, Operator.REPAIR), scripted)
    return {**writing, Operator.TUNE: ScriptedProposer(drawn)}


def tunables() -> None:
    """No model: the proposers that `search` has by itself."""


def offline() -> dict[Operator, Proposer]:
    return {Operator.TUNE: ScriptedProposer(drawn)}


PROPOSERS: Mapping[str, Callable[[], Any]] = {"tunables": tunables, "offline": offline, "model": model}


def chosen(lookahead: int | str, **others: Any) -> Settings:
    return settings(
        **{"generations": 10, "islands": 3, "migration_every": 2, "repair_turns": 2, "seed": 34} | others,
        lookahead=lookahead,
        evaluation={"confirm_rounds": 2},  # intervals of many rounds are most of the time of such a run
    )


def make(archive: Archive, asked: Settings, who: str, evaluator: KnownEvaluator, **options: Any) -> Search:
    run = open_run(archive, asked) if not archive.runs.summaries() else archive.runs.get()
    confirmer = options.pop("confirmer", None) or KnownConfirmer(failing=FAILING)
    return search(
        archive, run, asked, evaluator, proposers=PROPOSERS[who](), starts=STARTS, confirmer=confirmer, **options
    )


def facts(archive: Archive) -> dict[str, Any]:
    """Everything that a run left but moments, seconds and the order of writing."""
    run = archive.runs.get()
    return {
        "births": [
            (birth.id, birth.operator, birth.state, birth.kernel, birth.parents, birth.idea, birth.note, birth.prompt)
            for birth in archive.runs.births(run.id)
        ],
        "evaluations": {name: archive.kernels.evaluations(name) for name in sorted(archive.runs.kernels(run.id))},
        "placements": archive.runs.placements(run.id),
        "confirmations": archive.runs.confirmations(run.id),
        "stopped": archive.runs.summary(run).stopped,
    }


@cache
def undisturbed(who: str, lookahead: int | str) -> dict[str, Any]:
    archive = Archive(":memory:")
    make(archive, chosen(lookahead), who, KnownEvaluator(luck=LUCK)).run()
    return facts(archive)


@pytest.mark.parametrize(
    ("who", "lookahead", "widths"),
    [
        ("tunables", 1, (4,)),
        ("model", 3, (4, 16)),
        *(pytest.param(who, lookahead, (1, 4, 16), marks=SLOW) for who in PROPOSERS for lookahead in (0, 1, 3)),
    ],
)
def test_the_archive_does_not_depend_on_the_number_and_speed_of_judges(
    who: str, lookahead: int, widths: tuple[int, ...]
) -> None:
    for width in widths:
        archive, evaluator = Archive(":memory:"), Slow(milliseconds=20)
        make(archive, chosen(lookahead), who, evaluator, width=width).run()
        assert facts(archive) == undisturbed(who, lookahead), f"width {width} made a difference"
        assert max(evaluator.asked.values()) == 1, "a kernel was judged twice"
        assert evaluator.most <= width


class Waiting(KnownEvaluator):
    """Answers none of the first six children before it has all of them."""

    def __init__(self) -> None:
        super().__init__()
        self.together = threading.Barrier(6)
        self.first = iter(range(6))

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        if kernel not in STARTS and next(self.first, None) is not None:
            self.together.wait(30)
        return super().evaluate(problem, kernel)


def test_two_generations_of_three_children_are_judged_at_once() -> None:
    archive = Archive(":memory:")
    reason = make(archive, chosen(1), "offline", Waiting(), width=6).run()  # a broken barrier would raise
    assert reason is StopReason.GENERATIONS


def test_the_scripted_model_causes_the_hard_cases_of_overlap() -> None:
    births = undisturbed("model", 3)["births"]
    states = Counter(state for _, _, state, *_ in births)
    repairs = [slot for slot, operator, *_ in births if operator is Operator.REPAIR]
    born = Counter(kernel for _, operator, state, kernel, *_ in births if state is BirthState.CREATED)
    assert states[BirthState.DUPLICATE] > 2
    assert any(slot.endswith("s2") for slot in repairs)
    assert max(born.values()) > 2, "no equal kernels in flight"
    assert len(undisturbed("model", 3)["confirmations"]) > 3


def test_lookahead_is_what_children_do_not_know() -> None:
    assert undisturbed("tunables", 0) != undisturbed("tunables", 1)
    for lookahead in (0, 2):
        briefs: list[Brief] = []

        def watch(brief: Brief, briefs: list[Brief] = briefs) -> Proposal:
            briefs.append(brief)
            source = f"class ModelNew: number = {len(briefs)}\n"
            return Proposal(state=BirthState.CREATED, kernel=Kernel.from_source(source))

        archive, asked = Archive(":memory:"), settings(generations=6, islands=1, lookahead=lookahead)
        run = open_run(archive, asked)
        search(archive, run, asked, KnownEvaluator(), proposers={Operator.TUNE: ScriptedProposer(watch)}).run()
        # The starting kernel and a child of each generation that was closed.
        assert [len(brief.learnt.history) for brief in briefs] == [1 + max(g - 1 - lookahead, 0) for g in range(1, 7)]


def test_by_default_a_model_knows_all_and_tuned_children_overlap() -> None:
    for who, lookahead in (("model", 0), ("offline", TUNED_LOOKAHEAD)):
        assert undisturbed(who, "auto") == undisturbed(who, lookahead), who


@pytest.mark.parametrize("lookahead", [0, 2])
def test_a_champion_is_shown_to_islands_far_behind_as_soon_as_a_child_can_know_it(lookahead: int) -> None:
    """The runs of this file show one, too: their prompts say what was shown, so that a resumed run must agree."""
    archive = Archive(":memory:")
    searching = make(archive, chosen(lookahead, seed=7), "model", KnownEvaluator(luck=LUCK))
    searching.run()
    assert searching.population.totals.judged < INSPIRED_FROM, "elites of other niches are not shown either"
    inspired = [brief for brief in briefs_of(searching) if brief.inspirations]
    for brief in inspired:
        (champion,) = brief.inspirations
        birth = archive.run_view(archive.runs.get()).first_birth(champion.kernel.id)
        assert birth is not None
        assert brief.child.startswith(f"g{birth.generation + 1 + lookahead}/"), "at once, and only then"
        assert birth.island != brief.island.number
        assert champion.fitness > FAR_AHEAD * max(parent.fitness for parent in brief.parents)
    assert len(inspired) == 2


@pytest.mark.parametrize(
    ("who", "lookahead", "step"),
    [
        ("model", 2, 11),
        ("model", "auto", 17),
        pytest.param("offline", 2, 1, marks=SLOW),
        pytest.param("model", 2, 1, marks=SLOW),
        pytest.param("model", "auto", 1, marks=SLOW),
    ],
)
def test_a_run_interrupted_at_any_evaluation_pays_for_nothing_twice(
    tmp_path: Path, who: str, lookahead: int | str, step: int
) -> None:
    whole = undisturbed(who, lookahead)
    for cut in range(0, 1000, step):
        path = tmp_path / f"{cut}.db"
        first, second = Slow(milliseconds=0.5, interrupt_at=cut), Slow(milliseconds=0.5)
        with Archive(path) as archive:
            searching = make(archive, chosen(lookahead), who, first, width=3)
            interrupted = False
            try:
                searching.run()
            except KeyboardInterrupt:
                interrupted = True
        with Archive(path) as archive:
            again = make(archive, chosen(lookahead), who, second, width=3)
            again.run()
            assert facts(archive) == whole, f"cut at {cut}"
        assert max((first.asked + second.asked).values()) == 1, "a kernel was judged twice"
        asked = sum(len(briefs_of(one)) for one in (searching, again))
        assert asked == sum(operator is not Operator.SEED for _, operator, *_ in whole["births"]), f"cut at {cut}"
        if not interrupted:
            break
    assert cut > 15, "the run was too short to prove anything"


def briefs_of(searching: Search) -> list[Brief]:
    proposers = {id(one): one for one in searching.generations.proposers.values()}.values()
    return [brief for one in proposers for brief in one.briefs]


class Killed(BaseException):
    """Stands for SIGKILL: nothing that is written afterwards arrives."""


def kill(archive: Archive, write: str, cut: int, *, after: bool) -> None:
    """Let the process die in call number `cut` of a writing method, before or after it has written."""
    left = iter(range(cut, -1, -1))
    dead = threading.Event()

    def mortal(name: str, original: Callable[..., None]) -> Callable[..., None]:
        def wrapped(*arguments: Any, **named: Any) -> None:
            if dead.is_set():
                raise Killed
            last = name == write and next(left, None) == 0
            if last:
                dead.set()
            if not last or after:
                original(*arguments, **named)
            if last:
                raise Killed

        return wrapped

    for name in ("add_birth", "add_evaluation", "add_placement", "add_contest", "add_generation_end", "add_stop"):
        setattr(archive, name, mortal(name, getattr(archive, name)))


WRITES = {
    "add_birth": (9, 0, 7, 13, 27), "add_evaluation": (6, 0, 3, 14), "add_placement": (2, 0, 5),
    "add_contest": (1, 0, 2), "add_generation_end": (3, 0, 1, 10), "add_stop": (0,),
}  # fmt: skip


@pytest.mark.parametrize(
    ("who", "write", "cuts"),
    [
        *(("model", write, cuts[:1]) for write, cuts in WRITES.items()),
        *(pytest.param(who, write, cuts, marks=SLOW) for who in ("offline", "model") for write, cuts in WRITES.items()),
    ],
)
def test_a_run_killed_around_any_write_ends_as_the_undisturbed_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, who: str, write: str, cuts: tuple[int, ...]
) -> None:
    monkeypatch.setattr(search_module, "INTERRUPTED_SECONDS", 0.0)
    for cut in cuts:
        for after in (False, True):
            path = tmp_path / f"{cut}{after}.db"
            with Archive(path) as archive:
                searching = make(archive, chosen(2), who, Slow(milliseconds=0.5), width=3)
                kill(archive, write, cut, after=after)
                with pytest.raises(Killed):
                    searching.run()
            with Archive(path) as archive:
                make(archive, chosen(2), who, Slow(milliseconds=0.5), width=3).run()
                assert facts(archive) == undisturbed(who, 2), (write, cut, after)


def test_a_finished_run_goes_further_as_if_it_had_never_paused() -> None:
    archive, whole = Archive(":memory:"), Archive(":memory:")
    make(archive, chosen(2, generations=5), "offline", KnownEvaluator(luck=LUCK)).run()
    make(archive, chosen(2), "offline", KnownEvaluator(luck=LUCK)).run()
    make(whole, chosen(2), "offline", KnownEvaluator(luck=LUCK)).run()
    # Where it paused, all verdicts were in before the next generation was bred: it need not end alike, but it must end.
    assert archive.runs.summary(archive.runs.get()).stopped is StopReason.GENERATIONS
    assert archive.runs.summary(archive.runs.get()).births == whole.runs.summary(whole.runs.get()).births

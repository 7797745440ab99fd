"""What came of ideas and techniques, counted for people: of a run, or of everything that an archive holds."""

import math
import statistics
from dataclasses import dataclass
from typing import Any

from kbevolve.archive.record_json import to_json
from kbevolve.archive.records import Run, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.state.knowledge import Gain, IdeaOutcome
from kbevolve.evolve.state.lessons import Pair
from kbevolve.evolve.state.normalise import bottleneck_class, folded
from kbevolve.evolve.state.replay import CarriedOut, carried_out, memory_of
from kbevolve.evolve.state.transfer import from_text
from kbevolve.islands.credit.techniques import Experience

#: States of an idea.
PAID, EXHAUSTED, NO_GAIN, FAILED = "paid", "exhausted", "no gain", "failed"


@dataclass(frozen=True, slots=True, kw_only=True)
class IdeaScore:
    """An idea and what came of it."""

    title: str
    mechanism: str
    technique: str
    #: Class of the bottleneck; "" when none was stated.
    against: str
    proposed_by: str
    problem: str
    children: int
    births: int
    correct: int
    #: The best, over the parent; None while no child of it worked.
    gain: Gain | None
    #: The kernel with that gain; "" for none.
    kernel: str
    #: "paid" where the gain is beyond doubt, "exhausted", "no gain", or "failed" where it may be tried once more.
    state: str
    #: Why it is exhausted; "" when it is not.
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TechniqueScore:
    """A technique against a bottleneck and what came of it."""

    technique: str
    against: str
    problems: int
    births: int
    correct: int
    #: Geometric mean and best of the correct ones' gains, factors; None where there is none.
    mean_gain: float | None
    best_gain: float | None
    #: Share of its children that are expected to be correct, and what one is expected to gain (a share, losses and
    #: failures counted as nothing), by all that is believed.
    validity: float
    credit: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """All of them, the best first."""

    ideas: tuple[IdeaScore, ...]
    techniques: tuple[TechniqueScore, ...]
    #: Ideas that are exhausted, with reasons; and lessons. Of a run only.
    exhausted: tuple[str, ...] = ()
    lessons: tuple[str, ...] = ()

    def as_json(self, limit: int | None = None) -> dict[str, Any]:
        """As plain values."""
        tree = to_json(self)
        return {**tree, "ideas": tree["ideas"][:limit]}


def of_run(archive: Archive, run: Run) -> Scores:
    """The scores of a run; credit as its next child would see it."""
    text = archive.runs.transfer(run.id)
    elsewhere = from_text(text, archive).tallies if text else {}
    memory, carried = memory_of(archive, run, elsewhere), list(carried_out(archive, run))
    problem = archive.problems.get(run.problem).name
    return Scores(
        ideas=_ideas({problem: carried}),
        techniques=_techniques({problem: carried}, memory.experience),
        exhausted=tuple(f"{one.idea.title} ({one.idea.technique}): {one.exhausted}" for one in memory.exhausted()),
        lessons=tuple(lesson.line for lesson in memory.lessons),
    )


def of_archive(archive: Archive) -> Scores:
    """The scores of all runs together; credit as if they were one run."""
    carried: dict[str, list[CarriedOut]] = {}
    experience = Experience()
    for summary in reversed(archive.runs.summaries()):
        problem = archive.problems.get(summary.run.problem).name
        for one in carried_out(archive, summary.run):
            carried.setdefault(problem, []).append(one)
            log = one.gain.log if one.gain else None
            experience = experience.with_child(*_pair(one), one.birth.island, log)
    return Scores(ideas=_ideas(carried), techniques=_techniques(carried, experience))


def _ideas(carried: dict[str, list[CarriedOut]]) -> tuple[IdeaScore, ...]:
    by_title: dict[tuple[str, str], list[CarriedOut]] = {}
    for problem, children in carried.items():
        for one in children:
            by_title.setdefault((problem, folded(one.idea.title)), []).append(one)
    scores = []
    for (problem, _), same in by_title.items():
        outcome = IdeaOutcome(idea=same[0].idea)
        for one in same:
            outcome = outcome.after(one.birth, one.evaluation, one.gain)
        best = max(same, key=lambda one: one.gain.factor if one.gain else 0.0)
        idea, paid = outcome.idea, outcome.gain is not None and outcome.gain.low > 1
        untried = NO_GAIN if outcome.worked else FAILED
        scores.append(
            IdeaScore(
                title=idea.title,
                mechanism=idea.mechanism,
                technique=idea.technique,
                against=bottleneck_class(idea.bottleneck),
                proposed_by=idea.proposed_by,
                problem=problem,
                children=outcome.children,
                births=outcome.births,
                correct=outcome.worked,
                gain=outcome.gain,
                kernel=(best.birth.kernel or "") if best.gain else "",
                state=PAID if paid else EXHAUSTED if outcome.exhausted else untried,
                reason=outcome.exhausted,
            )
        )
    return tuple(sorted(scores, key=lambda one: (-(one.gain.factor if one.gain else 0.0), -one.correct, one.title)))


def _techniques(carried: dict[str, list[CarriedOut]], experience: Experience) -> tuple[TechniqueScore, ...]:
    by_pair: dict[Pair, list[tuple[str, CarriedOut]]] = {}
    for problem, children in carried.items():
        for one in children:
            by_pair.setdefault(_pair(one), []).append((problem, one))
    scores = []
    for pair, found in by_pair.items():
        belief, verdicts = experience.belief(*pair), [one.evaluation.verdict for _, one in found if one.evaluation]
        gains = [one.gain.factor for _, one in found if one.gain is not None]
        scores.append(
            TechniqueScore(
                technique=pair[0],
                against=pair[1],
                problems=len({problem for problem, _ in found}),
                births=len(found),
                correct=verdicts.count(Verdict.CORRECT),
                mean_gain=statistics.geometric_mean(gains) if gains else None,
                best_gain=max(gains, default=None),
                validity=belief.validity,
                credit=math.expm1(belief.improvement),
            )
        )
    return tuple(sorted(scores, key=lambda one: (-one.credit, one.technique, one.against)))


def _pair(one: CarriedOut) -> Pair:
    return one.idea.technique, bottleneck_class(one.idea.bottleneck)

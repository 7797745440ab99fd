"""Best-so-far of a run as numbers, for figures and comparisons."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kbevolve.archive.records import Birth, Confirmation, Evaluation, Idea, Operator, Run, Verdict
from kbevolve.archive.store import Archive


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One kernel of a run, at its first evaluation."""

    #: Children evaluated up to and with this one, 0 for starting kernels; or another measure (`measures.measured`).
    count: float
    birth: Birth
    evaluation: Evaluation


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """A kernel that became the best of the run."""

    point: Point
    #: Its speedup over that of the best before it; None for the first.
    gain: float | None
    #: A short description: the title of its idea, else the note of its birth.
    words: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """One run."""

    run: Run
    #: Every evaluated kernel, in order of birth.
    points: tuple[Point, ...]
    #: Every best of the run, in order; empty while nothing is correct.
    steps: tuple[Step, ...]
    #: The confirmation that the run publishes; None without one.
    champion: Confirmation | None = None
    #: The kernel that is the reference itself, which is never the best; None where that is unknown.
    reference: str | None = None

    @property
    def children(self) -> int:
        """Children evaluated: starting kernels do not count."""
        return sum(point.birth.operator is not Operator.SEED for point in self.points)

    @property
    def extent(self) -> float:
        """Where the last kernel lies."""
        return max((point.count for point in self.points), default=0)

    @property
    def best(self) -> Evaluation | None:
        """Evaluation of the best kernel, None while nothing is correct."""
        return self.steps[-1].point.evaluation if self.steps else None

    @property
    def published(self) -> float | None:
        """Speedup over eager of the champion, else of the best kernel; None while nothing is correct."""
        best = self.champion or (self.best and self.best.timing)
        return best.speedup if best else None


def curve_of(archive: Archive, run: Run) -> Curve:
    """The curve of a run in an archive."""
    return curve(
        run,
        archive.runs.births(run.id, texts=False),
        archive.runs.evaluations(run.id),
        archive.runs.ideas(run.id),
        reference=archive.runs.reference(run),
        champion=archive.runs.champion(run.id),
    )


def curve(
    run: Run,
    births: Iterable[Birth],
    evaluations: Mapping[str, Evaluation],
    ideas: Mapping[str, Idea],
    *,
    reference: str | None = None,
    champion: Confirmation | None = None,
) -> Curve:
    """The curve of a run.

    The best is the kernel with the highest lower end of its speedup's 95 % interval, as for the islands: what a
    kernel has at least shown. So the speedup itself may dip where a more certain measurement takes the lead.

    Args:
        run: the run.
        births: its births in order.
        evaluations: by kernel id; a birth whose kernel has none yet is left out.
        ideas: by id.
        reference: id of the kernel that is the reference itself. It is a point, but never the best: it is what the
            others are measured against, and a best line that starts there hides how far the search has come.
        champion: what the run publishes. The curve itself shows first evaluations, on which the search decided.
    """
    points: list[Point] = []
    steps: list[Step] = []
    seen: set[str] = set()
    count = 0
    for birth in births:
        evaluation = evaluations.get(birth.kernel or "")
        if evaluation is None or evaluation.kernel in seen:
            continue
        seen.add(evaluation.kernel)
        count += birth.operator is not Operator.SEED
        point = Point(count=0 if birth.operator is Operator.SEED else count, birth=birth, evaluation=evaluation)
        points.append(point)
        speedup, shown = evaluation.timing.speedup, evaluation.timing.speedup_low or 0.0
        if evaluation.verdict is not Verdict.CORRECT or speedup is None or evaluation.kernel == reference:
            continue
        before = steps[-1].point.evaluation.timing if steps else None
        if before is None or shown > (before.speedup_low or 0.0):
            idea, old = ideas.get(birth.idea or ""), before and before.speedup
            words = idea.title if idea else birth.note
            steps.append(Step(point=point, gain=speedup / old if old else None, words=words))
    return Curve(run=run, points=tuple(points), steps=tuple(steps), champion=champion, reference=reference)

"""Which kernel is the best: of each problem in an archive, and in which order the kernels of a run are listed."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kbevolve.archive.records import Confirmation, Evaluation
from kbevolve.archive.run_queries import RunSummary, precision_of

if TYPE_CHECKING:
    from kbevolve.archive.store import Archive

#: Why a list is in this order, and why its last row is the last, for people.
ORDER_WORDS = "The best is marked; the others follow by the lower ends of their intervals."
REFERENCE_WORDS = "The reference itself is what the others are compared with; it is never the best."


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """The best kernel of a problem on a device at a precision."""

    problem: str
    device: str
    precision: str
    kernel: str
    #: The run that published it, or else the first one that has it; "" for a kernel without lineage.
    run: str
    confirmed: bool
    speedup: float | None
    speedup_low: float | None
    speedup_high: float | None
    time_ms: float | None
    reference_ms: float | None


def place(kernel: str | None, speedup_low: float | None, *, best: str | None, reference: str) -> tuple[int, float]:
    """The place of a kernel in the list of its run: the best, the others by what they have at least shown, and the
    reference itself last."""
    return 0 if kernel == best else 2 if kernel == reference else 1, -(speedup_low or 0.0)


def by_task(summaries: list[RunSummary]) -> dict[tuple[str, str, str], list[RunSummary]]:
    """Runs by problem, device and precision, whose speedups compare; in the order of their newest runs."""
    alike: dict[tuple[str, str, str], list[RunSummary]] = {}
    for one in summaries:
        alike.setdefault((one.run.problem, one.run.device, precision_of(one.run)), []).append(one)
    return alike


def standings(archive: "Archive", summaries: list[RunSummary]) -> Iterator[Standing]:
    """The best kernel of each problem, device and precision that has a correct one, by the newest run of each."""
    for task, alike in by_task(summaries).items():
        fittest = archive.problems.best(*task)
        if fittest is None:
            continue
        champions = [one.champion for one in alike if one.champion and one.champion.kernel == fittest.kernel]
        confirmed = max(champions, key=lambda one: one.speedup_low, default=None)
        published = confirmed or fittest.timing
        yield Standing(
            problem=alike[0].run.problem_name,
            device=task[1],
            precision=task[2],
            kernel=fittest.kernel,
            run=_run_of(archive, fittest, confirmed),
            confirmed=confirmed is not None,
            speedup=published.speedup,
            speedup_low=published.speedup_low,
            speedup_high=published.speedup_high,
            time_ms=published.time_ms,
            reference_ms=published.reference_ms,
        )


def _run_of(archive: "Archive", fittest: Evaluation, confirmed: Confirmation | None) -> str:
    if confirmed:
        return confirmed.run
    return next((birth.run for birth in archive.kernels.births(fittest.kernel)), "")

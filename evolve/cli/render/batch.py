"""A batch on a terminal: a progress line on standard error, and a summary."""

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from types import TracebackType
from typing import Any, Self

from rich.console import Console
from rich.live import Live
from rich.text import Text

from kbevolve.archive.batch_results import BatchResult
from kbevolve.archive.formatting import as_times, duration_words, speedup_words, verdict_words
from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE
from kbevolve.evolve.cli.render.tables import printable
from kbevolve.evolve.runs.batch import Batch

#: Seconds in an hour.
_HOUR = 3600.0


class BatchProgress:
    """Progress of a batch: one changing line on a terminal, a line for each kernel elsewhere.

    Redrawn at each verdict and not by a clock: a redraw during a timed block would be measured.

    Args:
        total: kernels to judge.
        console: standard error.
    """

    def __init__(self, total: int, console: Console) -> None:
        self._total = total
        self._console = console
        self._started = monotonic()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None
        #: Results in order of arrival.
        self.findings: list[BatchResult] = []

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.__enter__()
            self._live.update(Text(f"0/{self._total} judged"), refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.__exit__(kind, error, trace)

    def __call__(self, finding: BatchResult) -> None:
        """Show a result that is on the disk."""
        self.findings.append(finding)
        found, count = finding.evaluation, f"{len(self.findings)}/{self._total}"
        if self._live is None:
            plain = f"{count} {finding.file}: {_outcome(found)}, {found.execution.seconds:.1f} s"
            self._console.print(printable(plain), highlight=False, markup=False, soft_wrap=True)
            return
        line = Text(f"{count} judged, {self.words}; ", no_wrap=True, overflow="ellipsis")
        line.append(f"{finding.file}: ", style="dim").append(_outcome(found), style=VERDICT_STYLE[found.verdict])
        self._live.update(line, refresh=True)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return monotonic() - self._started

    @property
    def per_hour(self) -> float:
        """Kernels per hour so far."""
        return len(self.findings) / max(self.seconds, 1e-9) * _HOUR

    @property
    def words(self) -> str:
        """``41 correct, 1240 per hour, 0:40 left``."""
        correct = sum(one.evaluation.verdict is Verdict.CORRECT for one in self.findings)
        left = (self._total - len(self.findings)) * self.seconds / max(len(self.findings), 1)
        return f"{correct} correct, {self.per_hour:.0f} per hour, {duration_words(left)} left"


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """The results of a batch."""

    #: The file.
    out: Path
    #: Kernels judged now, those with an earlier line, and those without a line.
    judged: int
    known: int
    left: int
    #: All judged kernels of the batch by verdict.
    verdicts: dict[str, int]
    #: The CORRECT kernel with the highest lower end of its interval: id, file and speedup; None if there is none.
    best: dict[str, Any] | None
    #: Files with the kernel of another file, and unreadable files.
    again: int
    unreadable: int
    #: Seconds of this session, and its kernels per hour.
    seconds: float
    per_hour: float


def summary_of(batch: Batch, findings: list[BatchResult], progress: BatchProgress, out: Path) -> BatchSummary:
    """The summary; `findings` are the lines of the batch's kernels in the file, including those of this session."""
    verdicts = Counter(one.evaluation.verdict for one in findings)
    correct = [one for one in findings if one.evaluation.verdict is Verdict.CORRECT]
    best = max(correct, key=lambda one: one.evaluation.timing.speedup_low or 0.0, default=None)
    return BatchSummary(
        out=out,
        judged=len(progress.findings),
        known=len(findings) - len(progress.findings),
        left=len(batch.kernels) - len(findings),
        verdicts={verdict.name.lower(): verdicts[verdict] for verdict in reversed(Verdict) if verdicts[verdict]},
        best={"kernel": best.evaluation.kernel, "file": best.file, "speedup": best.evaluation.timing.speedup}
        if best
        else None,
        again=len(batch.again),
        unreadable=len(batch.unreadable),
        seconds=round(progress.seconds, 3),
        per_hour=round(progress.per_hour, 1),
    )


def print_batch_summary(console: Console, summary: BatchSummary) -> None:
    """Counts, the best kernel, and what to type next."""
    counts = ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in summary.verdicts.items())
    lines = [f"{_kernels(sum(summary.verdicts.values()))}: {counts or 'none judged yet'}"]
    if summary.best:
        speedup = as_times(summary.best["speedup"])
        lines.append(f"Best: {summary.best['kernel']} ({summary.best['file']}), {speedup} over eager, not confirmed.")
    counts_of = {
        "had a line": summary.known,
        "are not judged yet": summary.left,
        "files repeat a kernel": summary.again,
        "files could not be read": summary.unreadable,
    }
    if any(counts_of.values()):
        lines.append("; ".join(f"{count} {words}" for words, count in counts_of.items() if count) + ".")
    if summary.judged:
        took = duration_words(summary.seconds)
        lines.append(f"Judged {_kernels(summary.judged)} in {took}, {summary.per_hour:.0f} per hour.")
    lines.append(f"Results: {summary.out}. To import them into an archive: kbevolve import {summary.out}")
    for line in lines:
        console.print(Text(printable(line)), soft_wrap=True)


def _kernels(count: int) -> str:
    return f"{count} kernel{'' if count == 1 else 's'}"


def _outcome(found: Evaluation) -> str:
    return speedup_words(found) if found.verdict is Verdict.CORRECT else verdict_words(found.verdict)

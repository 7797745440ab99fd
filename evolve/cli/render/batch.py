"""A batch on a terminal: a progress line on standard error, and a summary."""

import shlex
from collections import Counter
from collections.abc import Mapping
from time import monotonic
from typing import Any

from rich.live import Live
from rich.text import Text

from kbevolve.archive.batch_results import BatchResult
from kbevolve.archive.formatting import as_times, counted, duration_words, over_eager, speedup_words, verdict_words
from kbevolve.archive.records import Verdict
from kbevolve.evolve.cli.render.console import Console
from kbevolve.evolve.cli.render.formats import VERDICT_STYLE, counts_words
from kbevolve.evolve.cli.render.tables import say
from kbevolve.evolve.runs.batch import BatchSession


class BatchProgress(Live):
    """Progress of a batch: one changing line on a terminal, a line for each kernel elsewhere.

    Redrawn at each verdict and not by a clock: a redraw during a timed block would be measured.
    """

    def __init__(self, total: int, console: Console) -> None:
        super().__init__(Text(f"0/{total} judged"), console=console, auto_refresh=False, transient=True)
        self._total = total
        self._began = monotonic()
        #: Results in order of arrival.
        self.findings: list[BatchResult] = []

    def __call__(self, finding: BatchResult) -> None:
        """Show a result that is on the disk."""
        self.findings.append(finding)
        found, count = finding.evaluation, f"{len(self.findings)}/{self._total}"
        outcome = speedup_words(found) if found.verdict is Verdict.CORRECT else verdict_words(found.verdict)
        if not self.console.is_terminal:
            say(self.console, f"{count} {finding.file}: {outcome}, {found.execution.seconds:.1f} s")
            return
        correct = sum(one.evaluation.verdict is Verdict.CORRECT for one in self.findings)
        left = (self._total - len(self.findings)) * self.seconds / len(self.findings)
        rate = f"{correct} correct, {self.per_hour:.0f} per hour, {duration_words(left)} left"
        line = Text(f"{count} judged, {rate}; ", no_wrap=True, overflow="ellipsis")
        line.append(f"{finding.file}: ", style="dim").append(outcome, style=VERDICT_STYLE[found.verdict])
        self.update(line, refresh=True)

    @property
    def seconds(self) -> float:
        """Since the start."""
        return monotonic() - self._began

    @property
    def per_hour(self) -> float:
        """Kernels per hour so far."""
        return len(self.findings) / max(self.seconds, 1e-9) * 3600.0


def summary_of(session: BatchSession, progress: BatchProgress) -> dict[str, Any]:
    """The results of a batch, those of earlier sessions among them."""
    batch, findings = session.batch, session.results().values()
    verdicts = Counter(one.evaluation.verdict for one in findings)
    correct = [one for one in findings if one.evaluation.verdict is Verdict.CORRECT]
    best = max(correct, key=lambda one: one.evaluation.timing.speedup_low or 0.0, default=None)
    return {
        "out": session.out.path,
        # Kernels judged now, those with an earlier line, and those without a line.
        "judged": len(progress.findings),
        "known": len(findings) - len(progress.findings),
        "left": len(batch.kernels) - len(findings),
        "verdicts": {verdict.name.lower(): verdicts[verdict] for verdict in reversed(Verdict) if verdicts[verdict]},
        # The correct kernel with the highest lower end of its interval.
        "best": best
        and {"kernel": best.evaluation.kernel, "file": best.file, "speedup": best.evaluation.timing.speedup},
        # Files with the kernel of another file.
        "again": len(batch.again),
        "unreadable": len(batch.unreadable),
        "seconds": round(progress.seconds, 3),
        "per_hour": round(progress.per_hour, 1),
    }


def print_batch_summary(console: Console, summary: Mapping[str, Any]) -> None:
    """Counts, the best kernel, and what to type next."""
    verdicts, best = summary["verdicts"], summary["best"]
    counts = counts_words({name.replace("_", " "): count for name, count in verdicts.items()})
    say(console, f"{counted(sum(verdicts.values()), 'kernel')}: {counts or 'none judged yet'}")
    if best:
        speedup = over_eager(as_times(best["speedup"]), best["speedup"])
        say(console, f"Best: {best['kernel']} ({best['file']}), {speedup}, not confirmed.")
    others = {
        "had a line": summary["known"],
        "are not judged yet": summary["left"],
        "files repeat a kernel": summary["again"],
        "files could not be read": summary["unreadable"],
    }
    if any(others.values()):
        say(console, "; ".join(f"{count} {words}" for words, count in others.items() if count) + ".")
    if summary["judged"]:
        took = duration_words(summary["seconds"])
        say(console, f"Judged {counted(summary['judged'], 'kernel')} in {took}, {summary['per_hour']:.0f} per hour.")
    out = shlex.quote(str(summary["out"]))
    say(
        console,
        f"Results: {summary['out']}. To import them into an archive: kbevolve import {out}",
    )

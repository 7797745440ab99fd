"""What the pages read, kept in memory until another process writes to the archive."""

import contextlib
import threading
from collections.abc import Callable, Hashable, Mapping, Set
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any, TypeVar

from kbevolve.archive.lineage import first_births
from kbevolve.archive.outlines import OutlineEntry
from kbevolve.archive.records import Confirmation, ProblemCard, Run, Verdict
from kbevolve.archive.run_queries import RunSummary, precision_of
from kbevolve.archive.search_index import SearchIndex
from kbevolve.archive.store import Archive
from kbevolve.configs.errors import ArchiveError

Value = TypeVar("Value")


@dataclass(frozen=True)
class RunFacts:
    """A run, read once for a page."""

    summary: RunSummary
    entries: tuple[OutlineEntry, ...]
    card: ProblemCard | None
    #: Id of the kernel that is the reference itself.
    reference: str
    #: Kernel id to the newest contest of a kernel that still counts as correct.
    confirmed: Mapping[str, Confirmation]
    #: Kernels that failed when they were judged again.
    failed: Set[str]

    @property
    def run(self) -> Run:
        """The run."""
        return self.summary.run

    @cached_property
    def first(self) -> dict[str, OutlineEntry]:
        """Kernel id to the attempt that created it."""
        return first_births(self.entries)

    @cached_property
    def ranked(self) -> tuple[OutlineEntry, ...]:
        """Every kernel once, with its confirmed speedup where it has one: the best first, as in every list; those that
        failed again and the reference itself after the other correct ones."""
        # `archive.standings.place` says the same; here ten thousand kernels are sorted for a page.
        found = [self.published(one) if one.kernel in self.confirmed else one for one in self.first.values()]
        found.sort(key=lambda one: -(one.speedup_low or 0.0))
        groups: tuple[list[OutlineEntry], ...] = [], [], [], []
        best, reference, failed, right = self.summary.best_kernel, self.reference, self.failed, Verdict.CORRECT
        for one in found:
            name = one.kernel
            wrong = one.verdict is not right or name in failed
            groups[3 if wrong else 0 if name == best else 2 if name == reference else 1].append(one)
        return tuple(chain(*groups))

    def published(self, one: OutlineEntry) -> OutlineEntry:
        """The entry with the confirmed speedup of its kernel, where it has one."""
        contest = self.confirmed.get(one.kernel or "")
        if contest is None:
            return one
        names = ("time_ms", "speedup", "speedup_low", "speedup_high")
        return one._replace(**{name: getattr(contest, name) for name in names})

    @property
    def best(self) -> OutlineEntry | None:
        """The published kernel; None while nothing is correct."""
        return self.first.get(self.summary.best_kernel or "")

    @property
    def roofline_share(self) -> float | None:
        """The roofline's time over the best kernel's, 0 to 1; None where one is unknown."""
        return task_roofline_share(self.summary, self.card)


def task_roofline_share(summary: RunSummary, card: ProblemCard | None) -> float | None:
    """The roofline's time over that of a run's best kernel, 0 to 1; None where one is unknown.

    The roofline of the task's precision, so that the runs of a problem have one scale. `kbevolve run` goes by the
    precision that the kernel shows.
    """
    published = summary.champion or (summary.best.timing if summary.best else None)
    if card is None or published is None or not published.time_ms or not card.task_roofline_ms:
        return None
    return min(card.task_roofline_ms / published.time_ms, 1.0)


class Snapshot:
    """An archive behind a cache. Threads may share it."""

    def __init__(self, archive: Archive) -> None:
        self.archive = archive
        self._lock = threading.RLock()
        self._version = archive.version()
        self._kept: dict[Hashable, Any] = {}
        #: Id of a run to its attempts, as they were last read.
        self._outlines: dict[str, tuple[OutlineEntry, ...]] = {}
        self._index: SearchIndex | None = None

    def index(self) -> SearchIndex:
        """The search in ideas and kernels, made when it is first asked for."""
        with self._lock:
            self._index = self._index or self.archive.search_index()
            return self._index

    def prepare(self) -> None:
        """Read the newest run and the texts, so that the first page and the first search need not wait for them."""
        with contextlib.suppress(ArchiveError):  # no run yet, or the archive was closed meanwhile
            self.facts("latest")
            self.index().update()

    def kept(self, key: Hashable, make: Callable[[], Value]) -> Value:
        """The value of this key; made anew when the archive has changed."""
        with self._lock:
            if (version := self.archive.version()) != self._version:
                self._version, self._kept = version, {}
            if key not in self._kept:
                self._kept[key] = make()
            value: Value = self._kept[key]
            return value

    def summaries(self) -> list[RunSummary]:
        """Every run, the newest first."""
        return self.kept("summaries", self.archive.runs.summaries)

    def card(self, run: Run) -> ProblemCard | None:
        """What the judge measured about the run's problem; None where that was not kept."""
        return self.archive.problems.card(run.problem, run.device, precision_of(run))

    def facts(self, which: str) -> RunFacts:
        """A run by its id, the start of it, or "latest".

        Raises:
            ArchiveError: there is none, or several start so.
        """
        run = self.archive.runs.get(which)
        return self.kept(("run", run.id), lambda: self._facts(run))

    def _facts(self, run: Run) -> RunFacts:
        self._outlines[run.id] = self.archive.outline(run, self._outlines.get(run.id, ()))
        return RunFacts(
            summary=self.archive.runs.summary(run),
            entries=self._outlines[run.id],
            card=self.card(run),
            reference=self.archive.runs.reference(run),
            confirmed={one.kernel: one for one in self.archive.runs.confirmations(run.id)},
            failed=self.archive.runs.failed(run.id),
        )

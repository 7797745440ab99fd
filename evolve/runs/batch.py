"""Judges a folder of kernels without an archive, for a GPU node without a network.

Each verdict is on the disk before the next one, so the same command continues a batch that was killed anywhere.
"""

import contextlib
import shlex
from collections.abc import Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from kbevolve.archive.batch_results import BatchResult, Conditions, ResultsFile
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.proposers.seeds.seeds import read_kernel
from kbevolve.evolve.runs.versions import recorded_versions

#: Kernels in a row without a verdict, after which the rest of a batch is not tried.
_MOST_FAILED = 3

Judging = Callable[[Kernel], Evaluation]
#: File and evaluation.
Judged = Generator[tuple[str, Evaluation], None, None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The kernels of a folder."""

    #: Path inside the folder -> kernel. Each kernel once, in the order of the files' paths.
    kernels: Mapping[str, Kernel]
    #: Files with the kernel of an earlier file.
    again: tuple[str, ...] = ()
    #: Why a file cannot be read, one line each.
    unreadable: tuple[str, ...] = ()


def read_batch(folder: Path, *, problem: Problem) -> Batch:
    """All ``*.py`` files of a folder and its folders, except the problem's own file.

    Raises:
        UsageError: it is not a folder, or has no kernel.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a folder; --batch wants a folder of ModelNew files (*.py)")
    kernels: dict[str, Kernel] = {}
    seen: set[str] = set()
    again, unreadable = [], []
    for path in sorted(folder.rglob("*.py")):
        if not path.is_file() or (problem.path.exists() and path.samefile(problem.path)):
            continue
        file = path.relative_to(folder).as_posix()
        try:
            kernel = read_kernel(path)
        except UsageError as error:
            unreadable.append(str(error))
            continue
        if kernel.id in seen:
            again.append(file)
        else:
            seen.add(kernel.id)
            kernels[file] = kernel
    if not kernels:
        command = f"kbevolve pending {shlex.quote(str(folder))}"
        raise UsageError(f"{folder} has no kernel (*.py); write some there: {command}")
    return Batch(kernels=kernels, again=tuple(again), unreadable=tuple(unreadable))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSession:
    """Judges the kernels of a folder, on one device and with one set of settings, into one file."""

    batch: Batch
    problem: Problem
    device: Device
    settings: EvaluationSettings
    #: The file of results.
    out: ResultsFile

    def results(self) -> dict[str, BatchResult]:
        """File -> its line, for the kernels that have one."""
        problem, precision, device = self.problem.id, self.settings.precision, self.device.fingerprint
        lines = {
            file: self.out.known.get(Conditions(kernel.id, problem, precision, device))
            for file, kernel in self.batch.kernels.items()
        }
        return {file: line for file, line in lines.items() if line is not None}

    def missing(self) -> dict[str, Kernel]:
        """File -> its kernel, for the kernels without a line."""
        known = self.results()
        return {file: kernel for file, kernel in self.batch.kernels.items() if file not in known}

    def notes(self) -> Iterator[str]:
        """What to show to the user before the first verdict."""
        yield from self.batch.unreadable
        if self.out.repaired:
            yield f"{self.out.path}: the last line was incomplete; its kernel is judged again"
        settings = self.settings.model_dump_json()
        others = sum(line.settings != settings for line in self.results().values())
        if others:
            yield f"{others} kernels have a line that was written with other settings; another --out judges them again"

    def judge(self, evaluator: Evaluator, *, width: int, report: Callable[[BatchResult], None]) -> None:
        """Judge the kernels without a line, `width` of them at once; `report` takes each line that is on the disk.

        Raises:
            EvaluatorError, ArchiveError: infrastructure failure, raised at the end; what was judged has its line.
            KeyboardInterrupt: the user stopped it; likewise.
        """
        kernels, evaluate = self.missing(), partial(evaluator.evaluate, self.problem)
        versions, settings = recorded_versions(), self.settings.model_dump_json()
        with contextlib.closing(judged(evaluate, kernels, width)) as found:
            for file, evaluation in found:
                result = BatchResult(
                    versions=versions,
                    device=self.device.description,
                    file=file,
                    settings=settings,
                    problem_name=self.problem.name,
                    problem_source=self.problem.source,
                    source=kernels[file].source,
                    evaluation=evaluation,
                )
                self.out.append(result)
                report(result)


def judged(evaluate: Judging, kernels: Mapping[str, Kernel], width: int) -> Judged:
    """Judge kernels by name, `width` of them at once; what is raised comes at the end, as for `BatchSession.judge`."""
    return _one_by_one(evaluate, kernels) if width == 1 else _concurrently(evaluate, kernels, width)


def _one_by_one(evaluate: Judging, kernels: Mapping[str, Kernel]) -> Judged:
    """A kernel may be to blame for an infrastructure failure: the others are judged, unless several fail in a row."""
    broken: list[Exception] = []
    failed = 0
    for file, kernel in kernels.items():
        try:
            found = evaluate(kernel)
        except Exception as error:
            broken.append(error)
            failed += 1
            if failed == _MOST_FAILED:
                break
        else:
            failed = 0
            yield file, found
    if broken:
        raise broken[0]


def _concurrently(evaluate: Judging, kernels: Mapping[str, Kernel], width: int) -> Judged:
    """As `_one_by_one`, in the order of the verdicts; those under way when it ends are still yielded."""
    broken: list[BaseException] = []
    failed = 0
    pool = ThreadPoolExecutor(max_workers=width, thread_name_prefix="kbevolve-batch")
    try:
        submitted = {pool.submit(evaluate, kernel): file for file, kernel in kernels.items()}
        for future in as_completed(submitted):
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                failed = 0
                yield submitted[future], future.result()
                continue
            broken.append(error)
            failed += 1
            if failed == _MOST_FAILED:
                for other in submitted:
                    other.cancel()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if broken:
        raise broken[0]

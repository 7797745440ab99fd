"""Judges a folder of kernels without an archive, for a GPU node without a network.

Each verdict is on the disk before the next one, so the same command continues a batch that was killed anywhere.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from pathlib import Path

from kbevolve.archive.batch_results import BatchResult, Conditions, ResultsFile
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.proposers.seeds.files import read_kernel
from kbevolve.evolve.runs.versions import recorded_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchKernel:
    """One kernel of a folder."""

    #: Path inside the folder.
    file: str
    kernel: Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The kernels of a folder."""

    #: Each kernel once, in the order of the files' paths.
    kernels: tuple[BatchKernel, ...]
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
    kernels: dict[str, BatchKernel] = {}
    again, unreadable = [], []
    for path in sorted(folder.rglob("*.py")):
        if not path.is_file() or (problem.path.exists() and path.samefile(problem.path)):
            continue
        try:
            one = BatchKernel(file=path.relative_to(folder).as_posix(), kernel=read_kernel(path))
        except UsageError as error:
            unreadable.append(str(error))
            continue
        if one.kernel.id in kernels:
            again.append(one.file)
        else:
            kernels[one.kernel.id] = one
    if not kernels:
        raise UsageError(f"{folder} has no kernel (*.py); write some there: kbevolve pending {folder}")
    return Batch(kernels=tuple(kernels.values()), again=tuple(again), unreadable=tuple(unreadable))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSession:
    """Judges kernels of one problem, on one device and with one set of settings, into one file."""

    problem: Problem
    device: Device
    settings: EvaluationSettings
    #: The file of results.
    out: ResultsFile
    _versions: Mapping[str, str] = field(default_factory=recorded_versions, init=False)

    def missing(self, kernels: Sequence[BatchKernel]) -> list[BatchKernel]:
        """The kernels without a line in the file."""
        return [one for one in kernels if self._line(one) is None]

    def results(self, kernels: Sequence[BatchKernel]) -> list[BatchResult]:
        """The lines of these kernels."""
        lines = [self._line(one) for one in kernels]
        return [line for line in lines if line is not None]

    def notes(self, batch: Batch) -> Iterator[str]:
        """What to show to the user before the first verdict."""
        yield from batch.unreadable
        if self.out.repaired:
            yield f"{self.out.path}: the last line was incomplete; its kernel is judged again"
        settings = self.settings.model_dump_json()
        others = sum(line.settings != settings for line in self.results(batch.kernels))
        if others:
            yield (
                f"{others} kernels have a line that was written with other settings; another --out judges them again"
            )

    def judge(
        self,
        evaluator: Evaluator,
        kernels: Sequence[BatchKernel],
        *,
        width: int,
        report: Callable[[BatchResult], None],
    ) -> None:
        """Judge kernels, `width` of them at once; `report` takes each line when it is on the disk.

        Raises:
            EvaluatorError, ArchiveError: infrastructure failure; what was judged has its line.
            KeyboardInterrupt: the user stopped it; likewise.
        """
        judged = _one_by_one if width == 1 else _concurrently
        with contextlib.closing(judged(evaluator, self.problem, kernels, width)) as found:
            for one, evaluation in found:
                result = self._result(one, evaluation)
                self.out.append(result)
                report(result)

    def _line(self, one: BatchKernel) -> BatchResult | None:
        conditions = Conditions(one.kernel.id, self.problem.id, self.settings.precision, self.device.fingerprint)
        return self.out.known.get(conditions)

    def _result(self, one: BatchKernel, evaluation: Evaluation) -> BatchResult:
        return BatchResult(
            versions=dict(self._versions),
            device=self.device.description,
            file=one.file,
            settings=self.settings.model_dump_json(),
            problem_name=self.problem.name,
            problem_source=self.problem.source,
            source=one.kernel.source,
            evaluation=evaluation,
        )


def _one_by_one(
    evaluator: Evaluator, problem: Problem, kernels: Sequence[BatchKernel], width: int
) -> Generator[tuple[BatchKernel, Evaluation], None, None]:
    for one in kernels:
        yield one, evaluator.evaluate(problem, one.kernel)


def _concurrently(
    evaluator: Evaluator, problem: Problem, kernels: Sequence[BatchKernel], width: int
) -> Generator[tuple[BatchKernel, Evaluation], None, None]:
    """In the order of the verdicts. After an infrastructure failure, verdicts under way are still yielded first."""
    broken: Exception | None = None
    pool = ThreadPoolExecutor(max_workers=width, thread_name_prefix="kbevolve-batch")
    try:
        submitted: dict[Future[Evaluation], BatchKernel] = {
            pool.submit(evaluator.evaluate, problem, one.kernel): one for one in kernels
        }
        for future in as_completed(submitted):
            if future.cancelled():
                continue
            error = future.exception()
            if error is None:
                yield submitted[future], future.result()
            elif broken is None:
                broken = error if isinstance(error, Exception) else RuntimeError(repr(error))
                for other in submitted:
                    other.cancel()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if broken is not None:
        raise broken

"""A folder of kernels judged without an archive, for machines that cannot reach it: a GPU node with no network.

Each verdict is on the disk before the next one is waited for, so a batch that is killed anywhere goes on where it was
when the same command is given again.
"""

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

from kbevolve.archive.batch_results import Conditions, Finding
from kbevolve.archive.findings_file import FindingsFile
from kbevolve.archive.records import Evaluation, Kernel
from kbevolve.configs.errors import UsageError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.evaluator import Evaluator
from kbevolve.evolve.proposers.seeds.files import read_kernel
from kbevolve.evolve.runs.versions import recorded_versions


@dataclass(frozen=True, slots=True, kw_only=True)
class Child:
    """One kernel of a folder."""

    #: Path within the folder.
    file: str
    kernel: Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """What a folder holds."""

    #: Each kernel once, in the order of the files' paths.
    children: tuple[Child, ...]
    #: Files that hold the kernel of an earlier file again.
    again: tuple[str, ...] = ()
    #: Why a file could not be read, one line each.
    unreadable: tuple[str, ...] = ()


def read_batch(folder: Path, *, problem: Problem) -> Batch:
    """All ``*.py`` files of a folder and of those in it; the problem's own file is no kernel.

    Raises:
        UsageError: it is no folder, or holds no kernel.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder; --batch wants one that holds ModelNew files (*.py)")
    children: dict[str, Child] = {}
    again, unreadable = [], []
    for path in sorted(folder.rglob("*.py")):
        if not path.is_file() or (problem.path.exists() and path.samefile(problem.path)):
            continue
        try:
            child = Child(file=path.relative_to(folder).as_posix(), kernel=read_kernel(path))
        except UsageError as error:
            unreadable.append(str(error))
            continue
        if child.kernel.id in children:
            again.append(child.file)
        else:
            children[child.kernel.id] = child
    if not children:
        raise UsageError(f"{folder} holds no kernel (*.py); write some there: kbevolve export --births {folder}")
    return Batch(children=tuple(children.values()), again=tuple(again), unreadable=tuple(unreadable))


class Sitting:
    """Judges a batch on one problem, one device and with one set of settings, into one file.

    Args:
        problem: what the kernels are for.
        device: what they are judged on.
        settings: how.
        out: where the findings go.
    """

    def __init__(self, problem: Problem, device: Device, settings: EvaluationSettings, out: FindingsFile) -> None:
        self.problem = problem
        self._device = device
        self.settings = settings
        self._settings_json = settings.model_dump_json()
        self._versions = recorded_versions()
        self._out = out

    @property
    def path(self) -> Path:
        """Where the findings go."""
        return self._out.path

    def missing(self, children: Sequence[Child]) -> list[Child]:
        """Those that have no line in the file."""
        return [child for child in children if self._line(child) is None]

    def findings(self, children: Sequence[Child]) -> list[Finding]:
        """What the file holds of these kernels under these conditions."""
        lines = [self._line(child) for child in children]
        return [line for line in lines if line is not None]

    def notes(self, batch: Batch) -> Iterator[str]:
        """What the user should know before the first verdict."""
        yield from batch.unreadable
        if self._out.repaired:
            yield f"{self._out.path}: the last line was cut short; its kernel is judged again"
        others = sum(line.settings != self._settings_json for line in self.findings(batch.children))
        if others:
            yield (
                f"{others} kernels have a line that was written under other settings; another --out judges them again"
            )

    def judge(
        self, evaluator: Evaluator, children: Sequence[Child], *, width: int, told: Callable[[Finding], None]
    ) -> None:
        """Judge kernels, `width` of them side by side; `told` hears of each when its line is on the disk.

        Raises:
            EvaluatorError, ArchiveError: the rig is broken; what was judged has its line.
            KeyboardInterrupt: the user had enough; likewise.
        """
        judged = _one_by_one if width == 1 else _side_by_side
        with contextlib.closing(judged(evaluator, self.problem, children, width)) as found:
            for child, evaluation in found:
                finding = self._finding(child, evaluation)
                self._out.append(finding)
                told(finding)

    def _line(self, child: Child) -> Finding | None:
        conditions = Conditions(child.kernel.id, self.problem.id, self.settings.precision, self._device.fingerprint)
        return self._out.known.get(conditions)

    def _finding(self, child: Child, evaluation: Evaluation) -> Finding:
        return Finding(
            versions=self._versions,
            device=self._device.description,
            file=child.file,
            settings=self._settings_json,
            problem_name=self.problem.name,
            problem_source=self.problem.source,
            source=child.kernel.source,
            evaluation=evaluation,
        )


def _one_by_one(
    evaluator: Evaluator, problem: Problem, children: Sequence[Child], width: int
) -> Generator[tuple[Child, Evaluation], None, None]:
    for child in children:
        yield child, evaluator.evaluate(problem, child.kernel)


def _side_by_side(
    evaluator: Evaluator, problem: Problem, children: Sequence[Child], width: int
) -> Generator[tuple[Child, Evaluation], None, None]:
    """As verdicts come. When the rig breaks, what is under way is waited for and kept first."""
    broken: Exception | None = None
    pool = ThreadPoolExecutor(max_workers=width, thread_name_prefix="kbevolve-batch")
    try:
        asked: dict[Future[Evaluation], Child] = {
            pool.submit(evaluator.evaluate, problem, child.kernel): child for child in children
        }
        for answer in as_completed(asked):
            if answer.cancelled():
                continue
            error = answer.exception()
            if error is None:
                yield asked[answer], answer.result()
            elif broken is None:
                broken = error if isinstance(error, Exception) else RuntimeError(repr(error))
                for other in asked:
                    other.cancel()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
    if broken is not None:
        raise broken

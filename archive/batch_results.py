"""Results of a batch: evaluations of kernels far from their archive, one line of JSON each, with the texts they need.

`kbevolve evaluate --batch` writes the file where the device is; its lines are whole even when the writer is killed.
`kbevolve import` reads it elsewhere, and trusts nothing: the ids of kernel and problem must be the hashes of the texts
beside them, and the numbers must be consistent.
"""

import contextlib
import fcntl
import json
import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Self

from kbevolve import __version__
from kbevolve.archive.identity import encodable
from kbevolve.archive.parts import changed, flat
from kbevolve.archive.record_json import from_json, to_json
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import ArchiveError, ProblemError, RecordError, UsageError
from kbevolve.configs.problem import Problem, parse_problem

#: Format of the lines; 1 had other names of fields.
FORMAT = 2
#: How every line begins: a torn last line that begins otherwise is not of our files.
BEGINNING = '{"format": '
#: Precisions that a task may ask for (`configs.settings.Precision`, whose import would load pydantic).
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
#: Columns of an evaluation that a CORRECT one always has, and no other.
_FIGURES = ("time_ms", "reference_ms", "speedup", "speedup_low", "speedup_high")
#: Errors may be infinite; the archive keeps NaN as "not compared".
_ERRORS = ("error", "worst_tile", "reference_error")
#: Roles of a timed block.
_ROLES = ("child", "reference", "rival")
#: Free texts of an evaluation.
_TEXTS = ("message", "precision_class", "best_baseline", "sandbox", "device", "device_instance")


class Conditions(NamedTuple):
    """Two evaluations with equal conditions measure the same thing."""

    kernel: str
    problem: str
    precision: str
    #: Fingerprint.
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchResult:
    """One line: an evaluation, complete, and the texts that it is about."""

    format: int = FORMAT
    #: Version of the kbevolve that judged.
    kbevolve: str = __version__
    #: Versions of what else can change a kernel's speed, e.g. {"torch": "2.13.0"}.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: One line about the device.
    device: str = ""
    #: The kernel's file, relative to the batch.
    file: str = ""
    #: How it was judged: the settings' section `evaluation`, as JSON.
    settings: str = "{}"
    #: The problem as it was asked for, and its text.
    problem_name: str
    problem_source: str
    #: The kernel's text, whose hash is `evaluation.kernel`.
    source: str
    evaluation: Evaluation

    @property
    def conditions(self) -> Conditions:
        """What was measured, and under which conditions."""
        found = self.evaluation
        return Conditions(found.kernel, found.problem, found.precision, found.device)

    @property
    def kernel(self) -> Kernel:
        """The kernel that was judged."""
        return Kernel.from_source(self.source)

    @property
    def problem(self) -> Problem:
        """The problem it was judged on.

        Raises:
            ProblemError: the text is not a problem.
        """
        return parse_problem(self.problem_source, name=self.problem_name, path=Path(self.problem_name))


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchContent:
    """The content of a results file."""

    #: Line number, counted from 1, and the result on that line.
    results: tuple[tuple[int, BatchResult], ...]
    #: Line number and why the line is refused.
    bad: tuple[tuple[int, str], ...] = ()
    #: Bytes after the last whole line: a line that was cut short when its writer was killed.
    torn: bytes = b""


def to_line(result: BatchResult) -> str:
    """The result as one line, in ASCII and without its line end."""
    return json.dumps(to_json(result), allow_nan=False)


def from_line(line: str) -> BatchResult:
    """The result on a line.

    Raises:
        RecordError: the line holds none, or one that contradicts itself; the message says where.
    """
    try:
        values = json.loads(line)
    except (ValueError, RecursionError):
        raise RecordError("not JSON") from None
    stated = values.get("format") if isinstance(values, dict) else None
    if isinstance(stated, int) and stated != FORMAT:
        remedy = "upgrade it: pip install --upgrade kbevolve" if stated > FORMAT else "evaluate the kernels again"
        raise RecordError(f"format {stated}, and this kbevolve {__version__} reads format {FORMAT}; {remedy}")
    result = from_json(BatchResult, values)
    _check_texts(result)
    _check_numbers(result.evaluation)
    return replace(result, evaluation=_as_archived(result.evaluation))


def read_results(content: bytes) -> BatchContent:
    """The lines of a file; empty lines count as none, and bytes after the last line end are `BatchContent.torn`."""
    whole = content.rfind(b"\n") + 1
    results, bad = [], []
    # Not `splitlines`: it would also split at a carriage return.
    for number, line in enumerate(content[:whole].removesuffix(b"\n").split(b"\n"), start=1):
        try:
            if line.strip():
                results.append((number, from_line(line.decode("utf-8"))))
        except UnicodeDecodeError:
            bad.append((number, "not text in UTF-8"))
        except RecordError as error:
            bad.append((number, str(error)))
    return BatchContent(results=tuple(results), bad=tuple(bad), torn=content[whole:])


class ResultsFile:
    """Appends results to a file; a result is on the disk when `append` returns. For one thread of one process.

    A last line that was cut short by a kill is removed; the kernel of that line is judged again. Nothing else in the
    file is ever changed, and a file that holds anything but results is refused.

    A missing file is created.

    Raises:
        UsageError: the file cannot be opened, holds something else, or another process writes it.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        #: The result on each line of the file.
        self.known: dict[Conditions, BatchResult] = {}
        #: Whether a line that was cut short has been removed.
        self.repaired = False
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise UsageError(
                f"{path}: {error.strerror}; --out wants a file in a directory that you may write to"
            ) from None
        try:
            self._lock()
            _sync_directory(path)
            self._read()
        except BaseException:
            os.close(self._file)
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)

    def append(self, result: BatchResult) -> None:
        """Write one more line and wait until the disk has it.

        Raises:
            ArchiveError: the disk does not take the line; the lines before it are kept.
        """
        before, text = os.fstat(self._file).st_size, f"{to_line(result)}\n".encode("ascii")
        try:
            while text:  # an almost full disk takes a part
                text = text[os.write(self._file, text) :]
            os.fsync(self._file)
        except OSError as error:
            with contextlib.suppress(OSError):
                os.ftruncate(self._file, before)
            raise ArchiveError(
                f"{self.path}: {error.strerror}; make room and give the same command again (what was judged is kept)"
            ) from None
        self.known[result.conditions] = result

    def _lock(self) -> None:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UsageError(f"another process is writing {self.path}; wait for it, or name another --out") from None
        except OSError:
            pass  # a file system of a cluster without locks: its users must not write one file twice

    def _read(self) -> None:
        read = read_results(self.path.read_bytes())
        if read.bad:
            number, why = read.bad[0]
            raise UsageError(f"{self.path}, line {number}: {why}; only results are added to results: another --out")
        self.known = {result.conditions: result for _, result in read.results}
        if read.torn:
            self._repair(read.torn)

    def _repair(self, torn: bytes) -> None:
        # A file system may leave zeros where a power cut took the data.
        text, beginning = torn.rstrip(b"\0"), BEGINNING.encode()
        if not (text.startswith(beginning) or beginning.startswith(text)):
            raise UsageError(f"{self.path} ends in another text; only results are added to results: another --out")
        os.ftruncate(self._file, os.fstat(self._file).st_size - len(torn))
        self.repaired = True


def _check_texts(result: BatchResult) -> None:
    found = result.evaluation
    for name in ("source", "problem_source"):
        try:
            getattr(result, name).encode("utf-8")
        except UnicodeEncodeError:
            raise RecordError(f"{name} is not text in UTF-8") from None
    if result.kernel.id != found.kernel:
        raise RecordError(f"evaluation.kernel is {found.kernel!r}, but the hash of the source is {result.kernel.id}")
    try:
        problem = result.problem
    except (ProblemError, ValueError, RecursionError, MemoryError) as error:  # the parser's own, of hostile text
        raise RecordError(f"problem_source: {error}") from None
    if found.compiled.identical_to is not None:
        raise RecordError("evaluation.identical_to is set; a verdict from outside is about the kernel that was run")
    if problem.id != found.problem:
        raise RecordError(f"evaluation.problem is {found.problem!r}, but the hash of its text is {problem.id}")


def _check_numbers(found: Evaluation) -> None:
    values = flat(found)

    def require(is_right: bool, name: str, wanted: str) -> None:
        if not is_right:
            raise RecordError(f"evaluation.{name} is {values[name]!r}; {wanted}")

    require(found.precision in _PRECISIONS, "precision", f"one of {', '.join(_PRECISIONS)} is wanted")
    require(bool(found.device), "device", "the fingerprint of a device is wanted")
    is_correct = found.verdict is Verdict.CORRECT
    for name in _FIGURES:
        wanted = "a number, for the verdict is correct" if is_correct else "no number, for the verdict is not correct"
        require((values[name] is not None) is is_correct, name, wanted)
    for name in (*_FIGURES, "speedup_best"):
        require(values[name] is None or 0 < values[name] < math.inf, name, "a positive number is wanted")
    require(not is_correct or values["speedup_low"] <= values["speedup_high"], "speedup_low", "above speedup_high")
    for name in ("build_seconds", "seconds", "started_at"):
        require(0 <= values[name] < math.inf, name, "a number of seconds is wanted")
    require(all(0 <= one < math.inf for one in values["phases"].values()), "phases", "numbers of seconds are wanted")
    for name in _ERRORS:
        require(not (values[name] or 0.0) < 0, name, "errors are not negative")
    for index, block in enumerate(found.blocks):
        if block.role not in _ROLES:
            raise RecordError(
                f"evaluation.blocks[{index}].role is {block.role!r}; one of {', '.join(_ROLES)} is wanted"
            )
        if not all(0 <= time < math.inf for time in block.times_ms):
            raise RecordError(f"evaluation.blocks[{index}].times_ms holds what is no time")


def _as_archived(found: Evaluation) -> Evaluation:
    """The evaluation as an archive gives it back, so that it is known again: SQLite has no NaN and only UTF-8."""
    values = flat(found)
    changes = {name: encodable(values[name]) for name in _TEXTS if isinstance(values[name], str)}
    return changed(found, **changes, **{name: None for name in _ERRORS if math.isnan(values[name] or 0.0)})


def _sync_directory(path: Path) -> None:
    """Have the disk keep the entry of a new file: a line that it has is of no use without."""
    with contextlib.suppress(OSError):  # some file systems have nothing to keep
        folder = os.open(path.absolute().parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

"""Findings: what a kernel was found to be far from its archive, one line of JSON each, with all that makes sense of it.

A file of findings is written line by line where the device is (`kbevolve evaluate --batch`) and brought home by
`kbevolve tell`. It has crossed machines and perhaps hands, so a line is read as strictly as a stranger's: its kernel
and its problem are the hashes of the texts beside them, and its numbers must make sense together.
"""

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, NoReturn

from kbevolve import __version__
from kbevolve.archive.identity import encodable
from kbevolve.archive.parts import changed, flat
from kbevolve.archive.record_json import from_json, to_json
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import ProblemError, RecordError
from kbevolve.configs.problem import Problem, parse_problem

#: Format of the lines; 1 had other names of fields.
FORMAT = 2
#: How every line begins, by which the torn end of a file of ours is told from another file.
BEGINNING = '{"format": '
#: Precisions that a task may ask for (`configs.settings.Precision`, which would bring pydantic).
_PRECISIONS = ("fp32", "tf32", "fp16", "bf16")
#: Fields of an evaluation that only a CORRECT one has, and that it always has.
_FIGURES = ("time_ms", "reference_ms", "speedup", "speedup_low", "speedup_high")
#: Errors may be infinite; the archive keeps NaN as "not compared".
_ERRORS = ("error", "worst_tile", "reference_error")
#: Of a timed block.
_ROLES = ("child", "reference", "rival")
#: Free texts of an evaluation.
_TEXTS = ("message", "precision_class", "best_baseline", "sandbox", "device", "device_instance")


class Conditions(NamedTuple):
    """What must be the same for one evaluation of a kernel to stand for another."""

    kernel: str
    problem: str
    precision: str
    #: Fingerprint.
    device: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One line: an evaluation, complete, and the texts that it is about."""

    #: Of the line, `FORMAT`.
    format: int = FORMAT
    #: Version of the kbevolve that judged.
    kbevolve: str = __version__
    #: Versions of what else can change a kernel's speed, e.g. {"torch": "2.13.0"}.
    versions: Mapping[str, str] = field(default_factory=dict)
    #: One line about the device.
    device: str = ""
    #: Where the kernel was read, relative to the batch.
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
        """What this is the finding of."""
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
            ProblemError: the text is none.
        """
        return parse_problem(self.problem_source, name=self.problem_name, path=Path(self.problem_name))


def to_line(finding: Finding) -> str:
    """The finding as one line, in ASCII and without its end."""
    return json.dumps(to_json(finding), allow_nan=False)


def from_line(line: str) -> Finding:
    """The finding that a line holds.

    Raises:
        RecordError: it holds none, or one that contradicts itself; the message says where.
    """
    try:
        values = json.loads(line, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        raise RecordError("not JSON") from None
    told = values.get("format") if isinstance(values, dict) else None
    if isinstance(told, int) and told != FORMAT:
        remedy = "upgrade it: pip install --upgrade kbevolve" if told > FORMAT else "evaluate the kernels again"
        raise RecordError(f"format {told}, and this kbevolve {__version__} reads format {FORMAT}; {remedy}")
    finding = from_json(Finding, values)
    found = finding.evaluation
    _check_texts(finding)
    _check_numbers(found)
    return replace(finding, evaluation=_as_archived(found))


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """What a file of findings holds."""

    #: Line number, counted from 1, and what it holds.
    findings: tuple[tuple[int, Finding], ...]
    #: Line number and why it is no finding.
    bad: tuple[tuple[int, str], ...] = ()
    #: Bytes of all whole lines, and of what is left: a line that was cut short when its writer was killed.
    whole: int = 0
    torn: bytes = b""


def read_findings(content: bytes) -> Read:
    """What a file holds. Empty lines are nothing; the end of the file without a line end is `Read.torn`."""
    whole = content.rfind(b"\n") + 1
    findings, bad = [], []
    for number, line in enumerate(_lines(content[:whole]), start=1):
        try:
            if line.strip():
                findings.append((number, from_line(line.decode("utf-8"))))
        except UnicodeDecodeError:
            bad.append((number, "not text in UTF-8"))
        except RecordError as error:
            bad.append((number, str(error)))
    return Read(findings=tuple(findings), bad=tuple(bad), whole=whole, torn=content[whole:])


def _lines(content: bytes) -> Iterable[bytes]:
    # Not `splitlines`: it would also split at a carriage return. An empty content has one empty line, of no harm.
    return content.removesuffix(b"\n").split(b"\n")


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(name)


def _check_texts(finding: Finding) -> None:
    found = finding.evaluation
    for name in ("source", "problem_source"):
        try:
            getattr(finding, name).encode("utf-8")
        except UnicodeEncodeError:
            raise RecordError(f"{name} is not text in UTF-8") from None
    if finding.kernel.id != found.kernel:
        raise RecordError(f"evaluation.kernel is {found.kernel!r}, but the hash of the source is {finding.kernel.id}")
    try:
        problem = finding.problem
    except (ProblemError, ValueError, RecursionError, MemoryError) as error:  # the parser's own, of hostile text
        raise RecordError(f"problem_source: {error}") from None
    if found.compiled.identical_to is not None:
        raise RecordError("evaluation.identical_to is set; a verdict from outside is about the kernel that was run")
    if problem.id != found.problem:
        raise RecordError(f"evaluation.problem is {found.problem!r}, but the hash of its text is {problem.id}")


def _check_numbers(found: Evaluation) -> None:
    values = flat(found)
    if found.precision not in _PRECISIONS:
        raise RecordError(f"evaluation.precision is {found.precision!r}; one of {', '.join(_PRECISIONS)} is wanted")
    if not found.device:
        raise RecordError("evaluation.device is empty; the fingerprint of a device is wanted")
    for name in _FIGURES:
        if (values[name] is not None) is not (found.verdict is Verdict.CORRECT):
            verdict = found.verdict.name.lower()
            raise RecordError(f"evaluation.{name} is {values[name]}, and evaluation.verdict is {verdict!r}")
    for name in (*_FIGURES, "speedup_best"):
        if values[name] is not None and not 0 < values[name] < math.inf:
            raise RecordError(f"evaluation.{name} is {values[name]}; a positive number is wanted")
    if (found.timing.speedup_low or 0.0) > (found.timing.speedup_high or math.inf):
        raise RecordError("evaluation.speedup_low is above evaluation.speedup_high")
    seconds = {name: values[name] for name in ("build_seconds", "seconds", "started_at")}
    seconds |= {f"phases[{name!r}]": value for name, value in found.execution.phases.items()}
    for name, value in seconds.items():
        if not 0 <= value < math.inf:
            raise RecordError(f"evaluation.{name} is {value}; a number of seconds is wanted")
    for name in _ERRORS:
        if (values[name] or 0.0) < 0:
            raise RecordError(f"evaluation.{name} is {values[name]}; errors are not negative")
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

"""A finding crosses machines as one line; a line that was changed on the way is refused."""

import json
import math
from typing import Any

import pytest

from kbevolve.archive.batch_results import BEGINNING, FORMAT, BatchResult, from_line, read_results, to_line
from kbevolve.archive.parts import changed, grouped
from kbevolve.archive.records import Evaluation, Measurement, Verdict
from kbevolve.configs.errors import RecordError
from tests.evolve.doubles import DEVICE, kernel, problem


def finding(**changes: Any) -> BatchResult:
    """A finding about a kernel with these tunables (in capitals), or with these fields of its evaluation."""
    tunables = {name: value for name, value in changes.items() if name.isupper()}
    facts = {name: value for name, value in changes.items() if not name.isupper()}
    made = kernel(**tunables)
    found = grouped(Evaluation,
        kernel=made.id, problem=problem().id, device=DEVICE, precision="fp32", verdict=Verdict.CORRECT,
        message="two\nlines, ü\u2028", time_ms=1 / 3, reference_ms=1.0, speedup=3.0, speedup_low=2.9, speedup_high=3.1,
        started_at=1.79e9, seconds=2.5, phases={"build": 1.0, "timing": 0.5}, device_instance="node7/cuda:1",
        blocks=(Measurement(role="child", round=0, times_ms=(1 / 3, 0.0)),),
    )  # fmt: skip
    return BatchResult(
        versions={"torch": "2.13.0"}, device="A double", file="a/b.py", settings='{"trials": 7}',
        problem_name="L1/double", problem_source=problem().source, source=made.source,
        evaluation=changed(found, **facts),
    )  # fmt: skip


def failed(**changes: Any) -> BatchResult:
    figures = dict.fromkeys(("time_ms", "reference_ms", "speedup", "speedup_low", "speedup_high"))
    return finding(**{"verdict": Verdict.WRONG, "blocks": (), **figures, **changes})


def test_a_line_is_the_whole_finding() -> None:
    for one in (finding(), failed(error=math.inf), failed(verdict=Verdict.REFUSED, phases={})):
        line = to_line(one)
        assert line.startswith(BEGINNING)
        assert line.isascii()
        assert len(line.splitlines()) == 1
        assert from_line(line) == one
    assert finding().conditions == (kernel().id, problem().id, "fp32", DEVICE)
    assert finding().kernel == kernel()
    assert (finding().problem.id, finding().problem.summary) == (problem().id, problem().summary)


def test_a_finding_is_read_as_an_archive_gives_it_back() -> None:
    read = from_line(to_line(failed(error=math.nan, message="half \ud800"))).evaluation
    assert (read.accuracy.error, read.message) == (None, "half ?")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"kernel": "0123456789abcdef"}, "evaluation.kernel is '0123456789abcdef', but the hash of the source is"),
        ({"problem": "0123456789abcdef"}, "evaluation.problem is '0123456789abcdef', but the hash of its text is"),
        ({"precision": "fp8"}, "evaluation.precision is 'fp8'; one of fp32, tf32, fp16, bf16 is wanted"),
        ({"device": ""}, "evaluation.device is ''; the fingerprint"),
        ({"speedup": None}, "evaluation.speedup is None; a number"),
        ({"verdict": "wrong"}, "evaluation.time_ms is 0.333.*; no number"),
        ({"speedup": "inf"}, "evaluation.speedup is inf; a positive number is wanted"),
        ({"time_ms": 0}, "evaluation.time_ms is 0.0; a positive number is wanted"),
        ({"speedup_best": -1.0}, "evaluation.speedup_best is -1.0; a positive number is wanted"),
        (
            {"identical_to": "3fa9" * 4},
            "evaluation.identical_to is set; a verdict from outside is about the kernel that was run",
        ),
        ({"speedup_low": 4.0}, "evaluation.speedup_low is 4.0; above speedup_high"),
        ({"seconds": -1}, "evaluation.seconds is -1.0; a number of seconds is wanted"),
        ({"started_at": "nan"}, "evaluation.started_at is nan; a number of seconds is wanted"),
        ({"phases": {"x": "inf"}}, r"evaluation.phases is {'x': inf}; numbers of seconds are wanted"),
        ({"error": -1e-6}, "evaluation.error is -1e-06; errors are not negative"),
        (
            {"blocks": [{"role": "child", "round": 0, "times_ms": ["nan"]}]},
            r"blocks\[0\].times_ms holds what is no time",
        ),
        (
            {"blocks": [{"role": "\ud800", "round": 0, "times_ms": [1.0]}]},
            r"blocks\[0\].role is '\\ud800'; one of child, reference, rival is wanted",
        ),
        ({"verdict": "splendid"}, "BatchResult.evaluation.verdict is 'splendid'"),
    ],
)
def test_an_evaluation_that_contradicts_itself_is_refused(changes: dict[str, Any], message: str) -> None:
    values = json.loads(to_line(finding()))
    values["evaluation"] |= changes
    with pytest.raises(RecordError, match=message):
        from_line(json.dumps(values))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"source": "class ModelNew: other"}, "but the hash of the source is"),
        ({"problem_source": "x = 1"}, "problem_source: L1/double: no Model, get_inputs, get_init_inputs"),
        ({"problem_source": "x = \0"}, "problem_source: "),
        ({"source": "\ud800"}, "source is not text in UTF-8"),
        ({"format": 1}, "format 1, .*; evaluate the kernels again"),
        (
            {"format": FORMAT + 1, "new": 1},
            f"format {FORMAT + 1}, and this kbevolve .* reads format {FORMAT}; upgrade it",
        ),
        ({"format": "1"}, "BatchResult.format is '1'; a whole number is wanted"),
        ({"sauce": "x"}, "BatchResult has no field 'sauce'. Nearest: source"),
        ({"evaluation": None}, "BatchResult.evaluation is None; an object is wanted"),
    ],
)
def test_a_line_that_is_no_finding_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(RecordError, match=message):
        from_line(json.dumps(json.loads(to_line(finding())) | changes))


@pytest.mark.parametrize("line", ["", "no", "[1]", "3", '{"format": 1', "[" * 100_000, '{"format": NaN}'])
def test_a_line_that_is_no_object_is_refused(line: str) -> None:
    with pytest.raises(RecordError):
        from_line(line)


def test_a_file_is_read_line_by_line_whatever_is_in_it() -> None:
    first, second = to_line(finding()).encode(), to_line(failed(UNROLL=2)).encode()
    read = read_results(b"\n".join((first, b"", b"\xff", b"{}", second, first[:40])))
    assert read.results == ((1, finding()), (5, failed(UNROLL=2)))
    assert read.bad == ((3, "not text in UTF-8"), (4, "BatchResult.problem_name is missing"))
    assert read.torn == first[:40]
    assert read_results(b"").results == ()
    assert read_results(b"").bad == ()

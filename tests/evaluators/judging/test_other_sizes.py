"""Kernels at sizes that the problem's file does not state, through a real judge on the CPU: no size is timed."""

import pytest

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.evaluators.generality.shapes import SHAPE_GENERAL, ShapeReport, given_sizes, own_sizes
from kbevolve.evaluators.generality.variants import judge_variants
from kbevolve.evaluators.judging.judge import Judge
from tests.evaluators.judging.layer import CPP, RIGHT, candidate, problem_of

#: Above the file's 48 rows of 64 columns, below, odd, and one row.
SIZES = ({"ROWS": 97, "COLUMNS": 16}, {"ROWS": 5, "COLUMNS": 33}, {"ROWS": 1, "COLUMNS": 71})


def report_on(judge: Judge, source: str, *sizes: dict[str, int]) -> ShapeReport:
    problem = problem_of()
    variants = [own_sizes(problem), *(given_sizes(problem, "cpu", one) for one in sizes or SIZES)]
    return ShapeReport(judge_variants(judge, Kernel.from_source(source), variants, lambda _: None))


@pytest.mark.slow
def test_an_honest_kernel_is_general(judge: Judge) -> None:
    report = report_on(judge, candidate(RIGHT))
    assert [one.message for one in report.verdicts] == [""] * 4
    assert report.is_general
    assert SHAPE_GENERAL in report.tags
    assert report.summary == "shape-general: right at all 4 sizes"
    for verdict in report.verdicts:
        found = verdict.evaluation
        assert found is not None
        assert found.timing.time_ms is None
        assert not found.blocks
        assert found.accuracy.error is not None


@pytest.mark.slow
def test_a_compiled_kernel_that_takes_its_sizes_from_the_tensors_is_general(judge: Judge) -> None:
    assert report_on(judge, CPP).is_general


#: Kernel -> verdicts at `SIZES`, and what the first message that is not empty says.
BOUND = {
    "fixed strides": (
        "return torch.relu(x.as_strided((48, 64), (64, 1)) @ self.weight)",
        (Verdict.CRASHED, Verdict.CRASHED, Verdict.CRASHED),
        "RuntimeError",
    ),
    "fixed grid": (
        """
        y = torch.zeros_like(x)
        for row in range(min(48, len(x))):
            y[row] = torch.relu(x[row] @ self.weight)
        return y
        """,
        (Verdict.WRONG, Verdict.CORRECT, Verdict.CORRECT),
        "error",
    ),
    "tails are left out": (
        """
        y = torch.zeros_like(x)
        whole = x.shape[1] // 16 * 16
        y[:, :whole] = torch.relu(x @ self.weight[:, :whole])
        return y
        """,
        (Verdict.CORRECT, Verdict.WRONG, Verdict.WRONG),
        "error",
    ),
    "right at the file's sizes only": (
        "return torch.relu(x @ self.weight) if x.shape == (48, 64) else torch.rand_like(x)",
        (Verdict.WRONG, Verdict.WRONG, Verdict.WRONG),
        "error",
    ),
    "ends its process elsewhere": (
        "return torch.relu(x @ self.weight) if len(x) == 48 else os._exit(0)",
        (Verdict.CRASHED, Verdict.CRASHED, Verdict.CRASHED),
        "exit code 0",
    ),
    "returns another shape elsewhere": (
        "return torch.relu(x @ self.weight).T[:, :48].T",
        (Verdict.WRONG, Verdict.CORRECT, Verdict.CORRECT),
        "shape",
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BOUND)
def test_a_kernel_that_was_made_for_one_shape_is_not_general(judge: Judge, name: str) -> None:
    body, verdicts, words = BOUND[name]
    report = report_on(judge, candidate(body))
    own, *others = [one.evaluation for one in report.verdicts]
    assert own is not None
    assert own.verdict is Verdict.CORRECT, own.message
    assert tuple(one.verdict for one in others if one) == verdicts
    assert words in next(one.message for one in report.verdicts if one.message)
    assert not report.is_general
    assert SHAPE_GENERAL not in report.tags
    assert report.summary.startswith("not shape-general: right at ")


def test_what_is_wrong_everywhere_is_not_general(judge: Judge) -> None:
    report = report_on(judge, candidate("return torch.relu(x @ self.weight) + 0.1"), {"ROWS": 9})
    assert [one.is_correct for one in report.verdicts] == [False, False]
    assert report.summary == "not shape-general: right at 0 of 2 sizes"


def test_a_size_at_which_the_reference_fails_counts_neither_way(judge: Judge) -> None:
    report = report_on(judge, candidate(RIGHT), {"ROWS": 7}, {"COLUMNS": 1 << 40})
    assert report.verdicts[2].evaluation is None
    assert "tests/layer at COLUMNS=1099511627776" in report.verdicts[2].message
    assert report.is_general


@pytest.mark.slow
def test_the_judge_evaluates_at_the_files_own_sizes_afterwards(judge: Judge) -> None:
    kernel = Kernel.from_source(candidate(RIGHT))
    judge.check(given_sizes(problem_of(), "cpu", {"ROWS": 3}).problem, kernel)
    found = judge.evaluate(problem_of(), kernel)
    assert found.verdict is Verdict.CORRECT
    assert found.timing.speedup is not None

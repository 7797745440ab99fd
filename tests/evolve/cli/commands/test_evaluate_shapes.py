"""`kbevolve evaluate --shapes`, with a judge that knows at which sizes a kernel is right."""

import json
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem, constants_of
from kbevolve.evolve.cli.commands import evaluate_variants
from tests.evaluators.judging.layer import PROBLEM, RIGHT, candidate


class SizeJudge:
    """The kernel is right up to so many rows; with 13 columns the reference fails."""

    def __init__(self, most_rows: int) -> None:
        self._most_rows = most_rows

    def __enter__(self) -> "SizeJudge":
        return self

    def __exit__(self, *_: object) -> None: ...

    def check(self, problem: Problem, kernel: Kernel) -> Evaluation:
        sizes = constants_of(problem.source_for("cpu"))
        if sizes["COLUMNS"] == 13:
            raise EvaluatorError(f"{problem.name}: the reference fails")
        right = sizes["ROWS"] <= self._most_rows
        return Evaluation(
            kernel=kernel.id, problem=problem.id, device="cpu", precision="fp32", tags=("library-only",),
            verdict=Verdict.CORRECT if right else Verdict.WRONG, message="" if right else "error 1\nmuch too large",
        )  # fmt: skip


@pytest.fixture
def evaluate(kbevolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "kernel.py").write_text(candidate(RIGHT))
    (tmp_path / "problem.py").write_text(PROBLEM)

    def call(most_rows: int, *words: str) -> Any:
        monkeypatch.setattr(evaluate_variants, "make_judge", lambda *_, **__: SizeJudge(most_rows))
        named = (tmp_path / "kernel.py", "--problem", tmp_path / "problem.py", "--device", "cpu")
        return kbevolve("evaluate", *named, *words)

    return call


def test_a_row_a_size_and_the_tag(evaluate: Any) -> None:
    outcome = evaluate(10**6, "--shapes", "ROWS=7", "--shapes", "ROWS=9,COLUMNS=3")
    assert outcome.code == 0, outcome.err
    header, *rows = outcome.out.splitlines()
    assert header.split() == ["kind", "sizes", "verdict", "error", "message"]
    assert [row.split()[:2] for row in rows[1:3]] == [["given", "ROWS=7"], ["given", "ROWS=9,"]]
    assert "shape-general: right at all 3 sizes" in outcome.out
    assert "library-only, shape-general" in outcome.out
    assert "3/3 given: ROWS=9, COLUMNS=3: correct" in outcome.err


def test_the_first_failure_is_shown_whole(evaluate: Any) -> None:
    outcome = evaluate(48, "--shapes", "ROWS=99", "--shapes", "COLUMNS=13")
    assert outcome.code == 0
    assert "much too large" in outcome.out
    assert "right at the problem's own sizes only, and at none of 1 others" in outcome.out
    assert "not judged" in outcome.out


def test_json_holds_every_size(evaluate: Any) -> None:
    outcome = evaluate(48, "--shapes", "ROWS=99", "--shapes", "COLUMNS=13", "--json")
    (line,) = outcome.out.splitlines()
    facts = json.loads(line)
    assert (facts["shape_general"], facts["verdict"], facts["tags"]) == (False, "correct", ["library-only"])
    assert [one["sizes"] for one in facts["sizes"]] == [{}, {"ROWS": 99}, {"COLUMNS": 13}]
    assert [one["verdict"] for one in facts["sizes"]] == ["correct", "wrong", None]
    assert facts["sizes"][2]["message"].endswith("the reference fails")


def test_alone_it_draws_the_sizes(evaluate: Any) -> None:
    def sizes(*words: str) -> list[Any]:
        outcome = evaluate(10**6, "--shapes", *words, "--json")
        return [one["sizes"] for one in json.loads(outcome.out)["sizes"]]

    drawn = sizes()
    assert len(drawn) == 8  # own, five kinds, and each of both longer
    assert drawn == sizes()
    assert drawn != sizes("--shapes-seed", "1")


def test_check_asks_for_all_sizes(evaluate: Any) -> None:
    assert evaluate(99, "--shapes", "ROWS=99", "--check").code == 0
    assert evaluate(48, "--shapes", "ROWS=99", "--check").code == 1


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["--shapes", "ROWS"], "ROWS is not NAME=SIZE"),
        (["--shapes", "ROWS=0"], "ROWS=0 is not NAME=SIZE"),
        (["--shapes", "ROWS=7,"], "nothing is not NAME=SIZE"),
        (["--shapes", "ROW=7"], "no module constant ROW = number"),
        (["--shapes", "ROWS=7", "--baselines"], "nothing is timed"),
    ],
)
def test_what_is_wrong_is_named(evaluate: Any, words: list[str], complaint: str) -> None:
    outcome = evaluate(48, *words)
    assert outcome.code == 2
    assert complaint in outcome.err

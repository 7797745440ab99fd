"""`kbevolve import`: verdicts are added once, whole, and only to the runs that they fit."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.batch_results import BatchResult, to_line
from kbevolve.archive.records import Birth, BirthState, Kernel, Operator, Run
from kbevolve.archive.store import Archive
from tests.archive.test_batch_results import failed, finding
from tests.evolve.doubles import kernel, open_run, problem, settings


class Target:
    """An archive with one run, with two pending kernels and a judged one."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kbevolve.db"
        self.results = folder / "results.jsonl"
        with Archive(self.path) as archive:
            self.run: Run = open_run(archive, settings())
            for generation, unroll in enumerate((1, 2, 4)):
                self.add(archive, self.run, kernel(UNROLL=unroll), generation)
            archive.add_evaluation(finding(UNROLL=1).evaluation)

    @staticmethod
    def add(archive: Archive, run: Run, made: Kernel, generation: int) -> None:
        birth = Birth(
            run=run.id, generation=generation, island=0, slot=0, operator=Operator.TUNE, state=BirthState.CREATED,
            kernel=made.id,
        )  # fmt: skip
        archive.add_birth(birth, kernel=made)

    def write(self, *findings: BatchResult, end: str = "") -> None:
        self.results.write_text("".join(f"{to_line(one)}\n" for one in findings) + end)

    def evaluations(self, made: Kernel) -> list[Any]:
        with Archive(self.path) as archive:
            return archive.kernels.evaluations(made.id)


@pytest.fixture
def target(tmp_path: Path) -> Target:
    return Target(tmp_path)


@pytest.fixture
def load(kbevolve: Any, target: Target) -> Any:
    def call(*words: object) -> Any:
        return kbevolve("import", target.results, "--archive", target.path, *words)

    return call


def test_pending_kernels_get_their_verdicts(target: Target, load: Any) -> None:
    target.write(finding(UNROLL=2), failed(UNROLL=4))
    outcome = load("--run", target.run.id)
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 added, 0 known." in outcome.out
    assert f"A run waited for 2 of them: kbevolve resume {target.run.id} --archive {target.path}" in outcome.out
    assert target.evaluations(kernel(UNROLL=2)) == [finding(UNROLL=2).evaluation]
    assert target.evaluations(kernel(UNROLL=4)) == [failed(UNROLL=4).evaluation]
    with Archive(target.path) as archive:
        assert set(archive.runs.evaluations(target.run.id)) == {kernel(UNROLL=unroll).id for unroll in (1, 2, 4)}


def test_the_same_line_is_not_added_twice(target: Target, load: Any) -> None:
    target.write(finding(UNROLL=2), finding(UNROLL=2), finding(UNROLL=1))
    assert "1 added, 2 known." in load().out
    assert "0 added, 3 known." in load().out
    # A second measurement is another fact; the first one counts.
    target.write(finding(UNROLL=2, started_at=1.8e9))
    assert "1 added, 0 known." in load().out
    assert [one.execution.started_at for one in target.evaluations(kernel(UNROLL=2))] == [1.79e9, 1.8e9]


def test_an_unknown_kernel_is_kept_without_lineage(target: Target, load: Any, kbevolve: Any) -> None:
    target.write(finding(UNROLL=8))
    outcome = load()
    assert "Without lineage in this archive: 1 kernel." in outcome.out
    assert "resume" not in outcome.out
    shown = kbevolve("archive", "show", kernel(UNROLL=8).id, "--archive", target.path)
    assert shown.code == 0, shown.err
    assert "3.00×" in shown.out


def test_an_unknown_problem_is_added(target: Target, load: Any) -> None:
    other = finding(UNROLL=2)
    text = other.problem_source + "\nN = 3\n"
    moved = replace(other, problem_source=text)
    moved = replace(moved, evaluation=replace(moved.evaluation, problem=moved.problem.id))
    target.write(moved)
    assert load().code == 0
    with Archive(target.path) as archive:
        assert archive.problems.get(moved.problem.id).source == text
        assert archive.runs.evaluations(target.run.id).keys() == {kernel(UNROLL=1).id}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"precision": "tf32"}, "it was judged for tf32, run double-1 asks for fp32"),
        (
            {"device": "cuda/H200"},
            "it was measured on cuda/H200, run double-1 on double; times of two are never ranked",
        ),
    ],
)
def test_a_run_accepts_only_its_own_conditions(
    target: Target, load: Any, changes: dict[str, Any], message: str
) -> None:
    target.write(finding(UNROLL=2, **changes), finding(UNROLL=4))
    outcome = load("--run", "latest")
    assert outcome.code == 1
    assert f"{target.results}, line 1: {message}" in outcome.err
    assert "1 added, 0 known, 1 refused." in outcome.out
    assert target.evaluations(kernel(UNROLL=2)) == []
    # Without --run it is added, and the run still waits.
    outcome = load()
    assert outcome.code == 0
    assert "resume" not in outcome.out
    assert len(target.evaluations(kernel(UNROLL=2))) == 1


def test_a_run_accepts_no_other_problem(target: Target, load: Any) -> None:
    other = finding(UNROLL=2)
    moved = replace(other, problem_source=other.problem_source + "\n")
    moved = replace(moved, evaluation=replace(other.evaluation, problem=moved.problem.id))
    target.write(moved)
    outcome = load("--run", target.run.id)
    assert outcome.code == 1
    assert (
        f"its problem is L1/double (text {moved.problem.id}), that of run double-1 is L1/double (text {problem().id})"
        in (outcome.err)
    )
    assert "0 added" in outcome.out


def test_bad_lines_are_shown_and_the_others_are_added(target: Target, load: Any) -> None:
    forged = to_line(finding(UNROLL=4)).replace('"UNROLL = 4', '"UNROLL = 5')
    target.write(finding(UNROLL=2), end=f"{forged}\nnonsense\n" + to_line(failed(UNROLL=4))[:99])
    outcome = load()
    assert outcome.code == 1
    assert "line 2: evaluation.kernel is" in outcome.err
    assert "line 3: not JSON" in outcome.err
    assert "1 added, 0 known, 2 refused." in outcome.out
    assert "The last line is incomplete" in outcome.out
    assert target.evaluations(kernel(UNROLL=4)) == []
    facts = json.loads(load("--json").out)
    assert (facts["added"], facts["known"], facts["torn"], len(facts["refused"])) == (0, 1, True, 2)


def test_many_bad_lines_are_counted(target: Target, load: Any) -> None:
    target.write(end="nonsense\n" * 50)
    outcome = load()
    assert len(outcome.err.splitlines()) == 21
    assert "30 more lines were refused" in outcome.err


def test_a_missing_file_is_one_line(target: Target, load: Any, kbevolve: Any, tmp_path: Path) -> None:
    outcome = load()
    assert outcome.code == 2
    assert "results.jsonl: No such file or directory; name a file that `kbevolve evaluate --batch` wrote" in outcome.err
    target.write(finding())
    missing = kbevolve("import", target.results, "--archive", tmp_path / "none.db")
    assert missing.code == 1
    assert "no archive at" in missing.err
    assert not (tmp_path / "none.db").exists()
    assert "no run 'x'" in load("--run", "x").err

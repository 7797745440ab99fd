"""`kbevolve tell`: findings come home once, whole, and only where they belong."""

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


class Home:
    """An archive with one run, of which two kernels wait and one is judged."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "kbevolve.db"
        self.results = folder / "results.jsonl"
        with Archive(self.path) as archive:
            self.run: Run = open_run(archive, settings())
            for generation, unroll in enumerate((1, 2, 4)):
                self.bear(archive, self.run, kernel(UNROLL=unroll), generation)
            archive.add_evaluation(finding(UNROLL=1).evaluation)

    @staticmethod
    def bear(archive: Archive, run: Run, born: Kernel, generation: int) -> None:
        birth = Birth(
            run=run.id, generation=generation, island=0, slot=0, operator=Operator.TUNE, state=BirthState.CREATED,
            kernel=born.id,
        )  # fmt: skip
        archive.add_birth(birth, kernel=born)

    def write(self, *findings: BatchResult, end: str = "") -> None:
        self.results.write_text("".join(f"{to_line(one)}\n" for one in findings) + end)

    def evaluations(self, made: Kernel) -> list[Any]:
        with Archive(self.path) as archive:
            return archive.kernels.evaluations(made.id)


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path)


@pytest.fixture
def tell(kbevolve: Any, home: Home) -> Any:
    def call(*words: object) -> Any:
        return kbevolve("tell", home.results, "--archive", home.path, *words)

    return call


def test_births_that_waited_have_their_verdicts(home: Home, tell: Any) -> None:
    home.write(finding(UNROLL=2), failed(UNROLL=4))
    outcome = tell("--run", home.run.id)
    assert (outcome.code, outcome.err) == (0, "")
    assert "2 added, 0 there already." in outcome.out
    assert f"A run waited for 2 of them: kbevolve resume {home.run.id} --archive {home.path}" in outcome.out
    assert home.evaluations(kernel(UNROLL=2)) == [finding(UNROLL=2).evaluation]
    assert home.evaluations(kernel(UNROLL=4)) == [failed(UNROLL=4).evaluation]
    with Archive(home.path) as archive:
        assert set(archive.runs.evaluations(home.run.id)) == {kernel(UNROLL=unroll).id for unroll in (1, 2, 4)}


def test_the_same_line_is_not_added_twice(home: Home, tell: Any) -> None:
    home.write(finding(UNROLL=2), finding(UNROLL=2), finding(UNROLL=1))
    assert "1 added, 2 there already." in tell().out
    assert "0 added, 3 there already." in tell().out
    # Measured once more, it is another fact; the first is the one that counts.
    home.write(finding(UNROLL=2, started_at=1.8e9))
    assert "1 added, 0 there already." in tell().out
    assert [one.began for one in home.evaluations(kernel(UNROLL=2))] == [1.79e9, 1.8e9]


def test_a_kernel_that_nobody_bore_is_kept_without_a_birth(home: Home, tell: Any, kbevolve: Any) -> None:
    home.write(finding(UNROLL=8))
    outcome = tell()
    assert "1 of the kernels have no lineage here" in outcome.out
    assert "resume" not in outcome.out
    shown = kbevolve("archive", "show", kernel(UNROLL=8).id, "--archive", home.path)
    assert shown.code == 0, shown.err
    assert "3.00×" in shown.out


def test_a_problem_that_the_archive_does_not_know_comes_along(home: Home, tell: Any) -> None:
    other = finding(UNROLL=2)
    text = other.problem_source + "\nN = 3\n"
    moved = replace(other, problem_source=text)
    moved = replace(moved, evaluation=replace(moved.evaluation, problem=moved.problem.id))
    home.write(moved)
    assert tell().code == 0
    with Archive(home.path) as archive:
        assert archive.problems.get(moved.problem.id).source == text
        assert archive.runs.evaluations(home.run.id).keys() == {kernel(UNROLL=1).id}


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
def test_a_run_takes_only_what_it_could_have_found(
    home: Home, tell: Any, changes: dict[str, Any], message: str
) -> None:
    home.write(finding(UNROLL=2, **changes), finding(UNROLL=4))
    outcome = tell("--run", "latest")
    assert outcome.code == 1
    assert f"{home.results}, line 1: {message}" in outcome.err
    assert "1 added, 0 there already, 1 left out." in outcome.out
    assert home.evaluations(kernel(UNROLL=2)) == []
    # Without --run it is a fact like any other, and the run still waits.
    outcome = tell()
    assert outcome.code == 0
    assert "resume" not in outcome.out
    assert len(home.evaluations(kernel(UNROLL=2))) == 1


def test_a_run_takes_no_other_problem(home: Home, tell: Any) -> None:
    other = finding(UNROLL=2)
    moved = replace(other, problem_source=other.problem_source + "\n")
    moved = replace(moved, evaluation=replace(other.evaluation, problem=moved.problem.id))
    home.write(moved)
    outcome = tell("--run", home.run.id)
    assert outcome.code == 1
    assert (
        f"its problem is L1/double (text {moved.problem.id}), that of run double-1 is L1/double (text {problem().id})"
        in (outcome.err)
    )
    assert "0 added" in outcome.out


def test_bad_lines_are_named_and_the_others_come_in(home: Home, tell: Any) -> None:
    forged = to_line(finding(UNROLL=4)).replace('"UNROLL = 4', '"UNROLL = 5')
    home.write(finding(UNROLL=2), end=f"{forged}\nnonsense\n" + to_line(failed(UNROLL=4))[:99])
    outcome = tell()
    assert outcome.code == 1
    assert "line 2: evaluation.kernel is" in outcome.err
    assert "line 3: not JSON" in outcome.err
    assert "1 added, 0 there already, 2 left out." in outcome.out
    assert "Its last line was cut short" in outcome.out
    assert home.evaluations(kernel(UNROLL=4)) == []
    facts = json.loads(tell("--json").out)
    assert (facts["added"], facts["known"], facts["torn"], len(facts["refused"])) == (0, 1, True, 2)


def test_many_bad_lines_are_counted(home: Home, tell: Any) -> None:
    home.write(end="nonsense\n" * 50)
    outcome = tell()
    assert len(outcome.err.splitlines()) == 21
    assert "30 more lines like these" in outcome.err


def test_what_is_not_there_is_one_line(home: Home, tell: Any, kbevolve: Any, tmp_path: Path) -> None:
    outcome = tell()
    assert outcome.code == 2
    assert "results.jsonl: No such file or directory; name a file that `kbevolve evaluate --batch` wrote" in outcome.err
    home.write(finding())
    missing = kbevolve("tell", home.results, "--archive", tmp_path / "none.db")
    assert missing.code == 1
    assert "no archive at" in missing.err
    assert not (tmp_path / "none.db").exists()
    assert "no run 'x'" in tell("--run", "x").err

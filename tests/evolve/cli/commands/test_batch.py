"""`kbevolve evaluate --batch` with a judge that is a double: what is judged, what is written, how it goes on."""

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from kbevolve import __version__
from kbevolve.archive.batch_results import BatchResult, read_results
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import Problem
from tests.evolve.doubles import PROBLEM_TEXT, KnownJudge, kernel

KERNELS = {"b/deep/x.py": kernel(UNROLL=2), "a.py": kernel(), "b/wrong.py": kernel(WRONG=1), "c.py": kernel(UNROLL=8)}
#: In the order of the paths.
ORDER = ["a.py", "b/deep/x.py", "b/wrong.py", "c.py"]


class BreakingJudge(KnownJudge):
    """Breaks when it is asked about the kernels of `breaking` (by id)."""

    def __init__(self, error: BaseException, *breaking: str) -> None:
        super().__init__()
        self.error, self.breaking = error, breaking

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        if kernel.id in self.breaking:
            raise self.error
        return super().evaluate(problem, kernel)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, one in KERNELS.items():
        path = tmp_path / "children" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(one.source)
    (tmp_path / "problem.py").write_text(PROBLEM_TEXT)
    return tmp_path


@pytest.fixture
def batch(kbevolve: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def call(judge: KnownJudge, *words: object) -> Any:
        judge.replace_judge(monkeypatch)
        named = ("--batch", folder / "children", "--out", folder / "out.jsonl", "--problem", folder / "problem.py")
        return kbevolve("evaluate", *named, "--device", "cpu", *words)

    return call


def lines(folder: Path) -> list[BatchResult]:
    read = read_results((folder / "out.jsonl").read_bytes())
    assert (read.bad, read.torn) == ((), b"")
    return [finding for _, finding in read.results]


def test_every_kernel_gets_a_line_with_all_that_makes_sense_of_it(batch: Any, folder: Path) -> None:
    judge = KnownJudge()
    outcome = batch(judge)
    assert outcome.code == 0, outcome.err
    assert judge.closed
    found = lines(folder)
    assert [one.file for one in found] == ORDER
    assert [one.source for one in found] == [KERNELS[name].source for name in ORDER]
    assert [one.evaluation.verdict is Verdict.CORRECT for one in found] == [True, True, False, True]
    first = found[0]
    assert first.evaluation.device == judge.fingerprint
    assert first.evaluation.execution.phases == {"prepare": 0.1, "build": 0.2}
    assert first.kbevolve == first.versions["kbevolve"] == __version__
    assert "torch" in first.versions
    assert first.problem_source == PROBLEM_TEXT
    assert json.loads(first.settings) == json.loads(judge.settings.model_dump_json())


def test_a_line_for_each_verdict_and_a_summary(batch: Any, folder: Path) -> None:
    outcome = batch(KnownJudge())
    assert [line.partition(",")[0] for line in outcome.err.splitlines()] == [
        "1/4 a.py: 0.820× [0.812", "2/4 b/deep/x.py: 1.12× [1.11", "3/4 b/wrong.py: wrong", "4/4 c.py: 1.72× [1.70",
    ]  # fmt: skip
    for part in ("4 kernels: 3 correct, 1 wrong", f"Best: {KERNELS['c.py'].id} (c.py), 1.72×", "per hour"):
        assert part in outcome.out
    assert f"kbevolve import {folder / 'out.jsonl'}" in outcome.out


def test_json_is_one_line(batch: Any) -> None:
    facts = json.loads(batch(KnownJudge(), "--json").out)
    assert facts["verdicts"] == {"correct": 3, "wrong": 1}
    assert (facts["judged"], facts["known"], facts["left"]) == (4, 0, 0)
    assert facts["best"] == {"kernel": KERNELS["c.py"].id, "file": "c.py", "speedup": pytest.approx(1.72)}


def test_what_has_a_line_is_not_judged_again(batch: Any, folder: Path) -> None:
    batch(KnownJudge())
    whole = (folder / "out.jsonl").read_bytes()
    kept = whole.split(b"\n")[:2]
    (folder / "out.jsonl").write_bytes(b"\n".join([*kept, b'{"format": 1, "kbev']))
    judge = KnownJudge()
    outcome = batch(judge)
    assert outcome.code == 0
    assert set(judge.asked) == {KERNELS["b/wrong.py"].id, KERNELS["c.py"].id}
    assert "the last line was incomplete; its kernel is judged again" in outcome.err
    assert "2 had a line" in outcome.out
    assert "4 kernels: 3 correct" in outcome.out
    assert (folder / "out.jsonl").read_bytes().split(b"\n")[:2] == kept
    assert [one.file for one in lines(folder)] == ORDER
    idle = KnownJudge()
    outcome = batch(idle)
    assert outcome.code == 0
    assert not idle.asked
    assert not idle.closed, "a judge was started for nothing"


def test_other_conditions_are_other_findings(batch: Any, folder: Path) -> None:
    batch(KnownJudge())
    other = KnownJudge(precision="tf32")
    assert batch(other, "--precision", "tf32").code == 0
    assert other.asked.total() == 4
    assert [one.evaluation.precision for one in lines(folder)] == ["fp32"] * 4 + ["tf32"] * 4
    again = KnownJudge()
    outcome = batch(again, "--allow-library", "none")
    assert not again.asked
    assert "4 kernels have a line that was written with other settings; another --out judges them again" in outcome.err


def test_files_that_are_no_new_kernel_are_reported(batch: Any, folder: Path) -> None:
    (folder / "children" / "d.py").write_text("# a comment\n" + KERNELS["a.py"].source)
    (folder / "children" / "e.py").write_bytes(b"\xff\xfe")
    (folder / "children" / "notes.txt").write_text("no kernel")
    judge = KnownJudge()
    outcome = batch(judge)
    assert judge.asked.total() == 4
    assert "e.py: byte 0xff at position 0 is not UTF-8" in outcome.err
    assert "1 files repeat a kernel; 1 files could not be read." in outcome.out


def test_the_problem_in_the_folder_is_no_kernel(batch: Any, folder: Path) -> None:
    inside = folder / "children" / "problem.py"
    inside.write_text(PROBLEM_TEXT)
    batch(KnownJudge(), "--problem", inside)
    assert [one.file for one in lines(folder)] == ORDER


def test_interrupted_it_keeps_what_is_there(batch: Any, folder: Path) -> None:
    outcome = batch(BreakingJudge(KeyboardInterrupt(), KERNELS["b/wrong.py"].id))
    assert outcome.code == 130
    assert "the same command continues the batch" in outcome.err
    assert "2 are not judged yet" in outcome.out
    assert [one.file for one in lines(folder)] == ORDER[:2]


@pytest.mark.parametrize("width", [1, 3])
def test_a_rig_that_breaks_keeps_what_was_judged(
    batch: Any, folder: Path, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    judge = BreakingJudge(EvaluatorError("no device"), KERNELS["b/wrong.py"].id)
    outcome = batch(judge, "--set", f"work.width={width}")
    assert outcome.code == 1
    assert "kbevolve: no device" in outcome.err
    # That kernel may be to blame: it does not end the batch.
    assert {one.file for one in lines(folder)} == set(ORDER) - {"b/wrong.py"}
    assert judge.closed


@pytest.mark.parametrize("width", [1, 3])
def test_a_rig_that_stays_broken_ends_the_batch(batch: Any, folder: Path, width: int) -> None:
    judge = BreakingJudge(EvaluatorError("no device"), *(one.id for one in KERNELS.values()))
    outcome = batch(judge, "--set", f"work.width={width}")
    assert (outcome.code, lines(folder) if (folder / "out.jsonl").exists() else []) == (1, [])


def test_as_many_are_judged_at_once_as_the_judge_takes(batch: Any, folder: Path) -> None:
    meeting = threading.Barrier(2, timeout=20)

    class WideJudge(KnownJudge):
        def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
            meeting.wait()  # only two at once get through
            return super().evaluate(problem, kernel)

    assert batch(WideJudge(), "--set", "work.width=2").code == 0
    assert sorted(one.file for one in lines(folder)) == ORDER


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("kernel.py", "--batch", "."), "both FILE (kernel.py) and --batch (.): give the one file, or the folder"),
        ((), "nothing to judge: name a FILE, or a folder with --batch DIR --out results.jsonl"),
        (("--batch", "."), "--batch . needs a file for the results: --out results.jsonl"),
        (("kernel.py", "--out", "x"), "--out x is for --batch DIR"),
        (("--batch", "nowhere", "--out", "x"), "nowhere is not a folder; --batch wants a folder of ModelNew files"),
        (("--batch", ".", "--out", "x"), "has no kernel (*.py)"),
        (("kernel.py", "--device", "cpu", "--devices", "cpu,cpu"), "both --device and --devices"),
    ],
)
def test_misuse_is_said_before_anything_is_started(
    kbevolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], message: str
) -> None:
    judge = KnownJudge()
    judge.replace_judge(monkeypatch)
    monkeypatch.chdir(tmp_path)
    outcome = kbevolve("evaluate", *words, "--problem", "L1/matmul")
    assert outcome.code == 2
    assert message in outcome.err
    assert not judge.asked


def test_a_results_file_that_is_something_else_is_left_alone(batch: Any, folder: Path) -> None:
    (folder / "out.jsonl").write_text("my notes\n")
    judge = KnownJudge()
    outcome = batch(judge)
    assert outcome.code == 2
    assert "out.jsonl, line 1: not JSON" in outcome.err
    assert (folder / "out.jsonl").read_text() == "my notes\n"
    assert not judge.asked

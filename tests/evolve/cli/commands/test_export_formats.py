"""`kbevolve export --format`: every format is measured first; what a platform refuses is said before that."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.evolve.exports.formats import FORMATS
from tests.evolve.cli.commands.scripted_judge import SLOWER, ScriptedJudge, use


def words_for(form: str, tmp_path: Path) -> tuple[Any, ...]:
    """The options of an export in this format, as it wants them."""
    made = FORMATS[form]
    task = ("--task", "gemm_v2") if made.task else ()
    return ("--format", form, *task, "-o", tmp_path / f"best_kernel{made.ending}")


@pytest.mark.parametrize("form", FORMATS)
def test_every_format_is_measured_first_and_refuses_what_does_not_hold(
    form: str, export: Any, small_archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = words_for(form, tmp_path)
    for answer, options, code in (
        ({"verdict": Verdict.WRONG, "speedup": None}, ("--even-if-slower",), 1),
        (SLOWER, (), 1),
        (SLOWER, ("--even-if-slower",), 0),
    ):
        assert not words[-1].exists()
        judge = use(ScriptedJudge(**answer), monkeypatch, small_archive.run.device)
        outcome = export(*words, *options, "--kernel", small_archive.best)
        assert (outcome.code, len(judge.asked)) == (code, 1), outcome.err
    files = [words[-1]] if words[-1].is_file() else words[-1].iterdir()
    text = "\n".join(file.read_text() for file in files)
    assert "3.000 times PyTorch eager" in text
    assert f"kbevolve evaluate {FORMATS[form].kernel_file or words[-1].name} --problem L1/matmul" in text


def test_an_operator_is_a_package_with_the_kernel_the_reference_and_the_provenance(
    kbevolve: Any, judge: Any, small_archive: Any, tmp_path: Path
) -> None:
    words = ("export", "--archive", small_archive.path, "--format", "torch-op", "-o")
    assert "is no name for a Python package" in kbevolve(*words, tmp_path / "fast.op").err
    assert judge.asked == []
    outcome = kbevolve(*words, tmp_path / "fast_op")
    assert outcome.code == 0, outcome.err
    assert {file.name for file in (tmp_path / "fast_op").iterdir()} == {"__init__.py", "kernel.py", "reference.py"}
    assert Kernel.from_source((tmp_path / "fast_op" / "kernel.py").read_text()).id == small_archive.best
    assert "N = 512" in (tmp_path / "fast_op" / "reference.py").read_text()  # as it was judged on a CPU
    text = (tmp_path / "fast_op" / "__init__.py").read_text()
    assert "kbevolve evaluate kernel.py --problem L1/matmul" in text
    assert f"kbevolve::l1_matmul_{small_archive.best}" in text
    again = kbevolve(*words, tmp_path / "fast_op")
    assert "exists already; --force writes over it" in again.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("--format", "gpumode", "-o", "a.py"), "--format gpumode needs the name of the leaderboard"),
        (("--format", "flashinfer-bench", "-o", "a.json"), "needs the name of the definition"),
        (("--format", "gpumode", "-o", "a.py", "--task", "two words"), "the name of a leaderboard is one word"),
        (("--format", "gpumode", "-o", "a.txt", "--task", "gemm"), "a file for gpumode ends in .py: -o a.py"),
        (("--format", "flashinfer-bench", "-o", "a", "--task", "gemm"), "ends in .json: -o a.json"),
        (("--task", "gemm"), "--task is for --format gpumode or flashinfer-bench; leave it out"),
        (("--format", "dataset", "-o", "a.jsonl", "--task", "gemm"), "--task is for --format gpumode"),
    ],
)
def test_what_a_platform_wants_is_asked_for_before_it_is_measured(
    words: tuple[str, ...], why: str, export: Any, judge: Any
) -> None:
    outcome = export(*words)
    assert (outcome.code, judge.asked) == (2, [])
    assert why in outcome.err


def test_a_kernel_that_a_platform_does_not_accept_is_not_measured(
    export: Any, judge: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_archive: Any
) -> None:
    with Archive(small_archive.path) as archive:
        other = Kernel.from_source(archive.kernels.get(small_archive.best).source + "\nSTREAM = 0\n")
        birth = dataclasses.replace(small_archive.births[0], slot=77, kernel=other.id)
        archive.add_birth(birth, kernel=other)
        archive.add_evaluation(dataclasses.replace(small_archive.evaluations[small_archive.best], kernel=other.id))
    outcome = export(*words_for("gpumode", tmp_path), "--kernel", other.id)
    assert (outcome.code, judge.asked) == (2, [])
    assert 'KernelBot accepts no file with the word "stream"' in outcome.err

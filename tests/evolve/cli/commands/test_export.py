"""`kbevolve export`: the file is measured again first, and says so; a kernel that fails now is not written."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.cli.commands import export as command
from kbevolve.evolve.exports.formats import FORMATS
from kbevolve.evolve.runs import verification
from tests.small_archive import confirmation


class ScriptedJudge:
    """Gives one answer, and remembers what it was asked."""

    def __init__(self, **answer: Any) -> None:
        self.answer = answer
        self.asked: list[tuple[Problem, Kernel]] = []
        self.settings: EvaluationSettings | None = None
        self.device: Device | None = None
        self.closed = False

    def make(self, device: Device, settings: EvaluationSettings) -> "ScriptedJudge":
        self.device, self.settings = device, settings
        return self

    def __enter__(self) -> "ScriptedJudge":
        return self

    def __exit__(self, *_: object) -> None:
        self.closed = True

    def evaluate(self, problem: Problem, kernel: Kernel) -> Evaluation:
        assert self.device is not None
        self.asked.append((problem, kernel))
        answer = {
            "verdict": Verdict.CORRECT, "time_ms": 0.5, "reference_ms": 2.0, "speedup": 4.0, "speedup_low": 3.9,
            "speedup_high": 4.1, "error": 4e-6,
        }  # fmt: skip
        return grouped(Evaluation,
            kernel=kernel.id, problem=problem.id, device=self.device.fingerprint, precision="fp32",
            **answer | self.answer,
        )  # fmt: skip


@pytest.fixture
def judge(monkeypatch: pytest.MonkeyPatch, small_archive: Any) -> ScriptedJudge:
    return use(ScriptedJudge(), monkeypatch, small_archive.run.device)


def use(judge: ScriptedJudge, monkeypatch: pytest.MonkeyPatch, fingerprint: str) -> ScriptedJudge:
    device = Device(type="cpu", index=0, fingerprint=fingerprint, description="A Test Processor, 2 threads")
    monkeypatch.setattr(command, "find_device", lambda choice: device)
    monkeypatch.setattr(verification, "plain_judge", judge.make)
    return judge


@pytest.fixture
def export(kbevolve: Any, small_archive: Any, tmp_path: Path) -> Any:
    def call(*words: str) -> Any:
        named = () if "--problem" in words else ("--problem", "L1/matmul")
        return kbevolve("export", *named, "-o", tmp_path / "best.py", "--archive", small_archive.path, *words)

    return call


def test_the_best_kernel_is_measured_again_and_written(
    export: Any, judge: Any, small_archive: Any, tmp_path: Path
) -> None:
    outcome = export()
    assert outcome.code == 0, outcome.err
    assert "4.00× [3.90, 4.10] over eager (500 µs, eager 2.00 ms)" in outcome.out
    text = (tmp_path / "best.py").read_text()
    assert Kernel.from_source(text).id == small_archive.best
    assert "4.000 times PyTorch eager, 95 % interval 3.900 to 4.100" in text
    then = small_archive.evaluations[small_archive.best].timing.speedup
    assert f"{then:.3f}x" in text  # the lineage keeps what the run measured
    assert "kbevolve evaluate best.py --problem L1/matmul --device cpu" in text
    assert judge.asked == [(small_archive.problem, judge.asked[0][1])]
    assert judge.settings == EvaluationSettings(precision="fp32")
    assert judge.closed
    assert list(tmp_path.glob(".best.py*")) == []


def test_the_champion_is_exported_with_its_confirmed_number(
    export: Any, judge: Any, small_archive: Any, tmp_path: Path
) -> None:
    # Others look faster than the champion, and that was luck: they did not win against it.
    champion = confirmation(small_archive.run.id, small_archive.births[0].kernel, speedup=1.07)
    assert champion.speedup < small_archive.evaluations[small_archive.best].timing.speedup
    with Archive(small_archive.path) as archive:
        archive.add_contest([champion])
    outcome = export()
    assert outcome.code == 0, outcome.err
    assert f"{champion.speedup:#.3g}× over eager in its run" in outcome.out
    assert judge.asked[0][1].id == champion.kernel
    text = (tmp_path / "best.py").read_text()
    assert f"# confirmed   {champion.speedup:.3f} times PyTorch eager, 95 % interval" in text
    assert "in the challenge of its run" in text
    assert "4.000 times PyTorch eager" in text


def test_the_new_measurement_is_in_the_archive_beside_the_first(export: Any, judge: Any, small_archive: Any) -> None:
    export()
    with Archive(small_archive.path) as archive:
        first, again = archive.kernels.evaluations(small_archive.best)
        assert first == small_archive.evaluations[small_archive.best]
        assert again.timing.speedup == 4.0
        assert archive.runs.evaluations(small_archive.run.id)[small_archive.best].timing.speedup == first.timing.speedup


def test_a_kernel_that_fails_now_is_not_written(
    export: Any,
    small_archive: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answer = {"verdict": Verdict.WRONG, "speedup": None, "message": "error 3e-1, 1.2e-05 is accepted"}
    use(ScriptedJudge(**answer), monkeypatch, small_archive.run.device)
    outcome = export()
    assert outcome.code == 1
    assert "nothing written: wrong this time: error 3e-1, 1.2e-05 is accepted" in outcome.err
    assert not (tmp_path / "best.py").exists()
    with Archive(small_archive.path) as archive:
        assert archive.kernels.evaluations(small_archive.best)[-1].verdict is Verdict.WRONG


def test_a_kernel_can_be_chosen(export: Any, judge: Any, small_archive: Any, tmp_path: Path) -> None:
    seed = small_archive.births[0].kernel
    assert export("--kernel", seed[:10]).code == 0
    assert Kernel.from_source((tmp_path / "best.py").read_text()).id == seed


def test_a_file_is_not_written_over_without_force(export: Any, judge: Any, tmp_path: Path) -> None:
    (tmp_path / "best.py").write_text("mine\n")
    outcome = export()
    assert outcome.code == 2
    assert "exists already; --force writes over it" in outcome.err
    assert judge.asked == []  # reported before the minute of measuring
    assert (tmp_path / "best.py").read_text() == "mine\n"
    assert export("--force").code == 0
    assert "ModelNew" in (tmp_path / "best.py").read_text()


def test_impossible_paths_are_reported_first(kbevolve: Any, judge: Any, small_archive: Any, tmp_path: Path) -> None:
    words = ("export", "--problem", "L1/matmul", "--archive", small_archive.path, "-o")
    missing = kbevolve(*words, tmp_path / "none" / "best.py")
    assert (missing.code, judge.asked) == (2, [])
    assert "make it first: mkdir -p" in missing.err
    assert "is a directory; name a file" in kbevolve(*words, tmp_path).err


def test_another_device_is_named_with_the_remedy(
    export: Any,
    small_archive: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    judge = use(ScriptedJudge(), monkeypatch, "cpu/Another")
    outcome = export()
    assert outcome.code == 1
    assert "measured on cpu/Another, only on cpu/Test Processor" in outcome.err
    assert "--kernel ID" in outcome.err
    assert export("--kernel", small_archive.best).code == 0
    assert judge.asked[0][1].id == small_archive.best
    assert "(cpu/Another)" in (tmp_path / "best.py").read_text()


def test_names_that_are_not_there_name_the_nearest(export: Any, judge: Any) -> None:
    outcome = export("--problem", "L1/matmulx")
    assert outcome.code == 1
    assert "Nearest: L1/matmul." in outcome.err
    assert "no kernel 'zz'" in export("--kernel", "zz").err


def test_nothing_correct_yet_says_what_to_do(kbevolve: Any, judge: Any, make_archive: Any, tmp_path: Path) -> None:
    sample = make_archive("failed.db", generations=1)
    with Archive(tmp_path / "bare.db") as archive:
        archive.add_problem(sample.problem)
        archive.add_run(sample.run)
    outcome = kbevolve("export", "--problem", "L1/matmul", "-o", tmp_path / "x.py", "--archive", tmp_path / "bare.db")
    assert outcome.code == 1
    assert "no correct kernel of L1/matmul yet; go on: kbevolve resume" in outcome.err


def test_a_problem_of_ones_own_is_judged_as_it_was(
    kbevolve: Any, judge: Any, tmp_path: Path, small_archive: Any
) -> None:
    """The file of a problem may be gone or changed since: the archive's text is what is judged."""
    with Archive(tmp_path / "own.db") as archive:
        own = dataclasses.replace(small_archive.problem, name="mine", path=tmp_path / "gone.py")
        archive.add_problem(own)
        archive.add_run(dataclasses.replace(small_archive.run, problem_name="mine"))
        kernel = Kernel.from_source("class ModelNew: pass\n")
        from kbevolve.archive.records import Birth, BirthState, Operator

        archive.add_birth(
            Birth(
                run=small_archive.run.id, generation=0, island=0, slot=0, operator=Operator.SEED,
                state=BirthState.CREATED, kernel=kernel.id,
            ),
            kernel=kernel,
        )  # fmt: skip
        best = small_archive.evaluations[small_archive.best]
        archive.add_evaluation(dataclasses.replace(best, kernel=kernel.id))
    outcome = kbevolve("export", "--problem", "mine", "-o", tmp_path / "x.py", "--archive", tmp_path / "own.db")
    assert outcome.code == 0, outcome.err
    assert judge.asked == [(own, kernel)]


SLOWER = {"speedup": 3.0, "speedup_low": 2.9, "speedup_high": 3.1}


def test_a_speedup_that_does_not_hold_is_refused_unless_it_is_forced(
    export: Any, small_archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(ScriptedJudge(**SLOWER), monkeypatch, small_archive.run.device)
    then = small_archive.evaluations[small_archive.best].timing
    assert SLOWER["speedup_high"] < then.speedup_low
    outcome = export()
    assert outcome.code == 1
    assert "nothing written: 3.00× [2.90, 3.10] now, 3.93× [3.81, 4.05] before" in outcome.err
    assert not (tmp_path / "best.py").exists()
    outcome = export("--even-if-slower")
    assert outcome.code == 0
    assert "written all the same: 3.00× [2.90, 3.10] now" in outcome.err
    assert "3.000 times PyTorch eager" in (tmp_path / "best.py").read_text()


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


def test_a_wrong_kernel_is_written_by_no_means(
    export: Any, small_archive: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    use(ScriptedJudge(verdict=Verdict.WRONG, speedup=None), monkeypatch, small_archive.run.device)
    assert export("--even-if-slower").code == 1
    assert not (tmp_path / "best.py").exists()


def test_without_a_problem_it_is_the_latest_runs_or_the_kernels(
    kbevolve: Any, judge: Any, small_archive: Any, make_archive: Any, tmp_path: Path
) -> None:
    words = ("export", "--archive", small_archive.path, "-o", tmp_path / "best.py", "--force")
    assert kbevolve(*words).code == 0
    assert judge.asked[0][1].id == small_archive.best
    newer = make_archive(run_id="softmax-2", problem_name="L1/softmax", seed=1)
    for sample, name in ((small_archive, "L1/matmul"), (newer, "L1/softmax")):
        outcome = kbevolve(*words, "--kernel", sample.best, "--even-if-slower")
        assert outcome.code == 0, outcome.err
        assert f"--problem {name}" in (tmp_path / "best.py").read_text()


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


def test_a_modelnew_file_loads_where_there_is_only_torch(export: Any, judge: Any, tmp_path: Path) -> None:
    assert export().code == 0
    code = (
        "import sys, runpy\n"
        f"model = runpy.run_path({str(tmp_path / 'best.py')!r})['ModelNew']()\n"
        "import torch\n"
        "a, b = torch.randn(70, 90), torch.randn(90, 50)\n"
        "torch.testing.assert_close(model(a, b), a @ b)\n"
        "assert not [name for name in sys.modules if name.startswith('kbevolve')]\n"
    )
    environment = {name: text for name, text in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=tmp_path, env=environment)
    assert done.returncode == 0, done.stderr


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


def test_the_file_is_required(kbevolve: Any, small_archive: Any) -> None:
    outcome = kbevolve("export", "--problem", "L1/matmul", "--archive", small_archive.path)
    assert outcome.code == 2
    assert "Missing option '-o' / '--output'" in outcome.err

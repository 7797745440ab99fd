"""`kbevolve export`: the file is measured again first, and says so; a kernel that fails now is not written."""

import dataclasses
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import EvaluationSettings
from tests.evolve.cli.commands.scripted_judge import SLOWER, ScriptedJudge, use
from tests.small_archive import confirmation


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


def test_the_file_is_required(kbevolve: Any, small_archive: Any) -> None:
    outcome = kbevolve("export", "--problem", "L1/matmul", "--archive", small_archive.path)
    assert outcome.code == 2
    assert "Missing option '-o' / '--output'" in outcome.err


def test_a_wide_interval_is_written_with_a_warning(export: Any, judge: Any, small_archive: Any) -> None:
    assert "interval is wide" not in export("--force").err
    judge.answer = {"speedup": 4.0, "speedup_low": 0.000445, "speedup_high": 18.8}
    outcome = export("--force")
    assert outcome.code == 0
    assert "The interval is wide: its ends differ by a factor 42247" in outcome.err


def test_a_run_names_its_best_kernel(kbevolve: Any, judge: Any, small_archive: Any, tmp_path: Path) -> None:
    words = ("export", "--run", small_archive.run.id, "-o", tmp_path / "best.py", "--archive", small_archive.path)
    assert kbevolve(*words).code == 0
    assert judge.asked[0][1].id == small_archive.best
    assert "name one kernel" in kbevolve(*words, "--kernel", small_archive.best, "--force").err

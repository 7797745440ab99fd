"""Kernels judged on another machine, by the real judge: written, interrupted, continued, imported, resumed."""

import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.batch_results import read_results
from kbevolve.archive.records import Evaluation, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.settings import Settings
from kbevolve.evolve.runs.pending import pending_kernels
from tests.evolve.cli.commands.test_run import KERNEL, PROBLEM, command, environment
from tests.evolve.doubles import KnownEvaluator, KnownJudge

#: Starting kernels of the run; the first is honest, the others are not, each in its own way.
STARTS = {
    "chunks.py": KERNEL,
    "wrong.py": KERNEL.replace("piece * 2", "piece * 3").replace("piece * 8 / 4", "piece * 3"),
    "crash.py": KERNEL.replace("out = torch", 'raise ValueError("half a pair: \\ud800")\n        out = torch'),
}


class Interrupting(KnownJudge):
    """A judge that is interrupted over the first kernel: all births of the first generation wait."""

    def evaluate(self, *asked: Any) -> Evaluation:
        raise KeyboardInterrupt


@pytest.fixture
def home(tmp_path: Path, kbevolve: Any, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an archive whose run waits for the verdicts of its starting kernels."""
    (tmp_path / "twice.py").write_text(PROBLEM)
    words = ["run", "--problem", "twice.py", "--preset", "smoke", "--device", "cpu", "--generations", "0"]
    for name, text in STARTS.items():
        (tmp_path / name).write_text(text)
        words += ["--start", name]
    words += ["--set", "evaluation.confirm_rounds=0", "--set", "evaluation.rounds=3"]
    with monkeypatch.context() as patch:
        patch.chdir(tmp_path)
        Interrupting().replace_judge(patch)
        assert kbevolve(*words).code == 130
    return tmp_path


def lines(path: Path) -> list[str]:
    return path.read_text().split("\n")[:-1] if path.exists() else []


@pytest.mark.slow
def test_children_are_judged_elsewhere_and_come_home(
    home: Path, kbevolve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(home)
    with Archive("kbevolve.db", create=False) as archive:
        run = archive.runs.get()
        names = {
            kernel.id: f"g{birth.generation:04}-i{birth.island:02}-s{birth.slot}-{kernel.id}.py"
            for birth, kernel in pending_kernels(archive, run)
        }
    assert len(names) == 1 + len(STARTS), "the reference and what was given to start with"
    exported = kbevolve("pending", "pending")
    assert exported.code == 0, exported.err

    # The command that it shows is the command that is typed in on the other machine.
    (shown,) = (line.split() for line in exported.out.splitlines() if "--batch" in line)
    out = home / "results.jsonl"
    process = subprocess.Popen(
        command(*shown[1:], "--device", "cpu"), cwd=home, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True,
    )  # fmt: skip
    give_up = time.monotonic() + 90
    while not lines(out):
        assert time.monotonic() < give_up, "no kernel was judged in 90 s"
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=20)
    before = lines(out)
    assert len(before) < len(names), "it was to be killed in the middle"
    with out.open("a") as file:
        file.write(before[0][:50])  # as a kill in the middle of a line leaves it

    again = subprocess.run(
        command(*shown[1:], "--device", "cpu"), cwd=home, env=environment(), capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert "the last line was incomplete" in again.stderr
    assert lines(out)[: len(before)] == before
    read = read_results(out.read_bytes())
    assert (read.bad, read.torn) == ((), b"")
    found = {finding.evaluation.kernel: finding for _, finding in read.results}
    assert len(read.results) == len(found) == len(names)
    assert {finding.evaluation.kernel: finding.file for finding in found.values()} == names
    verdicts = sorted(finding.evaluation.verdict for finding in found.values())
    assert verdicts == [Verdict.CRASHED, Verdict.WRONG, Verdict.CORRECT, Verdict.CORRECT]
    for finding in found.values():
        assert finding.evaluation.execution.started_at > 0
        assert {"build", "trials"} <= finding.evaluation.execution.phases.keys()
        assert bool(finding.evaluation.blocks) is (finding.evaluation.verdict is Verdict.CORRECT)
        assert (
            finding.settings
            == Settings.load(base={}, file=home / "pending" / "settings.yaml").evaluation.model_dump_json()
        )

    imported = kbevolve("import", "results.jsonl", "--run", run.id)
    assert imported.code == 0, imported.err
    assert f"{len(names)} added" in imported.out
    assert f"A run waited for {len(names)} of them: kbevolve resume {run.id}" in imported.out

    # A second evaluation would be noticed.
    judge = KnownJudge()
    judge.replace_judge(monkeypatch)
    monkeypatch.setattr(KnownEvaluator, "evaluate", Interrupting.evaluate)
    resumed = kbevolve("resume")
    assert resumed.code == 0, resumed.err
    assert "all generations were run" in resumed.out
    with Archive("kbevolve.db", create=False) as archive:
        assert pending_kernels(archive, run) == []
        for kernel, finding in found.items():
            assert archive.kernels.evaluations(kernel) == [finding.evaluation]
    stats = kbevolve("archive", "stats")
    assert stats.code == 0, stats.err
    assert f"for {len(names)} children" in stats.out
    assert "0 added" in kbevolve("import", "results.jsonl").out

"""The main job as a user types it: run, stop, kill, resume, on the CPU, with real judging of a tiny problem."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kbevolve.archive.records import BirthState, StopReason, Verdict
from kbevolve.archive.store import Archive
from tests.evolve.loopback import Answer, Loopback, Request, completion

PROBLEM = '''"""Twice x."""

import torch
from torch import nn

N = 1000


class Model(nn.Module):
    def forward(self, x):
        return x + x


def get_inputs():
    return [torch.randn(N, N)]


def get_init_inputs():
    return []
'''

KERNEL = """import torch
from torch import nn

CHUNKS = 8  # tune: 1, 2, 4, 8, 16, 32
INPLACE = 0  # tune: 0, 1
DETOUR = 1  # tune: 0, 1


class ModelNew(nn.Module):
    def forward(self, x):
        out = torch.empty_like(x)
        for part, piece in zip(out.chunk(CHUNKS), x.chunk(CHUNKS)):
            if INPLACE:
                torch.mul(piece, 2, out=part)
            else:
                part.copy_(piece * 8 / 4 if DETOUR else piece * 2)
        return out
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "twice.py").write_text(PROBLEM)
    (tmp_path / "kernel.py").write_text(KERNEL)
    return tmp_path


def command(*words: str) -> list[str]:
    return [sys.executable, "-m", "kbevolve", *words]


def environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(Path(__file__).parents[4]), "COLUMNS": "100"}


def type_in(folder: Path, *words: str, environ: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command(*words), cwd=folder, env=environ or environment(), capture_output=True, text=True, check=False
    )


RUN = ("run", "--problem", "twice.py", "--start", "kernel.py", "--preset", "smoke", "--device", "cpu")


@pytest.mark.slow
def test_run_export_evaluate(folder: Path) -> None:
    # A call takes microseconds: on a busy machine the speedup came back at two thirds, which export refuses otherwise.
    done = type_in(folder, *RUN, "--generations", "2", "--set", "evaluation.tie=1")
    assert done.returncode == 0, done.stderr
    assert "No model is configured" in done.stdout
    assert "all generations were run" in done.stdout
    assert re.search(r"kbevolve export --kernel \w{16} -o best.py ", done.stdout)
    with Archive(folder / "kbevolve.db", create=False) as archive:
        run = archive.runs.get()
        births = archive.runs.births(run.id)
        assert len([birth for birth in births if birth.generation]) == 2 * 2
        found = archive.runs.evaluations(run.id)
        assert {evaluation.verdict for evaluation in found.values()} == {Verdict.CORRECT}
        assert len(found) == len({birth.kernel for birth in births if birth.kernel})
    written = type_in(folder, "export", "--problem", "twice.py", "-o", "best.py", "--device", "cpu")
    assert written.returncode == 0, written.stderr
    judged = type_in(folder, "evaluate", "best.py", "--problem", "twice.py", "--device", "cpu", "--json")
    assert json.loads(judged.stdout.splitlines()[-1])["verdict"] == "correct"
    over = type_in(folder, "resume")
    assert over.returncode == 2
    assert "give more with --generations 4" in over.stderr


@pytest.mark.slow
@pytest.mark.parametrize("how", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_run_that_is_stopped_loses_nothing_and_goes_on(folder: Path, how: signal.Signals) -> None:
    process = subprocess.Popen(
        command(*RUN, "--generations", "4"),
        cwd=folder,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # Who runs these tests in the background may have been started with Ctrl-C ignored, and hands that on.
        preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
    )
    path = folder / "kbevolve.db"
    give_up = time.monotonic() + 90
    while judged(path) < 4:
        assert time.monotonic() < give_up, "four kernels were not judged in 90 s"
        assert process.poll() is None, process.communicate()[1]
        time.sleep(0.05)
    process.send_signal(how)
    output, complaint = process.communicate(timeout=20)
    assert process.returncode == (-how if how is signal.SIGKILL else 130), complaint
    with Archive(path, create=False) as archive:
        run = archive.runs.get()
        stopped = archive.runs.summary(run).stopped
        before = archive.runs.evaluations(run.id)
    if how is not signal.SIGKILL:
        assert stopped is StopReason.INTERRUPTED
        assert "kbevolve resume" in output
    resumed = type_in(folder, "resume")
    assert resumed.returncode == 0, resumed.stderr
    with Archive(path, create=False) as archive:
        births = archive.runs.births(run.id)
        after = archive.runs.evaluations(run.id)
    assert before.items() <= after.items(), "an evaluation that was finished changed or is gone"
    children = [birth for birth in births if birth.generation]
    assert len(children) == 4 * 2
    assert all(birth.kernel in after for birth in children if birth.state is BirthState.CREATED)
    assert not orphans(folder)


def judged(path: Path) -> int:
    if not path.exists():
        return 0
    with Archive(path) as archive:
        runs = archive.runs.summaries()
        return runs[0].evaluated if runs else 0


def orphans(folder: Path) -> list[str]:
    """Command lines of workers that outlived the run: they die with their judge, within a moment."""
    for _ in range(50):
        alive = [
            line
            for line in subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True).stdout.split(
                "\n"
            )
            if str(folder) in line
        ]
        if not alive:
            return []
        time.sleep(0.1)
    return alive


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (("run", "--problem", "twoce.py"), "twoce.py"),
        (("run", "twoce.py"), "twoce.py"),
        (("run", "twice.py", "--problem", "L1/matmul"), "two problems: L1/matmul and twice.py"),
        (("run",), "kbevolve run L1/matmul"),
        (("run", "twice.py", "--device", "tpu"), "there are auto, cpu, cuda"),
        (("run", "--problem", "twice.py", "--set", "search.iland=2"), "search.islands"),
        (("run", "--problem", "twice.py", "--islands", "0"), "search.islands"),
        (("run", "--problem", "twice.py", "--start", "absent.py"), "absent.py"),
        (("run", "--problem", "twice.py", "--preset", "huge"), "preset"),
        (("run", "--problem", "twice.py", "--provider", "opena"), "llm.provider"),
        (("rum", "--problem", "twice.py"), "run"),
        (("run", "--problem", "twice.py", "--record", "new.jsonl"), "add --model NAME"),
        (("run", "--problem", "twice.py", "--model", "m", "--record", "twice.py"), "exists already"),
        (("run", "--problem", "twice.py", "--replay", "absent.jsonl"), "absent.jsonl"),
        (("run", "--problem", "twice.py", "--replay", "twice.py"), "no line of a recording"),
        (("run", "--problem", "twice.py", "--model", "m=many"), "not a weight"),
    ],
)
def test_misuse_is_one_line_with_the_remedy(
    folder: Path, kbevolve: Any, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], complaint: str
) -> None:
    monkeypatch.chdir(folder)
    done = kbevolve(*words)
    assert done.code == 2
    lines = done.err.strip().splitlines()
    assert len([line for line in lines if not line.startswith("See:")]) == 1
    assert complaint in lines[0]
    assert not (folder / "kbevolve.db").exists(), "an archive was made for nothing"


@pytest.mark.slow
def test_json_is_alone_on_standard_output(folder: Path) -> None:
    """Also when the problem's own file prints."""
    (folder / "twice.py").write_text(PROBLEM + 'print("from the problem")\n')
    done = type_in(folder, *RUN, "--generations", "1", "--json", "--log-file", "run.log")
    events = [json.loads(line)["event"] for line in done.stdout.splitlines()]
    assert (events[0], events[-1]) == ("started", "stopped")
    assert {"kernel", "generation", "champion"} <= set(events)
    assert "from the problem" in done.stderr
    assert "No model is configured" in done.stderr
    # The log has what -v prints, each line with its moment.
    lines = [line.split(" ", 1) for line in (folder / "run.log").read_text().splitlines()]
    assert [datetime.fromisoformat(at) for at, _ in lines] == sorted(datetime.fromisoformat(at) for at, _ in lines)
    log = "\n".join(words for _, words in lines)
    attempts = [json.loads(line) for line in done.stdout.splitlines() if '"event": "kernel"' in line]
    assert len(re.findall(r"^[0-9a-f]{16}  g\d", log, re.MULTILINE)) == len(attempts) > 1
    for words in ("No model is configured", "proposer: tunables", "stopped: all generations"):
        assert words in log


@pytest.mark.slow
def test_a_reference_that_fails_stops_the_run(folder: Path) -> None:
    (folder / "twice.py").write_text(PROBLEM.replace("x + x", "x @ torch.ones(3)"))
    done = type_in(folder, *RUN)
    assert done.returncode == 1
    assert len(done.stderr.strip().splitlines()) == 1
    assert "reference" in done.stderr


def played(request: Request) -> Answer:
    """A model that has two ideas, writes a wrong kernel first, and repairs what it is asked to repair."""
    if "JSON" in request.last:
        ideas = [{"title": "Fewer passes", "mechanism": "x is read once", "technique": "fusion", "expected_gain": 1.2}]
        return Answer(body=completion(json.dumps(ideas)))
    factor = 2 if any(message["role"] == "assistant" for message in request.messages) else 3
    body = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
    return Answer(body=completion(f"```python\n{body}        return x * {factor}\n```"))


@pytest.mark.slow
def test_a_model_writes_kernels_and_mends_them(folder: Path) -> None:
    key = "sk-secret-0123456789"
    with Loopback(otherwise=played) as server:
        done = subprocess.run(
            [
                *command(*RUN, "--generations", "1", "--seed", "1", "--model", "played", "--api-base", server.base),
                "--set",
                "search.tune_share=0",
                "--set",
                "search.islands=1",
            ],
            cwd=folder,
            env={**environment(), "OPENAI_API_KEY": key, "no_proxy": "127.0.0.1"},
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    with Archive(folder / "kbevolve.db", create=False) as archive:
        run = archive.runs.get()
        births = [birth for birth in archive.runs.births(run.id) if birth.generation == 1]
        found = archive.runs.evaluations(run.id)
        ideas = archive.runs.ideas(run.id)
        sent, received = archive.runs.tokens(run.id)
    assert [birth.slot for birth in births] == [0, 1], "the wrong child gets one repair turn"
    assert births[0].kernel
    assert births[1].kernel
    assert found[births[0].kernel].verdict is Verdict.WRONG
    assert found[births[1].kernel].verdict is Verdict.CORRECT
    assert births[1].parents[0] == births[0].kernel
    assert [idea.title for idea in ideas.values()] == ["Fewer passes"]
    assert (sent, received) == (100 * len(server.requests), 20 * len(server.requests))
    assert "x * 3" in births[0].reply
    assert key not in done.stdout + done.stderr
    assert key.encode() not in b"".join(path.read_bytes() for path in folder.glob("kbevolve.db*"))


@pytest.mark.slow
def test_a_recorded_run_is_replayed_without_its_model(folder: Path) -> None:
    """In the same archive, so that what was measured is not measured again: it is in the prompts."""
    key = "sk-secret-0123456789"
    quick = ("--no-baselines", "--set", "search.tune_share=0")
    with Loopback(otherwise=played) as server:
        models = ("--model", "large=2", "--model", "small", "--api-base", server.base)
        environ = {**environment(), "OPENAI_API_KEY": key, "no_proxy": "127.0.0.1"}
        for words in ((*RUN, *quick, *models, "--generations", "1"), ("resume", "--generations", "2")):
            done = type_in(folder, *words, "--record", "run.jsonl", environ=environ)
            assert done.returncode == 0, done.stderr
            assert key not in (folder / "run.jsonl").read_text() + done.stdout + done.stderr
    environ = {name: value for name, value in environment().items() if name != "OPENAI_API_KEY"}
    again = type_in(folder, *RUN, *quick, "--generations", "2", "--replay", "run.jsonl", environ=environ)
    assert again.returncode == 0, again.stderr
    assert "large (2), small (1)" in again.stdout
    with Archive(folder / "kbevolve.db", create=False) as archive:
        after, before = (
            [replace(birth, run="", seconds=0.0) for birth in archive.runs.births(run.run.id)]
            for run in archive.runs.summaries()
        )
    assert before == after
    assert {birth.model for birth in before if birth.generation} == {"loopback-1"}


@pytest.mark.slow
def test_a_replay_that_differs_says_so_and_keeps_the_run(folder: Path) -> None:
    (folder / "run.jsonl").write_text('{"recording": 1, "llm": {"model": "m"}}\n')
    done = type_in(folder, *RUN, "--set", "search.tune_share=0", "--replay", "run.jsonl")
    assert done.returncode == 1
    assert "run.jsonl has no answer to this request for a child (" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    with Archive(folder / "kbevolve.db", create=False) as archive:
        assert archive.runs.summary(archive.runs.get()).stopped is StopReason.PROPOSER

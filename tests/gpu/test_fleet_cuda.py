"""Two GPUs of one machine: the same verdicts as one gives, in about half the time, each kernel on one device."""

import json
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch

from kbevolve.archive.records import Evaluation, Kernel, Verdict
from kbevolve.archive.store import Archive
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import EvaluationSettings, WorkSettings
from kbevolve.evaluators.device.devices import find_device, find_devices
from kbevolve.evaluators.fleet.fleet import Fleet, local_fleet
from kbevolve.evaluators.judging.judge import Judge
from tests.gpu.test_judge_cuda import PROBLEM

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.slow,
    pytest.mark.skipif(torch.cuda.device_count() < 2, reason="fewer than two CUDA devices"),
]

SETTINGS = EvaluationSettings(profile=False, baselines=False)
#: Kernels of each kind; enough that the start of a judge's first kernel does not count.
COUNT = 12

SOURCE = """
import torch
from torch import nn

NUMBER = {number}


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.bias = nn.Parameter(torch.randn(columns))

    def forward(self, x):
        return {answer}
"""

#: What a kernel answers, and what the judge must find.
ANSWERS = {
    "torch.clamp(x + self.bias, min=0)": Verdict.CORRECT,
    "torch.relu(x)": Verdict.WRONG,
    "torch.relu(x + self.absent)": Verdict.CRASHED,
}


def kernels() -> dict[str, tuple[Kernel, Verdict]]:
    made = [
        (Kernel.from_source(SOURCE.format(number=number, answer=answer)), verdict)
        for number in range(COUNT)
        for answer, verdict in ANSWERS.items()
    ]
    return {kernel.id: (kernel, verdict) for kernel, verdict in made}


PROBLEM_HERE = parse_problem(PROBLEM, name="bias_relu.py", path=Path("bias_relu.py"))


def judged(fleet: Fleet) -> tuple[dict[str, Evaluation], float]:
    """What a fleet finds about all kernels, and the seconds that it took, setting the problem up left out."""
    asked = [kernel for kernel, _ in kernels().values()]
    with ThreadPoolExecutor(fleet.width) as threads:
        list(threads.map(lambda _: fleet.card(PROBLEM_HERE), range(4 * fleet.width)))
        started = time.perf_counter()
        found = list(threads.map(lambda kernel: fleet.evaluate(PROBLEM_HERE, kernel), asked))
        return {one.kernel: one for one in found}, time.perf_counter() - started


@pytest.fixture(scope="module")
def alone() -> Iterator[Fleet]:
    # A fleet of one, so that both are measured through the same processes and with equal shares of the cores.
    with local_fleet(find_devices(["cuda:0"]), SETTINGS, WorkSettings(width=2)) as made:
        yield made


@pytest.fixture(scope="module")
def pair() -> Iterator[Fleet]:
    with local_fleet(find_devices(["cuda:0", "cuda:1"]), SETTINGS, WorkSettings(width=2)) as made:
        yield made


def test_two_devices_find_what_one_finds_in_about_half_the_time(alone: Fleet, pair: Fleet) -> None:
    expected = {name: verdict for name, (_, verdict) in kernels().items()}
    one, one_seconds = judged(alone)
    two, two_seconds = judged(pair)
    assert {name: found.verdict for name, found in one.items()} == expected
    assert {name: found.verdict for name, found in two.items()} == expected
    assert {found.device for found in [*one.values(), *two.values()]} == {alone.device.fingerprint}
    assert one_seconds / two_seconds >= 1.6, f"{one_seconds:.1f} s on one, {two_seconds:.1f} s on two"


def test_each_judge_sees_its_own_gpu(pair: Fleet) -> None:
    for judge in pair._slots.judges:
        environment = Path(f"/proc/{judge.info.pid}/environ").read_bytes().split(b"\0")
        (visible,) = (entry for entry in environment if entry.startswith(b"CUDA_VISIBLE_DEVICES="))
        assert b"," not in visible
        assert judge.info.device.index == 0
    assert len({judge.info.pid for judge in pair._slots.judges}) == 2


def test_a_contest_is_held_on_one_device(pair: Fleet) -> None:
    fast = [kernel for kernel, verdict in kernels().values() if verdict is Verdict.CORRECT][:3]
    contest = pair.compete(PROBLEM_HERE, fast, rounds=5)
    assert contest.times.keys() == {kernel.id for kernel in fast}
    assert all(0.8 < speedup.estimate < 2.5 for speedup in contest.speedups().values())


def test_a_judge_without_a_process_of_its_own_takes_the_second_device() -> None:
    """It sees both devices, and torch launches on the first one unless another is current."""
    asked = list(kernels().values())[::COUNT]
    with Judge(find_device("cuda:1"), SETTINGS) as judge:
        assert {kernel.id: judge.evaluate(PROBLEM_HERE, kernel).verdict for kernel, _ in asked} == {
            kernel.id: verdict for kernel, verdict in asked
        }
        assert judge.baselines(PROBLEM_HERE)


def test_a_benchmark_works_on_a_problem_with_each_gpu(
    kbevolve: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite").mkdir()
    for number in range(1, 5):
        (tmp_path / "suite" / f"{number}_p.py").write_text(f"{PROBLEM}\n# problem {number}\n")
    words = ("--devices", "cuda:0,cuda:1", "--preset", "smoke", "--max-evaluations", 2, "--json")
    outcome = kbevolve("bench", "--suite", "suite", *words)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)["problems"]
    assert all(one["run"] for one in found)
    with Archive(tmp_path / "kbevolve.db") as archive:
        runs = archive.runs.summaries()
        used = {
            evaluation.execution.device_instance
            for kernel in {kernel for run in runs for kernel in archive.runs.kernels(run.run.id)}
            for evaluation in archive.kernels.evaluations(kernel)
        }
    assert len(runs) == 4
    assert {name.rpartition("/")[2] for name in used} == {"cuda:0", "cuda:1"}

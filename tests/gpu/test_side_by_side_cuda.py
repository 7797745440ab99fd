"""Forked workers have a working GPU; kernels judged side by side get the same results as alone."""

import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
import torch

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.reference import as_model_new
from kbevolve.configs.seeds import seed_files
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.device.gate import DeviceGate
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge
from kbevolve.evaluators.sandbox.worker_pool import WorkerPool

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]

SETTINGS = EvaluationSettings(profile=False, baselines=False)


@pytest.fixture(scope="module")
def pool() -> Iterator[WorkerPool]:
    device = find_device("cuda")
    with closing(WorkerPool(device, DeviceGate(device))) as found:
        yield found


def test_a_forked_worker_has_a_gpu(pool: WorkerPool) -> None:
    starts = []
    for _ in range(4):
        for spare in list(pool._spares[0]):
            spare.result()
        started = time.perf_counter()
        worker = pool._start(0)
        starts.append(time.perf_counter() - started)
        try:
            assert pool._fork_servers._can_fork, "forking failed: see what the worker printed"
            source = "import torch\nprint(float(torch.ones(4, device='cuda').sum()))\nclass ModelNew:\n    pass\n"
            assert worker.ask({"request": "import", "source": source}, seconds=30)["ok"] is True
            worker.ask({"request": "nothing"}, seconds=30)
            assert worker.printed.strip() == "4.0"
        finally:
            worker.kill()
    print("seconds a start:", [round(seconds, 2) for seconds in starts])
    assert pool._fork_servers._can_fork


@pytest.mark.alone  # its kernels need most of the device's memory
@pytest.mark.slow
def test_side_by_side_is_as_alone(tmp_path: Path) -> None:
    problem = find_problem("L1/softmax")
    sources = [as_model_new(problem.source_for("cuda"))]
    sources += [file.read_text() for file in seed_files("L1/softmax", "cuda")]
    wrong = sources[0].replace("softmax", "log_softmax")
    kernels = [Kernel.from_source(f"{source}\n# {copy}\n") for copy in range(2) for source in (*sources, wrong)]
    with Judge(find_device("cuda"), SETTINGS, disk_cache=DiskCache(tmp_path), width=1) as judge:
        alone = {one.id: judge.evaluate(problem, one) for one in kernels[: len(kernels) // 2]}
    with (
        Judge(find_device("cuda"), SETTINGS, disk_cache=DiskCache(tmp_path), width=6) as judge,
        ThreadPoolExecutor(6) as threads,
    ):
        judge.card(problem)
        started = time.perf_counter()
        beside = list(threads.map(lambda one: judge.evaluate(problem, one), kernels))
        seconds = time.perf_counter() - started
    print(f"{len(kernels)} kernels in {seconds:.1f} s")
    for kernel, copy in zip(kernels[: len(alone)], kernels[len(alone) :], strict=True):
        for found in (one for one in beside if one.kernel in (kernel.id, copy.id)):
            before = alone[kernel.id]
            print(
                found.verdict.name,
                found.timing.speedup,
                before.timing.speedup,
                {k: round(v, 2) for k, v in found.execution.phases.items()},
            )
            assert found.verdict is before.verdict, found.message
            if found.verdict is Verdict.CORRECT and "clearly-slow" not in found.tags:
                assert found.timing.speedup == pytest.approx(before.timing.speedup, rel=0.02)


@pytest.mark.slow
@pytest.mark.alone  # the quick kernel must be judged within the eight seconds of the slow one's import
def test_no_kernel_waits_while_another_is_imported(tmp_path: Path) -> None:
    problem = find_problem("L1/matmul")
    quick = as_model_new(problem.source_for("cuda"))
    slow = f"{quick}\nimport time\ntime.sleep(8)\n"
    with (
        Judge(find_device("cuda"), SETTINGS, disk_cache=DiskCache(tmp_path), width=2) as judge,
        ThreadPoolExecutor(1) as threads,
    ):
        judge.card(problem)
        imported = threads.submit(judge.evaluate, problem, Kernel.from_source(slow))
        time.sleep(1)
        found = judge.evaluate(problem, Kernel.from_source(quick))
        assert not imported.done()
        last = imported.result()
    print(found.execution.phases, last.execution.phases)
    assert found.verdict is last.verdict is Verdict.CORRECT
    assert found.execution.phases["device wait"] < 2
    assert last.execution.phases["build"] > 8
    assert found.timing.speedup == pytest.approx(1, rel=0.02)


@pytest.mark.slow
@pytest.mark.alone  # the largest of these problems takes 40 GB
@pytest.mark.parametrize("name", ["L1/matmul", "L1/softmax", "L2/attention_scores", "L3/transformer_block"])
def test_a_context_for_one_stream_is_as_fast_as_any(tmp_path: Path, name: str) -> None:
    """The reference against itself: as a kernel it has one connection to the device, as the reference all of them."""
    problem = find_problem(name)
    kernel = Kernel.from_source(as_model_new(problem.source_for("cuda")))
    settings = SETTINGS.model_copy(update={"connections": 1})
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(tmp_path)) as judge:
        found = judge.evaluate(problem, kernel)
    print(name, found.timing.speedup, found.timing.speedup_low, found.timing.speedup_high, found.tags)
    assert found.verdict is Verdict.CORRECT, found.message
    assert found.timing.speedup == pytest.approx(1.0, rel=0.01)

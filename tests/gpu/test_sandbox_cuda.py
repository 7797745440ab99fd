"""A confined worker on a GPU: CUDA, Triton and nvcc work in it, and it reaches nothing around it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.rejection import Rejection
from kbevolve.evaluators.sandbox import process_table
from kbevolve.evaluators.sandbox.gpu import find_gpu
from kbevolve.evaluators.sandbox.shared_memory import SharedMemory
from kbevolve.evaluators.sandbox.worker import Worker
from kbevolve.evaluators.worker.channel import Message
from tests.evaluators.hostile import MEMORY_BOMB, SNOOPING, SPINNER, SURVIVOR
from tests.evaluators.sandbox.test_supervisor import judge, killed

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

ROOT = Path(__file__).parents[2]
KERNEL = "\nclass ModelNew:\n    pass\n"
#: Attacks that need no preparation.
CLOSED = (
    "reads-a-file",
    "reads-the-checkout",
    "lists-the-home",
    "writes-a-file",
    "deletes-a-file",
    "leaves-a-note",
    "reads-passwords",
    "reads-a-command-line",
    "reads-a-state",
    "slows-its-group",
    "sends-to-a-service",
    "sends-by-one-of-a-pair",
    "sends-a-message",
    "sends-a-descriptor",
    "reads-its-environment",
    "reads-its-memory",
    "reads-its-descriptors",
    "signals-the-judge",
    "slows-the-judge",
    "connects-by-tcp",
    "sends-by-udp",
)

MATMUL = """
import torch
a = torch.randn(512, 512, device="cuda")
assert torch.allclose((a @ a).double(), a.double() @ a.double(), atol=1e-2)
torch.empty(1 << 20, pin_memory=True).cuda(non_blocking=True)
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    b = a * 2
graph.replay()
torch.cuda.synchronize()
"""

TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def double(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + places, 2 * tl.load(source + places, mask=places < count), mask=places < count)


x = torch.randn(1000, device="cuda")
y = torch.empty_like(x)
double[(8,)](x, y, 1000, BLOCK=128)
assert torch.equal(y, 2 * x)
"""

CUDA = '''
import ctypes
import torch
from torch.utils.cpp_extension import load
open("double.cu", "w").write("""
__global__ void kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
extern "C" void twice(const float* x, float* y, int n) { kernel<<<(n + 127) / 128, 128>>>(x, y, n); }
""")
x = torch.randn(1000, device="cuda")
y = torch.empty_like(x)
library = ctypes.CDLL(load("double", ["double.cu"], is_python_module=False))
library.twice(ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()), 1000)
assert torch.equal(y, 2 * x)
'''

INLINE = '''
import torch
from torch.utils.cpp_extension import load_inline
SOURCE = """
#include <torch/extension.h>
__global__ void kernel(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
torch::Tensor twice(torch::Tensor x) {
  auto y = torch::empty_like(x);
  kernel<<<(x.numel() + 127) / 128, 128>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
HEADER = "torch::Tensor twice(torch::Tensor x);"
built = load_inline("inline", cpp_sources=HEADER, cuda_sources=SOURCE, functions=["twice"])
x = torch.randn(1000, device="cuda")
assert torch.equal(built.twice(x), 2 * x)
'''

OPENS = """
import contextlib
import os
import torch
opened = []
for number in range(16):
    path = f"/dev/nvidia{number}"
    with contextlib.suppress(PermissionError, FileNotFoundError):
        os.close(os.open(path, os.O_RDWR))
        opened.append(path)
print("opened", *opened)
print("works on", torch.cuda.get_device_properties(0).uuid)
"""

COMPILED = """
import torch
x = torch.randn(256, 256, device="cuda")
f = torch.compile(lambda x: torch.nn.functional.gelu(x @ x) + x.sum(0), mode={mode!r})
for _ in range(3):
    y = f(x)
assert torch.allclose(y, torch.nn.functional.gelu(x @ x) + x.sum(0), atol=1e-2)
"""


@pytest.fixture(scope="module")
def worker() -> Iterator[Worker]:
    worker = Worker(find_device("cuda"))
    worker.wait_ready()
    yield worker
    worker.kill()


def load(worker: Worker, source: str, seconds: float = 60) -> Message:
    return worker.ask({"request": "import", "source": source + KERNEL}, seconds=seconds, build_seconds=300)


def test_the_level_is_reported(worker: Worker) -> None:
    assert "seccomp" in worker.sandbox


def test_cuda_works_in_a_confined_worker(worker: Worker) -> None:
    reply = load(worker, MATMUL)
    assert reply["ok"], reply


def test_triton_compiles_in_a_confined_worker(worker: Worker) -> None:
    pytest.importorskip("triton")
    reply = load(worker, TRITON)
    assert reply["ok"], reply


def test_nvcc_compiles_in_a_confined_worker(worker: Worker) -> None:
    reply = load(worker, CUDA)
    assert reply["ok"], reply


@pytest.mark.slow
def test_torchs_headers_compile_in_a_confined_worker(worker: Worker) -> None:
    reply = load(worker, INLINE)
    assert reply["ok"], reply


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["default", "max-autotune"])
def test_torch_compile_works_in_a_confined_worker(worker: Worker, mode: str) -> None:
    reply = load(worker, COMPILED.format(mode=mode), seconds=300)
    assert reply["ok"], reply
    assert worker.processes == 1


@pytest.mark.parametrize("attack", CLOSED)
def test_a_worker_reaches_nothing_around_it(worker: Worker, tmp_path: Path, attack: str) -> None:
    if "landlock" not in worker.sandbox:
        pytest.skip("no Landlock here")
    secret = tmp_path / "archive.db"
    secret.write_text("the truth")
    names = {"secret": str(secret), "folder": str(tmp_path), "checkout": str(ROOT), "parent": os.getpid(), "port": 1}
    names |= {"private": "/etc/shadow", "datagrams": str(tmp_path / "d")}
    reply = load(worker, SNOOPING[attack].format(**names))
    assert not reply["ok"]
    assert reply["type"] in {"PermissionError", "OSError"}, reply
    assert secret.read_text() == "the truth"


@pytest.mark.parametrize("index", range(min(2, torch.cuda.device_count())))
def test_a_worker_can_open_only_its_own_gpu(index: int) -> None:
    worker = Worker(find_device(f"cuda:{index}"))
    try:
        worker.wait_ready()
        if "landlock" not in worker.sandbox and "bubblewrap" not in worker.sandbox:
            pytest.skip("no guard of files here")
        reply = load(worker, OPENS)
        assert reply["ok"], reply
        worker.ask({"request": "nothing"}, seconds=30)  # by its reply the output has been read
        opened, works_on = worker.printed.strip().splitlines()[-2:]
    finally:
        worker.kill()
    gpu = find_gpu(find_device(f"cuda:{index}"))
    assert works_on == f"works on {torch.cuda.get_device_properties(index).uuid}"
    assert gpu is not None
    assert opened.split() == ["opened", str(gpu.node)]


def test_host_memory_has_a_limit(worker: Worker) -> None:
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    reply = load(worker, MEMORY_BOMB.format(gigabytes=(memory >> 30) + 1))
    assert not reply["ok"]
    assert "memory" in str(reply["text"])


def test_pinned_memory_is_no_file() -> None:
    """A kernel may pin its problem's memory. CUDA's driver may take it from shared memory."""
    worker = Worker(find_device("cuda"))
    try:
        worker.wait_ready()
        source = "import torch\nkept = torch.ones(2 << 30, dtype=torch.uint8, pin_memory=True)\nkept.cuda()\n"
        reply = load(worker, source)
        assert reply["ok"], reply
        worker._checked -= 1
        worker.pause()
        worker.resume()
        assert load(worker, "x = 1")["ok"]
    finally:
        worker.kill()


@pytest.mark.parametrize("held", ["named", "memory"])
def test_files_have_a_limit_as_a_whole(held: str) -> None:
    opened = {"named": "os.open(str(i), os.O_CREAT | os.O_RDWR)", "memory": "os.memfd_create('x')"}[held]
    source = f"import os\nfor i in range(6):\n    os.posix_fallocate({opened}, 0, 300 << 20)\n"
    worker = Worker(find_device("cuda"))
    try:
        worker.wait_ready()
        with pytest.raises(Rejection, match="MB in files"):
            load(worker, source)
    finally:
        worker.kill()


@pytest.mark.slow
@pytest.mark.parametrize("forked", [True, False])
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGBUS])
def test_a_killed_judge_leaves_no_process_on_the_gpu(forked: bool, number: signal.Signals, tmp_path: Path) -> None:
    killed(judge(wrapped=True, forked=forked, paused=False, device="cuda"), number, 0, tmp_path)


def test_a_worker_opens_the_judges_memory() -> None:
    device = find_device("cuda")
    shared = SharedMemory(device, 1 << 20)
    worker = Worker(device)
    try:
        worker.wait_ready()
        ticket, descriptors = shared.ticket()
        reply = worker.ask({"request": "open", "ticket": ticket}, seconds=20, descriptors=descriptors)
        assert reply["ok"], reply
        reply = load(worker, MATMUL)
        assert reply["ok"], reply
    finally:
        worker.kill()
        shared.close()


def test_helpers_die_with_a_paused_worker() -> None:
    worker = Worker(find_device("cuda"))
    try:
        worker.wait_ready()
        assert load(worker, SURVIVOR)["ok"]
        assert load(worker, SPINNER)["ok"]
        assert worker.processes == 3
        began = time.perf_counter()
        worker.pause()
        worker.resume()
        assert time.perf_counter() - began < 0.1
        assert load(worker, MATMUL)["ok"]
        worker.pause()
    finally:
        worker.kill()
    assert not process_table.members(worker.pid)

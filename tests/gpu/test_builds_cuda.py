"""Builds for a real GPU: the pool builds, the worker loads; Triton leaves the device while it compiles."""

from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest
import torch

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from tests.evaluators.builds.pooled import WorkerWithPool

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")]

CUDA_SOURCE = r"""
#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

template <typename scalar_t>
__global__ void twice(const scalar_t* from, scalar_t* to, int64_t count) {
  const int64_t i = blockIdx.x * static_cast<int64_t>(blockDim.x) + threadIdx.x;
  if (i < count) to[i] = from[i] + from[i];
}

torch::Tensor twice_cuda(torch::Tensor x) {
  TORCH_CHECK(x.is_cuda() && x.is_contiguous(), "a contiguous CUDA tensor, please");
  const c10::cuda::CUDAGuard guard(x.device());
  auto y = torch::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, x.scalar_type(), "twice", [&] {
    twice<scalar_t><<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), x.numel());
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return y;
}
"""
#: torch's own standard: another one would fail in its headers.
CPP = "-std=c++20" if torch.__version__ >= "2.12" else "-std=c++17"
DECLARED = "torch::Tensor twice_cuda(torch::Tensor x);"

INLINE = f"""
import torch
from torch.utils.cpp_extension import load_inline
built = load_inline("twice", "{DECLARED}", r'''{CUDA_SOURCE}''', functions=["twice_cuda"], extra_cuda_cflags=["-O3"])
for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
    x = torch.randn(1000, device="cuda").to(dtype)
    assert torch.equal(built.twice_cuda(x), x + x)
try:
    built.twice_cuda(x.cpu())
    raise AssertionError("taken")
except RuntimeError as error:
    assert "a contiguous CUDA tensor, please" in str(error), error
"""

TRITON = """
import torch
import triton
import triton.language as tl


@triton.autotune([triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256})], key=[])
@triton.jit
def double(source, target, count, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(target + places, 2 * tl.load(source + places, mask=places < count), mask=places < count)


x = torch.randn(1000, device="cuda")
y = torch.empty_like(x)
for _ in range(2):
    double[lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)](x, y, 1000)
assert torch.equal(y, 2 * x)
"""

WRONG_TRITON = TRITON.replace("tl.load(source", "tl.no_such_thing(source")


def worker_on_gpu(pool: BuildPool) -> WorkerWithPool:
    return WorkerWithPool(pool, device=find_device("cuda"))


@pytest.fixture(scope="module")
def pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BuildPool]:
    with closing(
        BuildPool(find_device("cuda"), EvaluationSettings(), DiskCache(tmp_path_factory.mktemp("disk_cache")))
    ) as pool:
        yield pool


@pytest.fixture
def place(pool: BuildPool) -> Iterator[WorkerWithPool]:
    place = worker_on_gpu(pool)
    yield place
    place.worker.kill()


def test_the_pool_builds_a_correct_inline_extension(place: WorkerWithPool, pool: BuildPool) -> None:
    assert place.load(INLINE) == {"ok": True}, place.worker.printed
    assert [request["with_cuda"] for request in place.requests] == [True]
    assert place.away == ["left", "back"]
    (build,) = place.worker.built
    assert build.seconds > 0
    assert len(build.resources) == 4
    assert all(kernel.registers > 0 for kernel in build.resources)


def test_it_is_built_with_light_headers_for_this_gpu_only(pool: BuildPool, tmp_path: Path) -> None:
    """The light headers suffice for what a usual file includes."""
    main = f"#include <torch/extension.h>\n{DECLARED}\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{\n"
    main += 'm.def("twice_cuda", torch::wrap_pybind_function(twice_cuda), "twice_cuda");\n}'
    request = BuildRequest(
        name="light",
        sources=(("main.cpp", main), ("cuda.cu", CUDA_SOURCE)),
        with_cuda=True,
        architecture=pool.architecture,
    )
    built = pool.submit(request).result()
    assert built.product is not None, built
    assert built.light == ("main.cpp", "cuda.cu")
    major, minor = torch.cuda.get_device_capability()
    assert pool.architecture.removesuffix("a") == f"{major}.{minor}"


def test_the_next_worker_loads_it_without_a_build(place: WorkerWithPool, pool: BuildPool) -> None:
    assert place.load(INLINE) == {"ok": True}, place.worker.printed
    following = worker_on_gpu(pool)
    try:
        assert following.load(INLINE) == {"ok": True}, following.worker.printed
        assert following.worker.built[0].seconds == 0
    finally:
        following.worker.kill()


#: A kernel whose header lies beside it; FACTOR and HOW are filled in by the tests.
WITH_HEADER = r"""
import torch
from pathlib import Path
from torch.utils.cpp_extension import load
here = Path("HOW_FACTOR").absolute()
here.mkdir()
(here / "factor.cuh").write_text("#define GIVEN FACTOR")
(here / "scale.cu").write_text(r'''INCLUDE
#include <torch/extension.h>
__global__ void scale(const float* from, float* to, int count) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = GIVEN * from[i];
}
torch::Tensor scaled(torch::Tensor x) {
  auto y = torch::empty_like(x);
  scale<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("scaled", &scaled); }
''')
built = load("HOW", [str(here / "scale.cu")], extra_cuda_cflags=[f"-I{here}", *FLAGS], extra_ldflags=LINKED)
x = torch.randn(1000, device="cuda")
assert torch.equal(built.scaled(x), FACTOR * x)
"""
INCLUDES = {
    "tight": '#include"factor.cuh"',
    "macro": "#define NAME <factor.cuh>\n#include NAME",
    "device": '#ifdef __CUDA_ARCH__\n#include "factor.cuh"\n#else\n#define GIVEN 0\n#endif',
}


def with_header(how: str, factor: int, flags: Sequence[str] = (), linked: Sequence[str] = ()) -> str:
    filled = {"INCLUDE": INCLUDES[how], "HOW": how, "FACTOR": factor, "FLAGS": list(flags), "LINKED": list(linked)}
    source = WITH_HEADER
    for name, value in filled.items():
        source = source.replace(name, str(value))
    return source


@pytest.mark.parametrize("how", INCLUDES)
def test_a_child_with_another_header_does_not_get_its_parents_object(pool: BuildPool, how: str) -> None:
    for factor, compiled in ((2, True), (3, True), (2, False)):
        place = worker_on_gpu(pool)
        try:
            assert place.load(with_header(how, factor)) == {"ok": True}, place.worker.printed
            (build,) = place.worker.built
            assert (build.seconds > 0) is compiled
        finally:
            place.worker.kill()


def test_flags_of_honest_kernels_build(place: WorkerWithPool) -> None:
    flags = [
        *("-O3", "--use_fast_math", "-lineinfo", "-Xptxas", "-v,-O3", "-Xcompiler", "-O3,-fPIC", "-std=c++17"),
        *("--expt-relaxed-constexpr", "--expt-extended-lambda", "-maxrregcount=64", "--threads", "2", "-DNDEBUG"),
        *("-U__CUDA_NO_HALF_OPERATORS__", "-Xcudafe", "--diag_suppress=177", "--ptxas-options=--warn-on-spills"),
    ]
    source = with_header("tight", 5, flags, ["-lcublas", "-Wl,--no-as-needed"]).replace("-std=c++17", CPP)
    assert place.load(source) == {"ok": True}, place.worker.printed
    assert [build.seconds > 0 for build in place.worker.built] == [True]


@pytest.mark.parametrize(
    "flags",
    [
        *(["-ccbin", "own"], ["--compiler-bindir=own"], ["--options-file", "own"], ["-Xcompiler", "-wrapper,own"]),
        *(["-Xcompiler", "-B."], ["-Xptxas", "-o,own"], ["-Xlinker", "-T"], ["-run"], ["-include", "own"], ["-x", "c"]),
    ],
)
def test_other_flags_are_a_failed_build(place: WorkerWithPool, flags: list[str]) -> None:
    reply = place.load(with_header("tight", 7, flags))
    assert (reply["ok"], reply["stage"]) == (False, "build")
    assert "is not allowed for nvcc" in reply["text"]


def test_no_worker_reads_what_another_compiled_for_triton(place: WorkerWithPool, pool: BuildPool) -> None:
    pytest.importorskip("triton")
    poison = """
import os
from pathlib import Path
for file in Path(os.environ["TRITON_CACHE_DIR"]).rglob("*"):
    if file.is_file():
        file.write_bytes(b"poison")
"""
    assert place.load(TRITON + poison) == {"ok": True}, place.worker.printed
    following = worker_on_gpu(pool)
    try:
        assert following.load(TRITON) == {"ok": True}, following.worker.printed
    finally:
        following.worker.kill()


def test_triton_leaves_the_device_for_each_compile(place: WorkerWithPool) -> None:
    pytest.importorskip("triton")
    assert place.load(TRITON) == {"ok": True}, place.worker.printed
    assert place.away == ["left", "back"] * 2  # two configurations; the third and the second call compile nothing
    assert not place.requests


def test_a_triton_error_is_a_build_failure_and_returns_to_the_device(place: WorkerWithPool) -> None:
    pytest.importorskip("triton")
    reply = place.load(WRONG_TRITON)
    assert (reply["ok"], reply["stage"]) == (False, "build")
    assert place.away[-1] == "back"
    assert len(place.away) % 2 == 0

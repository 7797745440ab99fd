"""What building an extension costs, by way: torch's own builder, the pool with torch's headers, with lighter ones, …

    python benchmarks/builds.py

Prints one row a way for a C++ and a CUDA extension, as models write them (`load_inline` with `functions`), then one
JSON object. Seconds are of the wall clock and of processors (user and system, all compilers together): the latter mean
something on a busy machine too. CUDA is compiled wherever nvcc is installed; where torch has no CUDA, empty libraries
replace those of torch that it is linked with, and headers that torch lacks then are not used.
"""

import argparse
import contextlib
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import torch
from torch.utils import cpp_extension

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.compiler import commands
from kbevolve.evaluators.builds.headers import precompiled_name
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox import bubblewrap
from kbevolve.evaluators.sandbox.build_protocol import BuildResult

DECLARED = "torch::Tensor relu(torch::Tensor x);"
CPP = """
torch::Tensor relu(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "contiguous, please");
  auto y = torch::empty_like(x);
  const float* from = x.data_ptr<float>();
  float* to = y.data_ptr<float>();
  for (int64_t i = 0; i < x.numel(); ++i) to[i] = from[i] > 0 ? from[i] : 0;
  return y;
}
"""
CUDA = """
__global__ void relu_kernel(const float* from, float* to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = fmaxf(from[i], 0.f);
}
torch::Tensor relu(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "contiguous, please");
  auto y = torch::empty_like(x);
  relu_kernel<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
BINDING = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {\nm.def("relu", torch::wrap_pybind_function(relu), "relu");\n}'
IMPLICIT = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"
WHOLE = "#include <torch/extension.h>\n"


class Clock:
    """Wall and processor seconds of what was done in it."""

    def __init__(self) -> None:
        self.rows: dict[str, dict[str, float]] = {}

    @contextlib.contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        wall, spent = time.perf_counter(), _processor_seconds()
        yield
        row = {"wall_s": time.perf_counter() - wall, "processor_s": _processor_seconds() - spent}
        self.rows[name] = {key: round(value, 2) for key, value in row.items()}
        print(f"{name:58} {row['wall_s']:7.2f} s wall {row['processor_s']:7.2f} s of processors", flush=True)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def order(name: str, *, cuda: str | None, architecture: str, head: str = IMPLICIT) -> BuildRequest:
    sources = [("main.cpp", f"{WHOLE}{DECLARED if cuda else CPP}\n{BINDING}")]
    sources += [("cuda.cu", head + cuda)] if cuda else []
    return BuildRequest(name=name, sources=tuple(sources), with_cuda=cuda is not None, architecture=architecture)


def built(pool: BuildPool, wanted: BuildRequest) -> BuildResult:
    outcome = pool.submit(wanted).result()
    assert outcome.product is not None, outcome.log
    return outcome


def by_torch(clock: Clock, name: str, *, cuda: str | None, folder: Path, head: str = "") -> None:
    """`load_inline` itself; only its compiling step is timed, without the look at versions before it."""
    step: Callable[..., None] = cpp_extension._write_ninja_file_and_build_library

    def timed(*arguments: object, **keywords: object) -> None:
        with clock(name):
            step(*arguments, **keywords)

    cpp_extension._write_ninja_file_and_build_library = timed
    try:
        with contextlib.suppress(ImportError):  # linked with empty libraries it cannot be loaded
            cpp_extension.load_inline(
                "by_torch",
                DECLARED if cuda else CPP,
                cuda_sources=[head + cuda] if cuda else None,
                functions=["relu"],
                build_directory=str(folder),
            )
    finally:
        cpp_extension._write_ninja_file_and_build_library = step


def measure(clock: Clock, pool: BuildPool, kind: str, *, cuda: str | None, architecture: str) -> None:
    def wanted(name: str, head: str = IMPLICIT) -> BuildRequest:
        return order(name, cuda=cuda, architecture=architecture, head=head)

    with tempfile.TemporaryDirectory() as folder:
        by_torch(clock, f"{kind}: torch's own load_inline", cuda=cuda, folder=Path(folder))
    if cuda:
        with tempfile.TemporaryDirectory() as folder:
            name = f"{kind}: torch's own, torch/extension.h included in it"
            by_torch(clock, name, cuda=cuda, folder=Path(folder), head=WHOLE)
    with clock(f"{kind}: pool, torch's own headers"):
        built(pool, replace(wanted("plain"), plain=True))
    with clock(f"{kind}: pool, lighter headers"):
        light = built(pool, wanted("light"))
    assert len(light.light) == (2 if cuda else 1), light.light
    with clock(f"{kind}: (making the precompiled header, once)"):
        command = commands(wanted("header")).cxx
        assert pool.headers.precompile(precompiled_name(command), command, seconds=300, nice=0, stop=threading.Event())
    with clock(f"{kind}: pool, lighter and precompiled headers"):
        built(pool, wanted("precompiled"))
    if cuda:
        with clock(f"{kind}: the same, torch/extension.h included in it"):
            built(pool, wanted("precompiled", IMPLICIT + WHOLE))
        with clock(f"{kind}: the same, only the kernel's file changed"):
            built(pool, order("precompiled", cuda=cuda + "\n// new\n", architecture=architecture))
    with clock(f"{kind}: the same order again"):
        built(pool, wanted("precompiled"))


def device_code(library: bytes, folder: Path) -> str:
    """The kernel's instructions in a library that nvcc built with `--no-compress`."""
    (folder / "library").write_bytes(library)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".nv_fatbin", "library", "fat"], cwd=folder, check=True)
    fat = (folder / "fat").read_bytes()
    (folder / "cubin").write_bytes(fat[fat.index(b"\x7fELF") :])
    words = ["readelf", "-x", ".text._Z11relu_kernelPKfPfi", "cubin"]
    said = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True).stdout
    assert said.count("\n") > 10, said
    return said


def find_cuda(folder: Path) -> str:
    """The architecture to compile for, "" without nvcc; torch without CUDA gets the path of the toolkit."""
    nvcc = shutil.which("nvcc")
    if nvcc is None:
        return ""
    if torch.cuda.is_available():
        major, minor = torch.cuda.get_device_capability()
        return f"{major}.{minor}a" if major >= 9 and minor == 0 else f"{major}.{minor}"
    said = subprocess.run([nvcc, "--dryrun", "-x", "cu", "/dev/null"], capture_output=True, text=True, check=False)
    cpp_extension.CUDA_HOME = str(Path(said.stderr.split("TOP=")[1].split()[0]).resolve())
    os.environ |= {"LIBRARY_PATH": str(folder), "TORCH_CUDA_ARCH_LIST": "9.0a"}
    for name in ("c10_cuda", "torch_cuda"):
        empty = ["c++", "-shared", "-x", "c++", "/dev/null", "-o", str(folder / f"lib{name}.so")]
        subprocess.run(empty, check=True)
    return "9.0a"


def main() -> None:
    argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter).parse_args()
    clock = Clock()
    # Nothing hostile is built here, and the processor seconds of a namespace cannot be read from outside.
    bubblewrap.obstacle = lambda device_type: "switched off by a benchmark"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "libraries").mkdir()
        architecture = find_cuda(folder / "libraries")
        cores = len(os.sched_getaffinity(0))
        with closing(
            BuildPool(find_device("cpu"), EvaluationSettings(), DiskCache(folder / "disk_cache"), width=cores)
        ) as pool:
            measure(clock, pool, "C++", cuda=None, architecture="")
            same = None
            if architecture:
                measure(clock, pool, "CUDA", cuda=CUDA, architecture=architecture)
                way = replace(order("same", cuda=CUDA, architecture=architecture), cuda_cflags=("--no-compress",))
                ways = (way, replace(way, plain=True))
                same = len({device_code(built(pool, way).product or b"", folder) for way in ways}) == 1
                print(f"instructions of both ways are {'the same' if same else 'NOT the same'}, byte for byte")
    print(
        json.dumps(
            {"torch": torch.__version__, "python": sys.version.split()[0], **clock.rows, "same_instructions": same}
        )
    )


if __name__ == "__main__":
    main()

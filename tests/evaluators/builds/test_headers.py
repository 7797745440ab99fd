"""Light and precompiled headers give the same results; torch's own headers are used where they fail."""

import hashlib
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.builds import build_job, compiler, headers
from kbevolve.evaluators.builds.build_request import BuildRequest
from kbevolve.evaluators.builds.dependencies import FileDigests
from kbevolve.evaluators.builds.headers import Headers, lighter, precompiled_name
from kbevolve.evaluators.builds.pool import BuildPool
from kbevolve.evaluators.builds.sandboxed_compiler import CompilerRun, build_directory
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.sandbox.build_protocol import BuildResult
from tests.evaluators.builds.sources import LIBRARY, NVCC, TORCH, link_without_cuda

ROOT = Path(__file__).parents[3]

KERNEL = r"""
#include <torch/types.h>
#include <cuda.h>
#include <cuda_runtime.h>
__global__ void relu(const float* from, float* to, int count) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < count) to[i] = fmaxf(from[i], 0.f);
}
torch::Tensor relu_cuda(torch::Tensor x) {
  TORCH_CHECK(x.is_contiguous(), "contiguous, please");
  auto y = torch::empty_like(x);
  relu<<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""


@pytest.fixture
def pool(tmp_path: Path) -> Iterator[BuildPool]:
    with closing(BuildPool(find_device("cpu"), EvaluationSettings(), DiskCache(tmp_path), width=2)) as pool:
        yield pool


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that are run."""
    seen: list[tuple[str, ...]] = []
    run = build_job.run

    def recorded(command: tuple[str, ...], directory: Path, *given: Any, **others: Any) -> CompilerRun:
        seen.append(tuple(command))
        return run(command, directory, *given, **others)

    for module in (build_job, headers):
        monkeypatch.setattr(module, "run", recorded)
    return seen


def request(text: str, *, name: str = "softplus", plain: bool = False) -> BuildRequest:
    return BuildRequest(name=name, sources=(("main.cpp", text),), plain=plain)


def answers(built: BuildResult, name: str, directory: Path) -> dict[str, object]:
    """Values and messages of the extension, in a new process, because a module is loaded once."""
    library = directory / f"{name}.so"
    library.write_bytes(built.product)
    code = (
        "import importlib.util, json, sys, torch\n"
        f"spec = importlib.util.spec_from_file_location({name!r}, {str(library)!r})\n"
        "module = importlib.util.module_from_spec(spec); spec.loader.exec_module(module)\n"
        "x = torch.linspace(-3, 3, 7)\n"
        "try: module.softplus(x[None]); message = ''\n"
        "except RuntimeError as error: message = str(error).splitlines()[0]\n"
        "y = module.softplus(x)\n"
        "print(json.dumps([y.tolist(), str(y.dtype), y.requires_grad, message, module.softplus.__doc__]))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return {"answers": json.loads(done.stdout)}


def test_the_includes_that_a_text_needs() -> None:
    light = lighter(TORCH)
    assert light is not None
    assert light.binds
    for included in ("ATen/ops/zeros.h", "ATen/ops/empty_like.h", "ATen/Dispatch.h"):
        assert f"#include <{included}>" in light.named
    assert "ones" not in light.named
    using = lighter("#include <torch/extension.h>\nusing namespace torch;\nTensor f() { return ones({1}); }")
    assert using is not None
    assert "ATen/ops/ones.h" in using.named
    assert not using.binds


@pytest.mark.parametrize(
    "text",
    [
        LIBRARY,
        TORCH.replace("torch::kFloat32)", "torch::kFloat32).requires_grad(true)"),
        TORCH.replace("torch::empty_like(y)", "torch::tensor({1, 2})"),
        TORCH + "TORCH_LIBRARY(x, m) {}",
        TORCH.replace("<cmath>", "<torch/script.h>"),
        "#if __has_include(<torch/nn.h>)\n#endif\n" + TORCH,
    ],
    ids=["nothing of torch", "gradients", "tensor of numbers", "registration", "scripts", "tests for headers"],
)
def test_texts_that_are_not_tried(text: str) -> None:
    assert lighter(text) is None


def test_what_a_text_includes_counts_as_its_own() -> None:
    plain, whole = "#include <torch/types.h>\n", '#include "own.h"\nPYBIND11_MODULE(x, m) {}'
    light = lighter(plain, [("own.h", whole + "torch::ones({1})")])
    assert light is not None
    assert light.binds
    assert "ATen/ops/ones.h" in light.named
    assert lighter(plain, [("own.h", "auto x = torch::tensor({1, 2});")]) is None
    assert lighter(plain, [("own.h", "#if __has_include(<torch/nn.h>)")]) is None
    assert lighter(plain, [("include/torch/types.h", "")]) is None


@pytest.mark.slow
def test_light_and_precompiled_headers_give_the_same_answers(
    pool: BuildPool, commands: list[tuple[str, ...]], tmp_path: Path
) -> None:
    found = {}
    command = compiler.commands(request(TORCH)).cxx
    assert pool.headers.precompile(precompiled_name(command), command, seconds=300, nice=0, stop=threading.Event())
    for name, plain in (("whole", True), ("light", False)):
        built = pool.submit(request(TORCH, name=name, plain=plain)).result()
        assert built.product is not None, built
        assert built.light == (() if plain else ("main.cpp",))
        found[name] = answers(built, name, tmp_path)
    strip = {name: json.dumps(known).replace(name, "") for name, known in found.items()}
    assert strip["whole"] == strip["light"]
    assert "one dimension, not 2" in strip["light"]
    # g++ marks the precompiled header that it uses with "!".
    *words, _, _, _ = next(command for command in reversed(commands) if "-c" in command)
    with build_directory() as directory:
        (directory / "work" / "main.cpp").write_text(TORCH)
        light, header = lighter(TORCH), pool.headers.precompiled(command)
        assert light is not None
        assert header is not None
        light.write(directory, header)
        shown = subprocess.run(
            [*words[words.index("c++") : words.index("-c")], "-H", "main.cpp"],
            cwd=directory / "work",
            capture_output=True,
            text=True,
            check=False,
        ).stderr
    assert any(line.startswith("! ") and line.endswith(".gch") for line in shown.splitlines()), shown[:2000]


#: The light ATen/Context.h lacks this declaration. The file compiles in a second.
CONTEXT = """
#include <ATen/Context.h>
extern "C" long threads() { return at::globalContext().deterministicAlgorithms(); }
"""


@pytest.mark.slow
def test_a_file_for_which_light_headers_fail_is_built_with_torchs_own(
    pool: BuildPool, commands: list[tuple[str, ...]]
) -> None:
    built = pool.submit(request(CONTEXT)).result()
    assert built.product is not None, built
    assert built.light == ()
    assert len(commands) == 3  # with light headers, again, linked


@pytest.mark.slow
def test_errors_are_reported_with_torchs_own_headers(pool: BuildPool, commands: list[tuple[str, ...]]) -> None:
    failure = pool.submit(request(CONTEXT.replace("deterministicAlgorithms", "determined"))).result()
    assert failure.product is None
    assert "has no member named 'determined'" in failure.log
    assert "globalContext" not in failure.log.split("error:")[0]  # which the light headers lack
    assert len(commands) == 2


@pytest.mark.slow
def test_a_plain_request_tries_no_light_headers(pool: BuildPool, commands: list[tuple[str, ...]]) -> None:
    assert pool.submit(request(CONTEXT, plain=True)).result().product is not None
    assert len(commands) == 2
    assert not any("named" in word for command in commands for word in command)


@pytest.mark.slow
@pytest.mark.skipif(NVCC is None, reason="no nvcc")
def test_nvcc_compiles_for_this_gpu_with_light_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commands: list[tuple[str, ...]]
) -> None:
    """Compiled and linked; running it is a GPU test. If torch has no CUDA, empty libraries replace its own."""
    link_without_cuda(tmp_path, monkeypatch)
    with closing(BuildPool(find_device("cpu"), EvaluationSettings(), DiskCache(tmp_path / "disk_cache"))) as pool:
        wanted = BuildRequest(
            name="relu", sources=(("cuda.cu", KERNEL),), with_cuda=True, architecture="9.0a", cuda_cflags=("-O3",)
        )
        built = pool.submit(wanted).result()
    assert built.product is not None, built
    assert built.light == ("cuda.cu",)
    assert [(kernel.name, kernel.spill_stores) for kernel in built.resources] == [("_Z4reluPKfPfi", 0)]
    assert 4 < built.resources[0].registers < 40
    nvcc = " ".join(commands[0])
    assert nvcc.count("-gencode") == 1
    assert "arch=compute_90a,code=sm_90a" in nvcc
    assert "ptxas info" not in built.log


# ---- what is precompiled --------------------------------------------------------------------------------------------


def ordered(pool: BuildPool, **changes: Any) -> None:
    """Five requests with bindings, more than a header must be worth."""
    for number in range(5):
        pool.submit(replace(request(f"{TORCH}// {number}"), **changes)).result()


@pytest.fixture
def only_headers(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, ...]]:
    """The commands that would precompile; all compilers fail at once."""
    seen: list[tuple[str, ...]] = []

    def failing(command: tuple[str, ...], directory: Path, *_: object, **how: Any) -> CompilerRun:
        if "c++-header" in command:
            seen.append(tuple(command))
        return CompilerRun(code=1, log="error: no", seconds=0.0)

    for module in (build_job, headers):
        monkeypatch.setattr(module, "run", failing)
    return seen


@pytest.mark.parametrize(
    "changes",
    [
        {"cflags": ("-DTORCH_CHECK(...)=",)},
        {"cflags": ("-O3", "-D", "float=double")},
        {"cflags": ("-UNDEBUG",)},
        {"cflags": ("-I.",), "files": (("vector", "#error mine"),)},
        {"include_paths": (".",), "files": (("ATen/core/Tensor.h", "#error mine"),)},
        {"cflags": ("-isystem", "/usr/include")},
        {"cflags": ("-include", "x.h")},
        {"cflags": ("-wrapper", "own")},
    ],
    ids=str,
)
def test_no_header_is_precompiled_with_an_order_of_a_kernel(
    pool: BuildPool, only_headers: list[tuple[str, ...]], changes: dict[str, Any]
) -> None:
    """Not even where the allow-list of flags was passed by."""
    ordered(pool, **changes)
    pool._requests.shutdown()
    assert not only_headers


def test_a_header_is_precompiled_for_flags_of_code_generation(
    pool: BuildPool, only_headers: list[tuple[str, ...]]
) -> None:
    ordered(pool, name="theirs", cflags=("-O3", "-march=native"), ldflags=("-lm",), files=(("own.h", ""),))
    pool._requests.shutdown()
    (command,) = only_headers
    assert {"-O3", "-march=native"} <= set(command)
    assert not any(name in word for word in command for name in ("theirs", "main.cpp", "own.h"))


@pytest.mark.parametrize("damage", ["edited", "cut", "exchanged", "record", "no record", "outdated"])
def test_a_precompiled_header_that_was_changed_is_thrown_away(tmp_path: Path, damage: str) -> None:
    read = tmp_path / "read.h"
    read.write_text("1")
    known = Headers(tmp_path)
    (tmp_path / "headers").mkdir()
    records, paths = DiskCache(tmp_path), []
    for flag, content in (("-O2", b"first"), ("-O3", b"other")):
        name = precompiled_name(("c++", flag))
        paths.append(tmp_path / "headers" / f"{name}.gch")
        paths[-1].write_bytes(content)
        digest = hashlib.sha256(content).hexdigest()
        records.put("precompiled", name, {"digest": digest, "reads": {str(read): FileDigests().of(str(read))}})
    assert known.precompiled(("c++", "-O2")) == paths[0]
    record = records.path("precompiled", paths[0].stem)
    match damage:
        case "edited":
            paths[0].write_bytes(b"First")
        case "cut":
            paths[0].write_bytes(b"fir")
        case "exchanged":
            paths[1].replace(paths[0])
        case "record":
            record.write_bytes(records.path("precompiled", paths[1].stem).read_bytes())
        case "no record":
            record.unlink()
        case "outdated":
            read.write_text("2")
    for again in (known, Headers(tmp_path)):
        assert again.precompiled(("c++", "-O2")) is None
    assert not paths[0].exists()

"""Compiles the templates for sm_90 where there is no GPU, and prints what ptxas says of each kernel.

    pip install --no-deps --target DIR triton==3.6.0
    PYTHONPATH=DIR python -m benchmarks.compiled_templates [--set SPLIT_FP8=1] [--case linear] [--as-the-judge]
    PYTHONPATH=DIR python -m benchmarks.compiled_templates --file KERNEL.py

A row is one launch of one case (those of `benchmarks.templates`): seconds of the compiler, instructions, registers,
bytes that are spilled, bytes of shared memory, the tensor core's instructions, and ptxas's warnings. Nothing runs: this
shows that a change compiles, and what it does to registers; that it is right and fast shows a GPU. With
``--as-the-judge`` each kernel is also compiled from its text, as the judge does (`worker.triton_compiler`), and both
machine codes compared. With ``--file`` a row is a template's kernel in a file of torch.compile's code with templates:
how often it is launched, how many kernels Triton compiles for that, and how long it takes.
"""

import argparse
import json
import os
import re
import subprocess
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import chdir, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import torch
from torch._inductor.async_compile import AsyncCompile

from benchmarks.templates import ATTENTIONS, CONVOLUTIONS, PRODUCTS, SKINNY, SMALL
from kbevolve.configs.syntax import literal
from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evaluators.worker.triton_compiler import compiled, unpacked
from kbevolve.evaluators.worker.triton_stages import replace_stages
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.imported import imported

#: Multiprocessors of an H100 and an H200.
MULTIPROCESSORS = 132
_INSTRUCTION = re.compile(r"wgmma\.mma_async\.sync\.aligned\.(\S+)")
_OF_CODE = re.compile(r"/\*[0-9a-f]{4,}\*/ +[^ ]")
_INPUT = re.compile(r"assert_size_stride\((\w+), (\([^)]*\)), (\([^)]*\))\)")
_TOLD = re.compile(r"(Potential[^\n]*|warning[^\n]*|\d+ bytes spill stores|Used \d+ registers)")


class AbsentDevice:
    """What Triton asks of a driver before it compiles."""

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, _device: int | None = None) -> int:
        return 0

    def get_current_target(self) -> Any:
        from triton.backends.compiler import GPUTarget

        return GPUTarget("cuda", 90, 32)


def compiling(templates: ModuleType, report: Callable[[str, float, Any], None]) -> None:
    """Let launches of the templates be compiled and reported, and not made."""

    def at(launch: Any, _stream: int, *pointers: Any) -> Callable[[], None]:
        started = time.perf_counter()
        numbers, constants = launch.numbers, launch.constants
        kernel = launch.kernel.warmup(*pointers, *numbers, grid=launch.grid, **constants)
        report(launch.kernel.fn.__name__, time.perf_counter() - started, kernel)
        return lambda: None

    templates.PlannedLaunch.at = at  # type: ignore[attr-defined]
    templates.stream_of = lambda _: 0  # type: ignore[attr-defined]
    templates.STAGED = 0  # type: ignore[attr-defined]  # that one is CUDA C++
    torch.cuda.get_device_properties = lambda _: SimpleNamespace(multi_processor_count=MULTIPROCESSORS)


def calls(templates: ModuleType) -> dict[str, Callable[[], object]]:
    """Each case as a call. Its operands are allocated and never read, so that they take no memory."""
    found: dict[str, Callable[[], object]] = {}
    for name, (m, n, k, a_plain, b_plain) in PRODUCTS.items():
        a = torch.empty(m, k) if a_plain else torch.empty(k, m).mT
        b = torch.empty(n, k).mT if b_plain else torch.empty(k, n)
        found[name] = lambda a=a, b=b, m=m, n=n: templates.split_mm(a, b, out=torch.empty(m, n))
        if (skinny := f"{name}, skinny") in SKINNY:
            found[skinny] = lambda a=a, b=b, m=m, n=n: templates.skinny_mm(a, b, out=torch.empty(m, n))
    for name, (inputs, filters, options) in CONVOLUTIONS.items():
        dims = len(inputs) - 2
        asked: dict[str, Any] = {"stride": (1,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims}
        asked |= {"transposed": False, "output_padding": (0,) * dims, "groups": 1, "bias": None} | options
        function = templates.split_convolution if asked["groups"] == 1 else templates.direct_convolution
        x, weight = torch.empty(inputs), torch.empty(filters)
        found[name] = lambda call=function, x=x, weight=weight, asked=asked: call(x, weight, **asked)
        if (small := f"{name}, small") in SMALL:
            function = templates.small_convolution
            found[small] = lambda call=function, x=x, weight=weight, asked=asked: call(x, weight, **asked)
    x, weight = torch.empty(256, 3, 224, 224), torch.empty(96, 3, 11, 11)
    asked = {"stride": (4, 4), "padding": (2, 2), "dilation": (1, 1), "output_padding": None}
    found["11x11 step 4, gathered"] = lambda: templates.gathered_convolution(
        x, weight, **asked, transposed=False, groups=1, bias=None
    )
    for name, (batch, heads, queries, keys, size, causal) in ATTENTIONS.items():
        q, k = torch.empty(batch, heads, queries, size), torch.empty(batch, heads, keys, size)
        found[name] = lambda q=q, k=k, causal=causal: templates.split_attention(
            q, k.mT, k, None, None, 0.1, causal, False
        )
    return found


def words_of(kernel: Any) -> str:
    """What ptxas says of a kernel, and its instructions for tensor cores."""
    from triton.knobs import nvidia

    text = kernel.asm["ptx"]
    with tempfile.NamedTemporaryFile("w", suffix=".ptx") as file:
        file.write(text)
        file.flush()
        command = [nvidia.ptxas.path, "-v", "--gpu-name=sm_90a", file.name, "-o", "/dev/null"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stderr
    counts = Counter(_INSTRUCTION.findall(text))
    instructions = [f"{count} {name}" for name, count in counts.items()]
    code = f"{len(_OF_CODE.findall(machine_code(kernel.asm['cubin'])))} instructions"
    return "; ".join([code, *_TOLD.findall(told), f"{kernel.metadata.shared} bytes shared", *instructions])


class JudgesCode:
    """Compiles each kernel once more, from the text that a worker would send."""

    def __init__(self) -> None:
        self._requests: list[Any] = []
        if not replace_stages(
            lambda request: self._requests.append(request["triton"]), lambda compile_here: compile_here()
        ):
            raise SystemExit("this version of Triton has other stages; want 3.6.0")

    def compared(self, kernel: Any) -> str:
        """Whether the machine code is the same, with the characters of the text and the bytes that are kept."""
        if not self._requests:
            return "compiled before"
        wanted = json.loads(json.dumps(self._requests[-1]))
        product = compiled(wanted["ir"], language=wanted["language"], options=wanted["options"], arch=wanted["arch"])
        self._requests.clear()
        stages, _ = unpacked(product)
        same = machine_code(stages["cubin"]) == machine_code(kernel.asm["cubin"])
        return f"{'same' if same else 'OTHER'} machine code, {len(wanted['ir'])} characters, {len(product)} bytes"


def machine_code(binary: Any) -> str:
    """What NVIDIA's disassembler shows of a compiled kernel."""
    from triton.knobs import nvidia

    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(binary)
        file.flush()
        command = [nvidia.cuobjdump.path, "-sass", file.name]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compile_file(path: Path) -> None:
    """Compile what the templates of a kernel file launch, as its `Runner` calls them, and print how much that was."""
    torch._C._cuda_getCurrentRawStream = lambda _: 0
    torch._C._dynamo.guards._empty_strided_cuda = lambda size, stride, dtype: torch.empty_strided(
        size, stride, dtype=dtype
    )
    torch.cuda._DeviceGuard = lambda _: nullcontext()
    torch.cuda.set_device = lambda _: None
    AsyncCompile.triton = lambda *_, **__: SimpleNamespace(run=lambda *_, **__: None)
    source = path.read_text()
    templates = imported(source, Path.cwd(), "kernel")
    made_by: dict[str, list[Any]] = {}
    seconds = Counter[str]()

    def report(kernel: str, took: float, made: Any) -> None:
        made_by.setdefault(kernel, []).append(made)
        seconds[kernel] += took

    compiling(templates, report)
    inputs = {
        name: torch.empty_strided(literal(size), literal(stride)) for name, size, stride in _INPUT.findall(source)
    }
    names = next(line.partition(" = args")[0] for line in source.splitlines() if line.endswith(" = args"))
    templates.Runner([]).call([inputs.get(name.strip(), torch.zeros(())) for name in names.split(",") if name.strip()])
    for kernel, made in made_by.items():
        print(f"{kernel}: {len(made)} launches, {len(set(map(id, made)))} kernels, {seconds[kernel]:.1f} s")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a tunable")
    parser.add_argument("--case", action="append", help="only the cases whose name contains this")
    parser.add_argument("--file", type=Path, help="a kernel file, instead of the cases")
    parser.add_argument("--as-the-judge", action="store_true", help="compare with what the judge compiles")
    options = parser.parse_args()
    from triton.runtime.driver import driver

    driver.set_active(AbsentDevice())
    judged = JudgesCode() if options.as_the_judge else None
    values = dict(word.split("=", 1) for word in options.set)
    file = options.file and options.file.absolute()
    with tempfile.TemporaryDirectory() as folder, chdir(folder):
        if file:
            os.environ["TRITON_CACHE_DIR"] = folder
            compile_file(file)
            return
        text = with_values("\n\n".join(map(template, TEMPLATES)), values)
        templates = imported(text, Path(folder), "templates")
        words = judged.compared if judged else words_of
        for name, call in calls(templates).items():
            if options.case and not any(word in name for word in options.case):
                continue
            print(name)
            compiling(templates, lambda kernel, seconds, made: print(f"  {kernel}: {seconds:.1f} s; {words(made)}"))
            call()


if __name__ == "__main__":
    main()

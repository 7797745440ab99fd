"""Times of the templates on this GPU, beside torch's library in strict fp32, and what each launch takes.

    python -m benchmarks.templates [--set CONV_K=64 --set CONV_STAGES=3] [--case 3x3] [--compiled]

A row is one case as the templates declare their tunables, or as `--set` says: milliseconds of a call on a device that
never waits for the host, its error (relative, against fp64, in the norm over the first samples or rows), microseconds
of the host, and those of each kernel as the profiler has them. Needs a device of sm_90.
"""

import argparse
import json
import math
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

import torch
from torch.profiler import ProfilerActivity, profile

from kbevolve.configs.templates import TEMPLATES, template
from kbevolve.evolve.proposers.tuning.tunables import with_values
from tests.imported import imported

Tensor = torch.Tensor
CALLS = 20
#: Samples of a batch, or rows of a product, that are compared with fp64.
COMPARED = 2
#: M, N, K, and whether each operand's K lies side by side in memory.
PRODUCTS = {
    "4096": (4096, 4096, 4096, True, False),
    "linear": (1024, 8192, 8192, True, True),
    "layer": (65536, 2304, 768, True, True),
    "tall": (32768, 32768, 64, True, False),
    "both turned": (2048, 4096, 8192, False, False),
    "few rows": (128, 16384, 16384, True, True),
    "few rows, wide": (128, 32768, 32768, True, True),
}
#: Of these some by the template that reads the second operand once.
SKINNY = {f"{name}, skinny": name for name in ("few rows", "few rows, wide")}
#: Input, filters, and what differs from torch's defaults; "turned" ones are transposed.
CONVOLUTIONS = {
    "11x11 step 4": ((256, 3, 224, 224), (96, 3, 11, 11), {"stride": (4, 4), "padding": (2, 2)}),
    "3x3": ((64, 64, 56, 56), (128, 64, 3, 3), {"padding": (1, 1)}),
    "3x3 wide": ((32, 128, 28, 28), (512, 128, 3, 3), {"padding": (1, 1)}),
    "3x3 of 64": ((10, 64, 224, 224), (64, 64, 3, 3), {"padding": (1, 1)}),
    "3x3 step 2": ((64, 128, 56, 56), (128, 128, 3, 3), {"stride": (2, 2), "padding": (1, 1)}),
    "1x1 step 2": ((64, 256, 56, 56), (512, 256, 1, 1), {"stride": (2, 2)}),
    "1d step 3, dilated": ((16, 64, 524280), (128, 64, 3), {"stride": (3,), "dilation": (4,)}),
    "3x3 of 8": ((128, 8, 256, 256), (64, 8, 3, 3), {}),
    "3x3 of 16": ((16, 16, 1024, 1024), (128, 16, 3, 3), {}),
    "1x1 of 10": ((10, 192, 28, 28), (96, 192, 1, 1), {}),
    "3x3 of 10": ((10, 96, 28, 28), (128, 96, 3, 3), {"padding": (1, 1)}),
    "1x1 of 10, deep": ((10, 832, 7, 7), (384, 832, 1, 1), {}),
    "depthwise": ((16, 64, 512, 512), (64, 1, 3, 3), {"padding": (1, 1), "groups": 64}),
    "depthwise step 2 of 10": ((10, 64, 112, 112), (64, 1, 3, 3), {"padding": (1, 1), "stride": (2, 2), "groups": 64}),
    "depthwise 5x5 of 10": ((10, 240, 28, 28), (240, 1, 5, 5), {"padding": (2, 2), "groups": 240}),
    "depthwise of 10, narrow": ((10, 1024, 7, 7), (1024, 1, 3, 3), {"padding": (1, 1), "groups": 1024}),
    "turned 4x4 step 2": ((16, 64, 64, 64), (64, 64, 4, 4), {"stride": (2, 2), "padding": (1, 1), "transposed": True}),
    "turned 3x7": ((8, 32, 512, 1024), (32, 32, 3, 7), {"padding": (1, 3), "transposed": True}),
    "turned 3x3x3 step 2": (
        (8, 32, 16, 32, 32),
        (32, 64, 3, 3, 3),
        {"stride": (2, 2, 2), "padding": (1, 1, 1), "output_padding": (1, 1, 1), "transposed": True},
    ),
}
#: Of these some by templates that split the numbers themselves: of few channels, by windows, and in one launch.
GATHERED = {f"{name}, gathered": name for name in ("11x11 step 4", "3x3 of 8")}
WINDOWS = {f"{name}, windows": name for name in ("3x3 of 8", "3x3 of 16", "turned 3x7")}
SMALL = {f"{name}, small": name for name in ("1x1 of 10", "3x3 of 10", "1x1 of 10, deep")}
#: batch, heads, queries, keys, numbers of a row, and whether a mask hides later keys.
ATTENTIONS = {
    "attention 96, causal": (128, 8, 512, 512, 96, True),
    "attention 64": (2, 8, 197, 197, 64, False),
    "attention 32, long": (2, 4, 16384, 16384, 32, False),
}
#: Functions of each number and of its row: shape, which, numbers of a row, and weights, one for each channel.
ROWS = {
    "softmax": ((4096, 393216), "softmax", 393216, 0),
    "L2 norm": ((32768, 65535), "over_norm", 65535, 0),
    "instance norm": ((112, 64, 512, 512), "normalise", 512 * 512, 0),
    "group norm": ((112, 64, 512, 512), "normalise", 8 * 512 * 512, 64),
}

CASES = [*PRODUCTS, *SKINNY, *CONVOLUTIONS, *GATHERED, *WINDOWS, *SMALL, *ATTENTIONS, *ROWS]


def attention(name: str, templates: ModuleType) -> tuple[Callable[[], Tensor], Callable[[], Tensor], Tensor]:
    """As `case`."""
    batch, heads, queries, keys, size, causal = ATTENTIONS[name]
    q, k, v = (torch.randn(batch, rows, heads, size, device="cuda").transpose(1, 2) for rows in (queries, keys, keys))
    mask = torch.ones(queries, keys, device="cuda", dtype=torch.bool).triu(1) if causal else None
    options = (mask, None, size**-0.5, False, False)
    # A sample and a head: scores of fp64 are large.
    q1, k1, v1 = (one[:1, :1].double() for one in (q, k, v))
    truth = templates.attend_by_library(q1, k1.mT, v1, *options)
    return (
        lambda: templates.split_attention(q, k.mT, v, *options),
        lambda: templates.attend_by_library(q, k.mT, v, *options),
        truth,
    )


def row_function(name: str, templates: ModuleType) -> tuple[Callable[[], Tensor], Callable[[], Tensor], Tensor]:
    """As `case`."""
    shape, kind, width, channels = ROWS[name]
    x = torch.randn(shape, device="cuda")
    weight, bias = (torch.randn(channels, device="cuda") if channels else None for _ in range(2))
    wide = [None if one is None else one.double() for one in (weight, bias)]
    options = (kind, width, math.prod(shape[2:]) if channels else 1, 1e-5)
    return (
        lambda: templates.row_statistics(x, weight, bias, *options),
        lambda: templates.rows_by_library(x, weight, bias, *options),
        templates.rows_by_library(x[:COMPARED].double(), *wide, *options),
    )


def case(name: str, templates: ModuleType) -> tuple[Callable[[], Tensor], Callable[[], Tensor], Tensor]:
    """A template's call, the library's, and the first part of the answer in fp64."""
    torch.manual_seed(0)
    if name in PRODUCTS or name in SKINNY:
        M, N, K, a_major, b_major = PRODUCTS[SKINNY.get(name, name)]
        multiply = templates.skinny_mm if name in SKINNY else templates.split_mm
        a = torch.randn(M, K, device="cuda") if a_major else torch.randn(K, M, device="cuda").T
        b = torch.randn(N, K, device="cuda").T if b_major else torch.randn(K, N, device="cuda")
        out = torch.empty(M, N, device="cuda")
        return lambda: multiply(a, b, out=out), lambda: a @ b, a[:COMPARED].double() @ b.double()
    if name in ATTENTIONS:
        return attention(name, templates)
    if name in ROWS:
        return row_function(name, templates)
    inputs, filters, given = CONVOLUTIONS[{**GATHERED, **WINDOWS, **SMALL}.get(name, name)]
    x, weight, dims = torch.rand(inputs, device="cuda"), torch.randn(filters, device="cuda"), len(inputs) - 2
    options = {"stride": (1,) * dims, "padding": (0,) * dims, "dilation": (1,) * dims, "output_padding": (0,) * dims}
    options = {"bias": None, **options, "transposed": False, "groups": 1} | given
    own = templates.direct_convolution if options["groups"] > 1 else templates.split_convolution
    own = templates.gathered_convolution if name in GATHERED else own
    own = templates.window_convolution if name in WINDOWS else own
    own = templates.small_convolution if name in SMALL else own
    positions = [
        options[key] for key in ("bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")
    ]
    truth = torch.convolution(x[:COMPARED].double(), weight.double(), *positions)
    return lambda: own(x, weight, **options), lambda: torch.convolution(x, weight, *positions), truth


def device_ms(call: Callable[[], Tensor]) -> float:
    """Milliseconds of one call among many; a pause first, so that the device never waits for the host."""
    call()
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(50_000_000)
    begin.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return begin.elapsed_time(end) / CALLS


def host_us(call: Callable[[], Tensor]) -> float:
    """Median microseconds until a call has returned, on an idle device."""
    times = []
    for _ in range(CALLS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times) * 1e6


def launches(call: Callable[[], Tensor]) -> dict[str, float]:
    """Microseconds of each kernel."""
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        for _ in range(CALLS):
            call()
        torch.cuda.synchronize()
    return {
        one.key[:24]: round(one.device_time_total / CALLS, 1) for one in found.key_averages() if one.device_time_total
    }


@contextmanager
def templates_with(settings: Sequence[str]) -> Iterator[ModuleType]:
    """All templates as one module, with tunables as given, "NAME=VALUE"; the library computes in strict fp32."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    source = with_values("\n\n".join(map(template, TEMPLATES)), dict(one.split("=", 1) for one in settings))
    with tempfile.TemporaryDirectory() as folder:
        yield imported(source, Path(folder), "templates")


def main() -> None:
    """One row a case, and a JSON object at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a tunable of a template")
    parser.add_argument(
        "--case",
        action="append",
        choices=CASES,
        help="all without it",
    )
    parser.add_argument("--compiled", action="store_true", help="torch.compile makes one kernel of the library's calls")
    options = parser.parse_args()
    rows: dict[str, dict[str, object]] = {}
    with templates_with(options.set) as templates:
        print("| case | library ms | template ms | times | error | host us | launches, us |")
        print("|---|---|---|---|---|---|---|")
        for name in options.case or CASES:
            own, library, truth = case(name, templates)
            library = torch.compile(library, dynamic=False) if options.compiled else library
            part = own()[tuple(slice(size) for size in truth.shape)].double()
            error = float((part - truth).norm() / truth.norm())
            ours, theirs, host, kernels = device_ms(own), device_ms(library), host_us(own), launches(own)
            rows[name] = {
                "library_ms": theirs,
                "template_ms": ours,
                "error": error,
                "host_us": host,
                "launches": kernels,
            }
            parts = ", ".join(f"{key} {value}" for key, value in kernels.items())
            print(f"| {name} | {theirs:.3f} | {ours:.3f} | {theirs / ours:.2f} | {error:.1e} | {host:.0f} | {parts} |")
    print(json.dumps({"device": torch.cuda.get_device_name(), "set": options.set, "cases": rows}))


if __name__ == "__main__":
    main()

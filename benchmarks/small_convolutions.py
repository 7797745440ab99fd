"""Convolutions of ten small images on this GPU: in one launch, on pairs of fp16, and by torch's library in strict fp32.

    python -m benchmarks.small_convolutions [--set SMALL_F=128 --set SMALL_STAGES=2]

The shapes are some of GoogleNet's and of EfficientNet's. A row has microseconds of a call, of 20 in a CUDA graph, and
the error of one launch, relative, against fp64, in the norm. Needs a device of sm_90.
"""

import argparse
import json
import statistics
from collections.abc import Callable
from functools import partial

import torch

from benchmarks.templates import templates_with

CALLS = 20
REPLAYS = 7
#: Channels, height and width of the images, filters, their height and width, and the padding.
SHAPES = (
    (192, 28, 96, 1, 0),
    (96, 28, 128, 3, 1),
    (832, 7, 384, 1, 0),
    (480, 14, 192, 1, 0),
    (64, 56, 192, 3, 1),
    (32, 28, 96, 5, 2),
    (160, 7, 320, 3, 1),
    (1152, 7, 320, 1, 0),
    (192, 7, 1152, 1, 0),
    (16, 112, 96, 1, 0),
    (24, 56, 144, 1, 0),
)


def microseconds(call: Callable[[], object]) -> float:
    """Of one call in a graph of many, as the median of some replays."""
    for _ in range(2):
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    times = []
    for _ in range(REPLAYS):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / CALLS * 1e3)
    return statistics.median(times)


def main() -> None:
    """One row a shape, and a JSON object at the end."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a tunable of a template")
    settings = parser.parse_args().set
    rows: dict[str, dict[str, float]] = {}
    with templates_with(settings) as templates:
        print("| channels, size, filters, taps | one launch | pairs | library | error |")
        print("|---|---|---|---|---|")
        for channels, size, filters, taps, padding in SHAPES:
            torch.manual_seed(1)
            x = torch.randn(10, channels, size, size, device="cuda")
            weight = torch.randn(filters, channels, taps, taps, device="cuda") / (channels * taps * taps) ** 0.5
            options = {"stride": (1, 1), "padding": (padding,) * 2, "dilation": (1, 1), "output_padding": (0, 0)}
            options |= {"transposed": False, "groups": 1, "bias": None}
            call = partial(templates.small_convolution, x, weight, **options)
            truth = torch.nn.functional.conv2d(x.double(), weight.double(), padding=padding)
            row = {
                "one launch": microseconds(call),
                "pairs": microseconds(partial(templates.split_convolution, x, weight, **options)),
                "library": microseconds(partial(torch.nn.functional.conv2d, x, weight, padding=padding)),
                "error": float((call() - truth).norm() / truth.norm()),
            }
            rows[name := f"{channels}, {size}x{size}, {filters}, {taps}x{taps}"] = row
            *times, error = row.values()
            print(f"| {name} | {' | '.join(f'{one:.1f}' for one in times)} | {error:.1e} |")
    print(json.dumps({"device": torch.cuda.get_device_name(), "set": settings, "shapes": rows}))


if __name__ == "__main__":
    main()

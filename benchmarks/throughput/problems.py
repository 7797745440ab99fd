"""The benchmark's problems: four of ours with inputs drawn as KernelBench's problems draw them, by ``torch.rand``.

KernelBench's recipe draws on the CPU, where ``torch.rand`` is a large part of what a child costs there, and accepts by
an elementwise tolerance of 1e-4, absolute and relative. So that both judge the same problem by the same inputs, each
problem here is one of configs/problems with another line in `get_inputs`, and with outputs of magnitude 1, where that
tolerance separates right from wrong: it refuses cuBLAS's own rounding of plain randn products of 4096 (magnitude 64).
"""

from collections.abc import Mapping
from pathlib import Path

from benchmarks.throughput.child import edited
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem, parse_problem

#: Problem -> its draws, and what they are here.
_DRAWS = {
    "L1/matmul": (
        "[torch.randn(M, K), torch.randn(K, N)]",
        # Standard deviation of an entry: sqrt(K) / 12 * 12 / sqrt(K) = 1.
        "[12 * K**-0.5 * (torch.rand(M, K) - 0.5), torch.rand(K, N) - 0.5]",
    ),
    "L1/softmax": (
        "[SPREAD * torch.randn(ROWS, COLUMNS)]",
        # A long tail, so that the largest probabilities of a row are some hundredths; 1 - rand is never 0.
        "[-0.25 * SPREAD * torch.log(1 - torch.rand(ROWS, COLUMNS))]",
    ),
    "L1/layernorm": ("torch.randn(BATCH, CHANNELS, HEIGHT, WIDTH)", "torch.rand(BATCH, CHANNELS, HEIGHT, WIDTH)"),
    "L2/gemm_bias_relu": ("[torch.randn(BATCH, IN_FEATURES)]", "[torch.rand(BATCH, IN_FEATURES)]"),
}

#: Sizes for trying the benchmark itself out on a CPU, where a child should take seconds.
_SMALL = {
    "L1/matmul": {"M": 256, "N": 256, "K": 256},
    "L1/softmax": {"ROWS": 256, "COLUMNS": 1024},
    "L1/layernorm": {"BATCH": 4, "CHANNELS": 16, "HEIGHT": 32, "WIDTH": 32},
    "L2/gemm_bias_relu": {"BATCH": 64, "IN_FEATURES": 128, "OUT_FEATURES": 256},
}


def problems(*, small: bool = False) -> Mapping[str, Problem]:
    """The problems by name; `small` ones are small on a CPU only."""
    return {name: _problem(name, draws, _SMALL[name] if small else None) for name, draws in _DRAWS.items()}


def _problem(name: str, draws: tuple[str, str], sizes: Mapping[str, int] | None) -> Problem:
    ours = find_problem(name)
    source = edited(ours.source, draws)
    if sizes is not None:
        source = edited(source, (repr(dict(ours.cpu_sizes)).replace("'", '"'), repr(sizes).replace("'", '"')))
    return parse_problem(source, name=name, path=Path(f"{name}.py"))

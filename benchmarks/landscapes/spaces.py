"""The spaces: hand-written starting kernels with some of the values that they declare, on problems of short calls.

Each has 500 to 700 configurations in all, so that a device measures one whole in some ten minutes, and the values that
the kernel declares are among them: they are where a search starts.
"""

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random

from kbevolve.archive.records import Kernel
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.problem import Problem, with_constants
from kbevolve.configs.seeds import seed_files
from kbevolve.evolve.proposers.tuning.tunables import declared, values_of, with_values


@dataclass(frozen=True, slots=True, kw_only=True)
class Space:
    """All settings of a kernel by some of its tunables, on one problem."""

    #: Short, for file names.
    name: str
    #: With sizes of its own, on a CPU too.
    problem: Problem
    #: The kernel with its declared values.
    source: str
    #: Tunable -> values, the declared one among them; the other tunables stay as declared.
    values: Mapping[str, tuple[str, ...]]
    #: Tunables that make the niche.
    niche: tuple[str, ...]

    @property
    def size(self) -> int:
        """How many configurations there are."""
        return len(self.configurations())

    @property
    def declared(self) -> dict[str, str]:
        """The configuration that the kernel declares."""
        return {name: value for name, value in values_of(self.source).items() if name in self.values}

    def configurations(self) -> list[dict[str, str]]:
        """All, the declared one first, the others in a fixed order without any: what is cut short is a fair sample."""
        everything = [
            dict(zip(self.values, values, strict=True)) for values in itertools.product(*self.values.values())
        ]
        Random(f"landscape/{self.name}").shuffle(everything)
        return sorted(everything, key=lambda configuration: configuration != self.declared)

    def kernel(self, configuration: Mapping[str, str]) -> Kernel:
        """The kernel with these values."""
        return Kernel.from_source(with_values(self.source, configuration))


def spaces(*, small: bool = False) -> Mapping[str, Space]:
    """The spaces by name; `small` ones are for trying the measurement out on a CPU."""
    found = (_small_softmax(),) if small else (_matmul(), _softmax(), _layernorm(), _sum_reduce())
    return {space.name: space for space in found}


def _matmul() -> Space:
    # 8.6 GFLOP, a quarter of a millisecond in fp32; 2 tiles of 128 x 128 for each multiprocessor.
    return _space(
        "matmul",
        problem=_sized("L1/matmul", M=2048, N=2048, K=1024),
        source=_seed("L1/matmul", "triton"),
        values={
            "BLOCK_M": "32 64 128",
            "BLOCK_N": "32 64 128",
            "BLOCK_K": "16 32 64",
            "GROUP_M": "1 8",
            "NUM_WARPS": "4 8",
            "NUM_STAGES": "2 4",
            "SPLIT": "0 1 2",
        },
        niche=("SPLIT", "BLOCK_M", "BLOCK_N"),
    )


def _softmax() -> Space:
    # 0.54 GB read once and written once.
    return _space(
        "softmax",
        problem=_sized("L1/softmax", ROWS=2048, COLUMNS=32768),
        source=_seed("L1/softmax", "triton"),
        values={
            "BLOCK": "1024 2048 4096 8192",
            "NUM_WARPS": "4 8 16 32",
            "NUM_STAGES": "1 3",
            "ONLINE": "0 1",
            "REVERSE": "0 1",
            "EVICT": "0 1",
            "STORE_CS": "0 1",
        },
        niche=("ONLINE", "REVERSE", "BLOCK", "NUM_STAGES"),
    )


def _layernorm() -> Space:
    # 32 rows of a million: 0.4 GB with the second read of x.
    return _space(
        "layernorm",
        problem=_sized("L1/layernorm", BATCH=32, CHANNELS=64, HEIGHT=128, WIDTH=128),
        source=_seed("L1/layernorm", "triton"),
        values={
            "BLOCK": "1024 2048 4096",
            "NUM_WARPS": "4 8",
            "NUM_STAGES": "1 3",
            "SPLITS": "4 16 64 128",
            "ROWS": "1 4 8",
            "REVERSE": "0 1",
            "EVICT": "0 1",
        },
        niche=("SPLITS", "ROWS", "NUM_STAGES", "REVERSE"),
    )


def _sum_reduce() -> Space:
    # 0.54 GB read, next to nothing written.
    return _space(
        "sum_reduce",
        problem=_sized("L1/sum_reduce", BATCH=8, ROWS=4096, COLUMNS=4096),
        source=_seed("L1/sum_reduce", "triton"),
        values={
            "BLOCK_ROWS": "8 16 32",
            "BLOCK_COLUMNS": "32 64 128 256",
            "NUM_WARPS": "4 8",
            "NUM_STAGES": "1 3",
            "SPLIT": "1 2 8",
            "EVICT_FIRST": "0 1",
            "COLUMNS_FIRST": "0 1",
        },
        niche=("SPLIT", "BLOCK_ROWS", "BLOCK_COLUMNS", "COLUMNS_FIRST"),
    )


def _small_softmax() -> Space:
    return _space(
        "softmax",
        problem=_sized("L1/softmax", ROWS=256, COLUMNS=4096),
        source=_seed("L1/softmax", "cpp"),
        values={"PASSES": "three online", "LANES": "1 8", "RECIPROCAL": "0 1"},
        niche=("PASSES",),
    )


def _space(name: str, *, problem: Problem, source: str, values: Mapping[str, str], niche: tuple[str, ...]) -> Space:
    """A space whose values are words of what the kernel declares.

    Raises:
        ValueError: the kernel does not offer a value, or its own is missing.
    """
    known = {tunable.name: tunable for tunable in declared(source)}
    listed = {name: tuple(words.split()) for name, words in values.items()}
    for tunable, words in listed.items():
        if tunable not in known or known[tunable].value not in words or not set(words) <= set(known[tunable].choices):
            raise ValueError(f"{name}: {tunable} = {words}; the kernel declares {known.get(tunable)}")
    return Space(name=name, problem=problem, source=source, values=listed, niche=niche)


def _sized(name: str, **sizes: int) -> Problem:
    """A built-in problem with other sizes, the same on a CPU."""
    problem = find_problem(name)
    source = with_constants(problem.source, sizes)
    return replace(problem, source=source, cpu_sizes=sizes, path=Path(f"{name}.py"))


def _seed(name: str, stem: str) -> str:
    device = "cpu" if stem == "cpp" else "cuda"
    file = next(file for file in seed_files(name, device) if file.stem == stem)
    return file.read_text(encoding="utf-8")

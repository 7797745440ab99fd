"""What tuning found for a template starts the next problem: on tiles whose best values move with the problem's size."""

import math
from collections.abc import Mapping, Sequence

import pytest

from kbevolve.archive.records import Kernel, Operator
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.tuning.constraints import fits
from kbevolve.evolve.proposers.tuning.elsewhere import transferred_samples
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.proposers.tuning.tunables import values_of
from kbevolve.evolve.state.transfer import TransferredKnowledge, TransferredSetting
from tests.evolve.doubles import brief_of, rated

TEMPLATE = """\
TILE_M = 32  # tune: 16, 32, 64, 128, 256
TILE_N = 16  # tune: 16, 32, 64, 128, 256
TILE_K = 16  # tune: 16, 32, 64
WARPS = 1  # tune: 1, 2, 4, 8, 16
STAGES = 1  # tune: 1, 2, 3, 4
GROUP = 1  # tune: 1, 4, 8, 16
# tune if: (TILE_M + TILE_N) * TILE_K * STAGES <= 49152

def product(a, b):
    gemm[grid(TILE_M, TILE_N, GROUP)](a, b, TILE_M, TILE_N, TILE_K, num_warps=WARPS, num_stages=STAGES)
"""
#: M, N and K of two problems with a product.
FIRST, SECOND = (4096, 4096, 2048), (2048, 8192, 1024)


def source(problem: str) -> str:
    return f"{TEMPLATE}\nclass ModelNew:\n    def forward(self, a, b):\n        return {problem}(product(a, b))\n"


def speed(shape: tuple[int, int, int], setting: Mapping[str, str]) -> float:
    """A model of a tiled product: traffic of tiles, waves of blocks, latency that warps and stages hide. Made up."""
    m, n, k = shape
    tile_m, tile_n, tile_k, warps, stages, group = (int(value) for value in setting.values())
    blocks = math.ceil(m / tile_m) * math.ceil(n / tile_n)
    waves = math.ceil(blocks / 132) * 132 / blocks
    traffic = 1 + 96 / tile_m + 96 / tile_n
    work = abs(math.log2(tile_m * tile_n / warps) - 11.0)
    latency = 1 + 0.6 / stages + 0.1 * abs(math.log2(tile_k) - 5) + 12 / (k / tile_k)
    order = 1 + 0.04 * abs(math.log2(group) - math.log2(max(1, n / 1024)))
    return 20.0 / (waves * traffic * (1 + 0.15 * work) * latency * order)


def search(
    shape: tuple[int, int, int], seed: int, count: int, settings: Sequence[TransferredSetting] = ()
) -> list[tuple[Kernel, float]]:
    """So many kernels in order, each tuned from the best so far, with their speeds."""
    start = Kernel.from_source(source("relu" if shape == SECOND else "tanh"))
    found = {start: speed(shape, values_of(start.source))}
    for child in range(count - 1):
        known = {kernel.id for kernel in found}
        members = [rated(kernel, fast) for kernel, fast in found.items()]
        brief: Brief = brief_of(
            Operator.TUNE,
            max(members, key=lambda member: member.fitness),
            seed=1000 * seed + child,
            history=tuple(members),
            transfer=TransferredKnowledge(settings=tuple(settings)),
            known=known.__contains__,
        )
        kernel = TunablesProposer().propose(brief).kernel
        assert kernel is not None
        assert fits(kernel.source, values_of(kernel.source))
        found[kernel] = speed(shape, values_of(kernel.source))
    return list(found.items())


def transferred(found: Sequence[tuple[Kernel, float]], closeness: float) -> list[TransferredSetting]:
    ranked = sorted(found, key=lambda one: -one[1])
    return [TransferredSetting("L1/first", kernel.id, fast, closeness, kernel.source) for kernel, fast in ranked[:16]]


def needed(found: Sequence[tuple[Kernel, float]], target: float) -> int:
    return next((number for number, (_, fast) in enumerate(found, start=1) if fast >= target), len(found) + 1)


def test_only_tunables_of_the_same_template_are_taken_over() -> None:
    (kernel, fast), *_ = found = search(FIRST, 0, 6)
    samples = transferred_samples(source("relu"), transferred(found, 0.7))
    assert len(samples) == 6
    assert {sample.closeness for sample in samples} == {0.7}
    assert {str(sample.setting) for sample in samples} == {str(values_of(one.source)) for one, _ in found}
    other = source("relu").replace("num_warps=WARPS", "num_warps=2 * WARPS")
    assert transferred_samples(other, transferred(found, 0.7)) == []
    wider = "UNROLL = 3  # tune: 1, 3\n" + source("relu")
    assert transferred_samples(wider, transferred(found, 0.7))[0].setting["UNROLL"] == "3"
    assert fast > 0
    assert kernel.source == source("tanh")


@pytest.mark.slow
def test_the_second_problem_needs_a_third_of_the_evaluations() -> None:
    evaluations: list[tuple[int, int]] = []
    for seed in range(6):
        first, alone = search(FIRST, seed, 60), search(SECOND, 100 + seed, 40)
        target = 0.98 * max(fast for _, fast in alone)
        second = search(SECOND, 100 + seed, 20, transferred(first, 0.7))
        evaluations.append((needed(alone, target), needed(second, target)))
    without, with_transfer = (sum(numbers) for numbers in zip(*evaluations, strict=True))
    assert 3 * with_transfer <= without

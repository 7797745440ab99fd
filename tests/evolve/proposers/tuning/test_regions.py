"""A file of twenty regions with a template each: the profile says which region's tunables are tried first."""

import pytest

from kbevolve.archive.records import Kernel, Launch, Operator
from kbevolve.evolve.proposers.tuning.proposer import TunablesProposer
from kbevolve.evolve.proposers.tuning.tunables import values_of
from tests.evolve.doubles import brief_of, rated

REGIONS = 20
#: Milliseconds of each region by the library; two regions take most of the time.
TIMES = [8.0 if number in (3, 11) else 0.3 for number in range(REGIONS)]


def source() -> str:
    parts = []
    for number in range(REGIONS):
        parts.append(
            f"R{number}_TILE = 16  # tune: 16, 32, 64, 128\nR{number}_STAGES = 1  # tune: 1, 2, 3\n"
            f"R{number}_FAST = 0  # tune: 0, 1\n# tune R{number}_TILE, R{number}_STAGES if: R{number}_FAST\n"
            f"gemm_{number}, plain_{number} = compiled(), compiled()\n"
            f"def region_{number}(a):\n    gemm_{number}[(a,)](a, R{number}_TILE, R{number}_STAGES)\n"
            f"def library_{number}(a):\n    plain_{number}[(a,)](a)\n"
        )
    calls = "".join(f"        (region_{one} if R{one}_FAST else library_{one})(a)\n" for one in range(REGIONS))
    return "".join(parts) + f"class ModelNew:\n    def forward(self, a):\n{calls}"


def times(values: dict[str, str]) -> list[float]:
    """Milliseconds of each region: by the template a third at its best values where the region is large, else more."""
    found = []
    for number, plain in enumerate(TIMES):
        tile = abs(int(values[f"R{number}_TILE"]).bit_length() - 7)
        stages = abs(int(values[f"R{number}_STAGES"]) - 3)
        fast = plain * (1 + 0.8 * tile + 0.5 * stages) / (3 if plain > 1 else 0.5)
        found.append(fast if values[f"R{number}_FAST"] == "1" else plain)
    return found


def fastest(evaluations: int, *, profiled: bool) -> float:
    """Speedup of the best of so many kernels over the start."""
    start = Kernel.from_source(source())
    found = {}
    kernel: Kernel | None = start
    for child in range(evaluations):
        assert kernel is not None
        values = values_of(kernel.source)
        taken = times(values)
        launches = [
            Launch(
                name=f"{'gemm' if values[f'R{number}_FAST'] == '1' else 'plain'}_{number}",
                share=one / sum(taken), microseconds=1000 * one, launches=1.0,
            )
            for number, one in enumerate(taken)
        ]  # fmt: skip
        found[kernel.id] = rated(kernel, sum(TIMES) / sum(taken), launches if profiled else ())
        best = max(found.values(), key=lambda member: member.fitness)
        brief = brief_of(
            Operator.TUNE, best, seed=child, history=tuple(found.values()), known=found.__contains__
        )  # fmt: skip
        kernel = TunablesProposer().propose(brief).kernel
    return max(member.fitness for member in found.values())


@pytest.mark.slow
def test_the_regions_that_take_the_time_are_tuned_first() -> None:
    with_profile, without = fastest(20, profiled=True), fastest(20, profiled=False)
    assert with_profile > 1.2 * without

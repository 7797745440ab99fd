"""Landscapes for the tests of `evolve.simulation`: the named ladders and a small measured one."""

import itertools
import json
from typing import Any

import pytest

from kbevolve.evolve.simulation.ladders import LADDERS, find_ladder
from kbevolve.evolve.simulation.landscape import Landscape
from kbevolve.evolve.simulation.measured import parse_landscape


def small_tree() -> dict[str, Any]:
    """36 configurations in the documented format: some fail, some are missing, wider tiles are faster."""
    values = []
    for tile, warps, split in itertools.product((16, 32, 64, 128), (2, 4, 8), ("none", "fp16", "tf32")):
        if (tile, warps) == (16, 8):
            continue  # it was not measured
        if (tile, split) == (128, "tf32"):
            values.append([[tile, warps, split], f"BUILD_FAILED: out of shared memory: {warps * 1000} bytes"])
            continue
        time = 8.0 / tile**0.5 + 0.3 * abs(warps - 4) - 0.5 * (split != "none")
        values.append([[tile, warps, split], [round(time * jitter, 4) for jitter in (1.0, 0.99, 1.01, 1.004)]])
    return {
        "format": 1,
        "name": "small",
        "about": "made up",
        "unit": "ms",
        "reference_ms": 1.5,
        "parameters": [["TILE", [16, 32, 64, 128]], ["WARPS", [2, 4, 8]], ["SPLIT", ["none", "fp16", "tf32"]]],
        "values": values,
    }


@pytest.fixture
def tree() -> dict[str, Any]:
    """The small file as a tree, to be spoilt."""
    return small_tree()


@pytest.fixture(params=[*LADDERS, "measured"])
def landscape(request: pytest.FixtureRequest) -> Landscape:
    """Each kind of landscape: what all of them promise is tested on all of them."""
    if request.param == "measured":
        return parse_landscape(json.dumps(small_tree()), origin="small.json")
    return find_ladder(request.param)

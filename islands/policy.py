"""How the islands of one run differ: not in their seed alone, or isolation would only make them slower.

One island is free in everything. Of several on a GPU the first writes Triton and the second CUDA C++; where there is
one language, as on a CPU, they differ in the family of techniques that their ideas come from. The last of three or more
is free, chooses its ideas with little regard to what paid so far, and asks its models at a higher temperature.
"""

from dataclasses import dataclass

from kbevolve.archive.records import Backend

#: Share of ideas that are chosen without looking at credit, and on an island that ventures.
FLOOR, VENTURING = 0.15, 0.6
#: Of the temperature that the settings give a model, on an island that ventures: 1.0 for the usual 0.8, and never above
#: what all endpoints take.
WARM, HOTTEST = 1.25, 2.0

#: Families of techniques (`configs/playbook.yaml`).
TRAFFIC = frozenset(
    {
        "vectorize", "coalesce", "loads-in-flight", "cache-policy", "data-layout", "block-tiling", "stencil-reuse",
        "async-copy", "fusion", "one-pass",
    }
)  # fmt: skip
WORK = frozenset(
    {
        "register-tiling", "tensor-cores", "split-precision", "algebra", "cheap-math", "instruction-parallelism",
        "specialise", "occupancy",
    }
)  # fmt: skip
DIVISION = frozenset(
    {"tile-order", "parallel-reduction", "work-split", "persistent", "warp-specialise", "launch-overhead"}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What is particular to an island."""

    #: A few words.
    name: str
    #: What new files are written in there; None for whatever the device takes.
    backend: Backend | None = None
    #: Techniques that are proposed there before others; empty for all alike.
    techniques: frozenset[str] = frozenset()
    #: Share of its ideas that are chosen without looking at credit.
    floor: float = FLOOR
    #: Times the settings' temperature; 1 or `WARM`.
    warmth: float = 1.0


FREE = Policy(name="free")
VENTURE = Policy(name="free, venturing", floor=VENTURING, warmth=WARM)
_BY_DEVICE = {
    "cuda": (
        Policy(name="Triton", backend=Backend.TRITON),
        Policy(name="CUDA C++", backend=Backend.CUDA),
        Policy(name="division of the work", techniques=DIVISION),
    ),
    "cpu": (
        Policy(name="memory traffic", techniques=TRAFFIC),
        Policy(name="arithmetic", techniques=WORK),
        Policy(name="division of the work", techniques=DIVISION),
    ),
}


def policy_of(island: int, *, islands: int, device_type: str) -> Policy:
    """What is particular to an island, of so many, on a ``"cpu"`` or ``"cuda"`` device."""
    if islands == 1:
        return FREE
    if islands > 2 and island == islands - 1:
        return VENTURE
    own = _BY_DEVICE[device_type]
    return own[island % len(own)]

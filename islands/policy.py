"""How the islands of one run differ: by more than their seed, because isolation alone would only make them slower.

One island is free in everything. Of several on a GPU the first writes Triton and the second CUDA C++; where there is
one language, as on a CPU, they differ in the family of techniques of their ideas. The last of three or more is free and
exploratory: it asks its models at a higher temperature, and where credit of techniques chooses among ideas, it mostly
chooses without it.
"""

from dataclasses import dataclass, replace

from kbevolve.archive.records import Backend

#: Share of ideas that are chosen without looking at credit, where credit chooses; and on an exploratory island.
FLOOR, EXPLORATORY_FLOOR = 0.15, 0.6
#: Factor on the temperature of the settings on an exploratory island (1.0 for the usual 0.8), and the highest
#: temperature that all endpoints accept.
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
    """What is special about an island."""

    #: A few words.
    name: str
    #: Language of new files; None for any that the device supports.
    backend: Backend | None = None
    #: Techniques that are proposed before others; empty for no preference.
    techniques: frozenset[str] = frozenset()
    #: Share of its ideas that are chosen without looking at credit.
    floor: float = FLOOR
    #: Factor on the settings' temperature; 1 or `WARM`.
    temperature_factor: float = 1.0


FREE = Policy(name="free")
EXPLORATORY = Policy(name="free, exploratory", floor=EXPLORATORY_FLOOR, temperature_factor=WARM)
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


def policy_of(island: int, *, islands: int, device_type: str, backend: Backend | None = None) -> Policy:
    """What is special about an island, of so many, on a ``"cpu"`` or ``"cuda"`` device.

    With `backend` all islands write that language, so they differ as on a CPU.
    """
    if backend is not None:
        return replace(policy_of(island, islands=islands, device_type="cpu"), backend=backend)
    if islands == 1:
        return FREE
    if islands > 2 and island == islands - 1:
        return EXPLORATORY
    own = _BY_DEVICE[device_type]
    return own[island % len(own)]

"""The reference as a starting kernel whose launches can be one: for models that torch.compile makes no file of.

Such models are recurrent ones, whose library call has many small launches.
"""

from kbevolve.configs.reference import as_class, without_head
from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.tuning.tunables import with_values

#: What the code needs, whatever the reference imports.
_IMPORT = "import torch"


def replayed_reference(source: str) -> str:
    """A ModelNew file that calls the reference in a CUDA graph; for a device with CUDA.

    Args:
        source: the problem's file.
    """
    future, reference = without_head(as_class(source, "Reference"))
    replay = with_values(template("graph_replay"), {"REPLAYED": "1"})  # without it, it is the reference
    parts = (f"{future}{_IMPORT}\n\n{reference}", replay, template("replayed_reference"))
    return "\n\n\n".join(part.strip("\n") for part in parts) + "\n"

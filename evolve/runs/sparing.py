"""The judge that a search has: kernels that compile to one machine code are judged once.

Named by text (`MAKER`), as any judge of a fleet is: it is made where its device is.
"""

from typing import TYPE_CHECKING, Any

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import Device
from kbevolve.islands.source.canonical import shell_of

if TYPE_CHECKING:
    from kbevolve.evaluators.judging.judge import Judge

#: For `evolve.runs.evaluators.open_judges`.
MAKER = "kbevolve.evolve.runs.sparing:sparing_judge"


def sparing_judge(device: Device, settings: EvaluationSettings, **how: Any) -> "Judge":
    """A judge that finds kernels with identical binaries (`evaluators.judging.binary_dedup`)."""
    from kbevolve.evaluators.judging.judge import Judge

    return Judge(device, settings, shell_of=shell_of, **how)

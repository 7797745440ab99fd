"""The judge that a search has: kernels that compile to one machine code are judged once.

Named by text (`MAKER`), as any judge of a fleet is: it is made where its device is.
"""

from typing import TYPE_CHECKING, Any

from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.devices import Device
from kbevolve.islands.canonical import shell_of

if TYPE_CHECKING:
    from kbevolve.evaluators.judge import Judge

#: For `evolve.hands.open_judges`.
MAKER = "kbevolve.evolve.sparing:sparing_judge"


def sparing_judge(device: Device, settings: EvaluationSettings, **how: Any) -> "Judge":
    """A judge as `evaluators.judge.Judge` makes it, which tells kernels of one code (`evaluators.twins`)."""
    from kbevolve.evaluators.judge import Judge

    return Judge(device, settings, shell_of=shell_of, **how)

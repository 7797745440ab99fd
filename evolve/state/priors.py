"""What is believed of each operator before a run has created its first child."""

from collections.abc import Mapping
from types import MappingProxyType

from kbevolve.archive.records import Operator
from kbevolve.islands.credit.posterior import Belief

#: What is believed of the operators before the first child: worth five or six children, on rewrites the least.
PRIORS: Mapping[str, Belief] = MappingProxyType(
    {
        str(Operator.MUTATE): Belief(valid=4, invalid=2, gain=0.05, weight=2),
        str(Operator.REWRITE): Belief(valid=3, invalid=3, gain=-0.2, weight=2, scale=0.08),
        str(Operator.CROSS): Belief(valid=3, invalid=2, gain=-0.02, weight=2),
        str(Operator.TUNE): Belief(valid=5, invalid=1, gain=-0.02, weight=2, scale=0.002),
    }
)

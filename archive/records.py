"""The shared vocabulary: frozen records of plain values, which every package above the archive uses.

A record is a fact and never changes. Row numbers and storage keys are matters of `archive.store`.
Times are in milliseconds or seconds as the field says; moments are UTC, ISO 8601.
"""

from kbevolve.archive.evaluations import (
    Accuracy,
    Comparison,
    Compiled,
    Confirmation,
    Evaluation,
    Execution,
    Launch,
    LaunchCost,
    Measurement,
    Profile,
    Timing,
    Trait,
    Verdict,
)
from kbevolve.archive.kernels import Backend, Birth, BirthState, Idea, Kernel, Operator, Placement
from kbevolve.archive.parts import changed
from kbevolve.archive.runs import KnownDevice, ProblemCard, Run, StopReason

__all__ = [
    "Accuracy",
    "Backend",
    "Birth",
    "BirthState",
    "Comparison",
    "Compiled",
    "Confirmation",
    "Evaluation",
    "Execution",
    "Idea",
    "Kernel",
    "KnownDevice",
    "Launch",
    "LaunchCost",
    "Measurement",
    "Operator",
    "Placement",
    "ProblemCard",
    "Profile",
    "Run",
    "StopReason",
    "Timing",
    "Trait",
    "Verdict",
    "changed",
]

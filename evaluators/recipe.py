"""KernelBench's recipe from our side: its verdict on a kernel, for comparison with ours and never instead of it.

The recipe runs in a worker, so that a kernel can neither end this process nor read what is not its own. But it compares
and times in the process of the kernel (`worker.recipe`), so its verdict can be forged, and ours cannot.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from kbevolve.archive.records import Kernel
from kbevolve.configs.errors import EvaluatorError, SettingsError
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import KernelBenchSettings, Precision
from kbevolve.evaluators.device import lock
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.rejection import Rejection, reading_a_reply
from kbevolve.evaluators.sandbox.worker import Worker

#: Above this speedup KernelBench warns that a kernel may be a hack.
EXCESSIVE = 10.0
#: Characters of a message that are kept.
_MOST_MESSAGE = 2000


class Outcome(StrEnum):
    """What the recipe says of a kernel."""

    CORRECT = "correct"
    INCORRECT = "incorrect"
    FAILED = "failed"  # it does not compile, raises, crashes or takes too long


@dataclass(frozen=True, slots=True, kw_only=True)
class RecipeVerdict:
    """The verdict of KernelBench's recipe; times in ms, rounded to three digits as KernelBench does."""

    outcome: Outcome
    #: Whether KernelBench counts it as compiled.
    compiled: bool
    message: str = ""
    #: How it was timed; None without times.
    timing: str | None = None
    #: Mean, "std", "min" and "max" of the kernel and of the reference, with PyTorch's default flags; empty without.
    kernel_ms: Mapping[str, float] | None = None
    reference_ms: Mapping[str, float] | None = None
    #: Mean of the reference over mean of the kernel; None without times.
    speedup: float | None = None

    @property
    def is_excessive(self) -> bool:
        """Whether KernelBench warns of this speedup."""
        return (self.speedup or 0.0) > EXCESSIVE


def timing_method(settings: KernelBenchSettings, device: Device, precision: Precision) -> str | None:
    """How kernels are timed on this device; None for not at all.

    Raises:
        SettingsError: the device has no such method, or KernelBench has no such precision.
    """
    if precision == "tf32":
        raise SettingsError(
            "--judge kernelbench: KernelBench has no precision tf32; --precision fp32 has PyTorch's default flags "
            "there, with TF32 in convolutions"
        )
    if not settings.performance:
        return None
    if device.type == "cuda":
        return settings.timing
    if settings.timing.startswith("do_bench"):
        raise SettingsError(
            f"kernelbench.timing={settings.timing} needs a CUDA device; on a CPU write "
            "--set kernelbench.timing=host_time"
        )
    return "host_time"


def judge_by_recipe(
    problem: Problem, kernel: Kernel, device: Device, precision: Precision, settings: KernelBenchSettings
) -> RecipeVerdict:
    """What KernelBench's recipe says of a kernel, alone on the device.

    Raises:
        EvaluatorError: the reference fails, or no worker can be started.
        SettingsError: as `timing_method`.
    """
    method = timing_method(settings, device, precision)
    task = {
        "reference": problem.source_for(device.type),
        "source": kernel.source,
        "trials": settings.trials,
        "timed_calls": settings.timed_calls,
        "method": method,
    }
    worker = Worker(device)
    try:
        worker.wait_ready()
        with lock.exclusive(device):
            reply = worker.ask(
                {"request": "recipe", "precision": precision, "task": task},
                seconds=settings.seconds,
                build_seconds=settings.seconds,
            )
        if "broken" in reply:
            raise EvaluatorError(f"{problem.name}: the reference fails in KernelBench's recipe: {reply['broken']}")
        with reading_a_reply():
            return _verdict_of(reply, method)
    except Rejection as failure:
        # Without a verdict of its process KernelBench counts a kernel as not compiled.
        return RecipeVerdict(outcome=Outcome.FAILED, compiled=False, message=failure.message)
    finally:
        worker.kill()


def _verdict_of(reply: Mapping[str, Any], method: str | None) -> RecipeVerdict:
    """The verdict from an untrusted reply."""
    if reply["ok"] is not True:  # it raised what is no Exception, such as SystemExit
        message = f"{reply['type']}: {reply['text']}"
        return RecipeVerdict(outcome=Outcome.FAILED, compiled=False, message=message[:_MOST_MESSAGE])
    right, raised = reply["correct"] is True, reply["raised"] is True
    outcome = Outcome.CORRECT if right else Outcome.FAILED if raised else Outcome.INCORRECT
    kernel, reference = (_statistics(reply.get(name)) for name in ("kernel", "reference"))
    return RecipeVerdict(
        outcome=outcome,
        compiled=reply["compiled"] is True,
        message=str(reply["message"])[:_MOST_MESSAGE],
        timing=method if kernel else None,
        kernel_ms=kernel,
        reference_ms=reference,
        speedup=reference["mean"] / kernel["mean"] if kernel and reference else None,
    )


def _statistics(found: Any) -> dict[str, float] | None:
    if found is None:
        return None
    values = {name: float(found[name]) for name in ("mean", "std", "min", "max", "calls")}
    if not all(map(math.isfinite, values.values())) or values["mean"] <= 0:
        raise ValueError("times that no clock shows")
    return values

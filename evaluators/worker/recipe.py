"""KernelBench's recipe for one kernel: what `--judge kernelbench` runs in a worker. kbevolve's verdicts never use it.

The recipe is that of KernelBench's src/kernelbench/eval.py (March 2026). Seed 42 draws the weights of both models, and
each trial has a seed of its own for its inputs. `allclose` compares outputs with one absolute and relative tolerance.
Flags are PyTorch's defaults, and modules stay in training mode. Every tensor is cast to the precision, integers too.
Reference and kernel share this process, which also compares and times, so a kernel can forge all of it.
"""

import os
import statistics
from collections.abc import Callable
from typing import Any

import torch

from kbevolve.evaluators.worker.candidate import describe_error, import_candidate
from kbevolve.evaluators.worker.precision import DTYPES
from kbevolve.evaluators.worker.recipe_timing import METHODS, settle

#: Seed of the weights, of the timed inputs, and of the seeds of the trials.
SEED = 42
#: Absolute and relative tolerance by precision.
TOLERANCES = {"fp32": 1e-4, "fp16": 1e-2, "bf16": 1e-2}
#: Characters of an error.
_MOST_TEXT = 2000


class Recipe:
    """One kernel beside its reference."""

    def __init__(self, *, precision: str, device: torch.device) -> None:
        self._device, self._dtype = device, DTYPES[precision]
        self._tolerance = TOLERANCES[precision]
        self._problem: dict[str, Any] = {}

    def evaluate(
        self, reference: str, source: str, *, trials: int, timed_calls: int, method: str | None
    ) -> dict[str, Any]:
        """What the recipe finds.

        Args:
            reference: source of the problem.
            source: of the kernel.
            trials: of correctness.
            timed_calls: of each model, if the kernel is correct.
            method: one of `METHODS`; None to time nothing.

        Returns:
            ``compiled`` and ``correct``, ``message`` and ``raised``, whether that is an exception; for a correct kernel
            that was timed ``kernel`` and ``reference``, the statistics of its times in ms. An error of the reference
            before the kernel is loaded is ``{"broken": its text}``.
        """
        try:
            exec(compile(reference, "reference.py", "exec"), self._problem)
            _seed(SEED)
            arguments = self._moved(self._problem["get_init_inputs"]())
            original = self._constructed(self._problem["Model"], arguments)
        except Exception as error:
            return {"broken": _text(error)}
        os.environ["TORCH_USE_CUDA_DSA"] = "1"
        try:
            model_class = import_candidate(source).ModelNew
            settle(self._device)
        except Exception as error:
            return _failed(error, compiled=False)
        try:
            kernel = self._constructed(model_class, arguments)
        except Exception as error:  # any other one ends KernelBench's evaluation without a verdict
            return _failed(error, compiled=isinstance(error, RuntimeError))
        try:
            difference = self._difference(original, kernel, trials)
        except Exception as error:
            return _failed(error, compiled=True)
        found: dict[str, Any] = {"compiled": True, "correct": not difference, "raised": False, "message": difference}
        if difference or method is None:
            return found
        try:
            times = [self._times(model, METHODS[method], timed_calls) for model in (kernel, original)]
        except Exception as error:  # it stays correct
            return {**found, "message": f"correct, but not timed: {_text(error)}"}
        return {**found, "kernel": times[0], "reference": times[1]}

    def _difference(self, original: Any, kernel: Any, trials: int) -> str:
        """Why a trial fails; "" when all pass. A wrong shape ends the trials, a wrong value does not."""
        torch.manual_seed(SEED)
        seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(trials)]
        largest: list[float] = []
        with torch.no_grad():
            for seed in seeds:
                inputs = self._inputs(seed)
                _seed(seed)
                try:
                    expected = original(*inputs)
                    settle(self._device)
                except Exception as error:  # there it counts against the kernel
                    raise RuntimeError(f"the reference itself fails: {_text(error)}") from None
                output = kernel(*inputs)
                settle(self._device)
                if expected.shape != output.shape:
                    return f"shape {tuple(output.shape)} instead of {tuple(expected.shape)}"
                if not torch.allclose(expected, output, atol=self._tolerance, rtol=self._tolerance):
                    largest.append((expected - output).abs().max().item())
        if not largest:
            return ""
        return f"{len(largest)} of {trials} trials differ, by {max(largest):.3g} at most; allowed: {self._tolerance:g}"

    def _times(self, model: Any, method: Callable[..., list[float]], calls: int) -> dict[str, float]:
        """Statistics of the times, to three digits as there; gradients are on, as there."""
        inputs = self._inputs(SEED)
        times = method(lambda: model(*inputs), calls, self._device)
        found = {
            "mean": statistics.fmean(times),
            "std": statistics.pstdev(times),
            "min": min(times),
            "max": max(times),
        }
        return {name: float(f"{value:.3g}") for name, value in found.items()} | {"calls": float(len(times))}

    def _constructed(self, model_class: Callable[..., Any], arguments: list[Any]) -> Any:
        with torch.no_grad():
            _seed(SEED)
            return model_class(*arguments).to(device=self._device, dtype=self._dtype)

    def _inputs(self, seed: int) -> list[Any]:
        _seed(seed)
        return self._moved(self._problem["get_inputs"]())

    def _moved(self, values: list[Any]) -> list[Any]:
        return [
            value.to(dtype=self._dtype).to(device=self._device) if isinstance(value, torch.Tensor) else value
            for value in values
        ]


def _seed(seed: int) -> None:
    torch.manual_seed(seed)  # of the CPU and of every GPU


def _failed(error: Exception, *, compiled: bool) -> dict[str, Any]:
    return {"compiled": compiled, "correct": False, "raised": True, "message": _text(error)}


def _text(error: Exception) -> str:
    facts = describe_error(error)
    return f"{facts['type']}: {facts['text'][:_MOST_TEXT]}"

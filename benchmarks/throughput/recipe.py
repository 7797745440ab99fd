"""KernelBench's recipe for one child in a fresh process: run by path, knows torch and nothing of ours.

    python recipe.py problem.py child.py cuda result.json

Written from a description of it. Seed 42; `ModelNew` compiled by torch's own builders in this process; five trials
with inputs that the problem draws on the CPU, copied to the device, outputs compared by ``allclose`` at 1e-4, all five
also after one that failed; for a child that passes them, 3 calls to warm up and 100 timed by CUDA events, then the
reference likewise; the speedup is the reference's mean over the child's.

Where the description leaves a choice, the cheaper one is taken: the timed calls use the last trial's inputs again.
"""

import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

STARTED = time.perf_counter()

import torch  # noqa: E402 - what importing it costs is part of the recipe

SEED = 42
TRIALS = 5
WARM_UPS = 3
TIMED = 100
TOLERANCE = 1e-4
#: Bytes written between two timed calls: more than any L2 holds.
FLUSH_BYTES = 256 << 20


class Watch:
    """Seconds by phase."""

    def __init__(self) -> None:
        self.phases: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        start = time.perf_counter()
        try:
            yield
        finally:
            self.phases[name] = self.phases.get(name, 0.0) + time.perf_counter() - start


def load(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def constructed(model: Callable[..., Any], arguments: list[Any], device: torch.device) -> Any:
    torch.manual_seed(SEED)
    return model(*arguments).to(device)


def moved(values: list[Any], device: torch.device) -> list[Any]:
    return [value.to(device) if isinstance(value, torch.Tensor) else value for value in values]


def synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def trials_passed(
    reference: Any, child: Any, problem: ModuleType, device: torch.device, watch: Watch
) -> tuple[int, list[Any]]:
    """How many of the trials the child passes, and the inputs of the last."""
    passed = 0
    inputs: list[Any] = []
    torch.manual_seed(SEED)
    for seed in torch.randint(0, 2**31, (TRIALS,)).tolist():
        torch.manual_seed(seed)
        with watch.phase("inputs"):
            inputs = moved(problem.get_inputs(), device)
            synchronize(device)
        with watch.phase("trials"):
            expected = reference(*inputs)
            synchronize(device)
            found = child(*inputs)
            synchronize(device)
            if found.shape != expected.shape:
                return passed, inputs
            passed += torch.allclose(found, expected, atol=TOLERANCE, rtol=TOLERANCE)
    return passed, inputs


def timed_ms(call: Callable[..., Any], inputs: list[Any], device: torch.device) -> float:
    """Mean milliseconds of a call."""
    for _ in range(WARM_UPS):
        call(*inputs)
    synchronize(device)
    if device.type != "cuda":
        spent = []
        for _ in range(TIMED):
            start = time.perf_counter()
            call(*inputs)
            spent.append(1e3 * (time.perf_counter() - start))
        return statistics.fmean(spent)
    flush = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device=device)
    spent = []
    for _ in range(TIMED):
        flush.zero_()
        start_event, end_event = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        torch.cuda.synchronize(device)
        start_event.record()
        call(*inputs)
        end_event.record()
        torch.cuda.synchronize(device)
        spent.append(start_event.elapsed_time(end_event))
    return statistics.fmean(spent)


def evaluated(problem_path: Path, child_path: Path, device: torch.device, watch: Watch) -> dict[str, Any]:
    """The verdict "correct", "incorrect" or "failed", with times for a correct child."""
    with watch.phase("reference"):
        problem = load(problem_path, "problem")
        arguments = problem.get_init_inputs()
        reference = constructed(problem.Model, arguments, device)
        synchronize(device)
    try:
        with watch.phase("build"):
            child = constructed(load(child_path, "child").ModelNew, arguments, device)
            synchronize(device)
        passed, inputs = trials_passed(reference, child, problem, device, watch)
        if passed < TRIALS:
            return {"outcome": "incorrect", "note": f"{passed} of {TRIALS} trials passed"}
        with watch.phase("timing"):
            child_ms = timed_ms(child, inputs, device)
    except Exception as error:
        return {"outcome": "failed", "note": f"{type(error).__name__}: {str(error)[-300:]}"}
    with watch.phase("reference timing"):
        reference_ms = timed_ms(reference, inputs, device)
    return {
        "outcome": "correct",
        "time_ms": child_ms,
        "reference_ms": reference_ms,
        "speedup": reference_ms / child_ms,
    }


def main() -> None:
    problem_path, child_path, device, result_path = sys.argv[1:]
    watch = Watch()
    watch.phases["import torch"] = time.perf_counter() - STARTED
    with torch.no_grad():
        found = evaluated(Path(problem_path), Path(child_path), torch.device(device), watch)
    found["phases"] = watch.phases
    Path(result_path).write_text(json.dumps(found))


if __name__ == "__main__":
    main()

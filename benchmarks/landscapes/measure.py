"""Every configuration of a space through our judge, one line of JSON each."""

import threading
import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.landscapes.spaces import Space
from benchmarks.throughput import lines
from kbevolve.archive.records import Evaluation, Measurement, Verdict
from kbevolve.configs.settings import EvaluationSettings, Settings
from kbevolve.evaluators.device.devices import Device
from kbevolve.evaluators.judging.judge import Judge, width_for
from kbevolve.evaluators.timing.statistics import block_ms

#: A landscape wants many configurations, each with its noise, not few with narrow intervals: two trials, four rounds of
#: three calls.
SETTINGS = {
    "evaluation.trials": 2,
    "evaluation.warmup": 1,
    "evaluation.least_rounds": 4,
    "evaluation.rounds": 4,
    "evaluation.calls_per_round": 3,
    "evaluation.profile": False,
    "evaluation.baselines": False,
}


def measure_all(space: Space, device: Device, out: Path, *, seconds: float = float("inf"), width: int = 0) -> int:
    """Measure what the file does not hold yet, and append it; how many configurations are left.

    Args:
        space: what to measure.
        device: where.
        out: the file of lines; a configuration that is in it is not measured again, unless it was refused once.
        seconds: after these no configuration is begun.
        width: kernels in progress at once; 0 for what fits this machine.

    Raises:
        SystemExit: the file holds lines of another space, problem or device.
    """
    until = time.monotonic() + seconds
    done = _done(out, space, device)
    waiting = [one for one in space.configurations() if _key(one) not in done]
    writing = threading.Lock()
    left = len(waiting)
    if not waiting:
        return 0
    with Judge(device, settings(device), width=width_for(device, width)) as judge:

        def one(configuration: Mapping[str, str]) -> None:
            nonlocal left
            if time.monotonic() > until:
                return
            found = judge.evaluate(space.problem, space.kernel(configuration))
            with writing:
                lines.append(out, facts(space, device, configuration, found))
                left -= 1
                print(_row(configuration, found, left), flush=True)

        with ThreadPoolExecutor(judge.width) as callers:
            list(callers.map(one, waiting))
    return left


def settings(device: Device) -> EvaluationSettings:
    """How configurations are judged."""
    preset = "cpu" if device.type == "cpu" else None
    return Settings.load(preset=preset, overrides=SETTINGS).evaluation


def facts(space: Space, device: Device, configuration: Mapping[str, str], found: Evaluation) -> dict[str, Any]:
    """The line of one configuration."""
    return {
        "space": space.name,
        "problem": space.problem.id,
        "device": device.description,
        "configuration": dict(configuration),
        "verdict": found.verdict.name,
        "message": found.message[:300],
        "reference_ms": found.timing.reference_ms,
        "ratios": ratios(found.blocks) if found.verdict is Verdict.CORRECT else [],
        "seconds": round(found.execution.seconds, 3),
    }


def ratios(blocks: Sequence[Measurement]) -> list[float]:
    """Kernel's time over the reference's, one a round: what drifts in the device cancels."""
    rounds: dict[int, dict[str, float]] = defaultdict(dict)
    for block in blocks:
        rounds[block.round][block.role] = block_ms(block.times_ms)
    return [times["child"] / times["reference"] for _, times in sorted(rounds.items())]


def _done(out: Path, space: Space, device: Device) -> set[tuple[tuple[str, str], ...]]:
    found = lines.read(out)
    wanted = (space.name, space.problem.id, device.description)
    for line in found:
        got = (line["space"], line["problem"], line["device"])
        if got != wanted:
            raise SystemExit(f"{out} holds {' / '.join(got)}, not {' / '.join(wanted)}; name another file with --out")
    # The kernels are honest, so a refusal is doubt about the machine's clock: it is asked once more.
    times = Counter(_key(line["configuration"]) for line in found)
    settled = {_key(line["configuration"]) for line in found if line["verdict"] != Verdict.REFUSED.name}
    return settled | {key for key, count in times.items() if count > 1}


def _key(configuration: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(configuration.items()))


def _row(configuration: Mapping[str, str], found: Evaluation, left: int) -> str:
    values = " ".join(f"{name}={value}" for name, value in configuration.items())
    speedup = (
        f"{found.timing.speedup:.3f}x" if found.timing.speedup is not None else found.message[:60].replace("\n", " ")
    )
    return f"{left:4} left  {values}  {found.verdict.name}  {found.execution.seconds:.1f} s  {speedup}"

"""What the judge measures of kernels that a test compares."""

from collections.abc import Iterable
from pathlib import Path

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.problem import Problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge


def speedups(problem: Problem, sources: Iterable[str], folder: Path) -> list[float]:
    """Of each file, times eager on this GPU; all must be right and of the fp32 class. `folder`: for the cache."""
    found = []
    settings = EvaluationSettings(profile=False, baselines=False)
    with Judge(find_device("cuda"), settings, disk_cache=DiskCache(folder)) as judge:
        for source in sources:
            one = judge.evaluate(problem, Kernel.from_source(source))
            assert one.verdict is Verdict.CORRECT, one.message
            assert one.accuracy.precision_class == "fp32"
            found.append(one.timing.speedup or 0.0)
    return found

"""What the judge's own process imports: torch's compilers take seconds, for which the first verdict would wait."""

import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
from pathlib import Path

from kbevolve.archive.records import Kernel, Verdict
from kbevolve.configs.catalog import find_problem
from kbevolve.configs.reference import as_model_new
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device.devices import find_device
from kbevolve.evaluators.disk_cache import DiskCache
from kbevolve.evaluators.judging.judge import Judge

problem = find_problem("L2/gemm_bias_relu")
kernel = Kernel.from_source(as_model_new(problem.source_for("cpu")))
settings, disk_cache = EvaluationSettings(timing_seconds=0.1), DiskCache(Path(sys.argv[1]))
with Judge(find_device("cpu"), settings, disk_cache=disk_cache) as judge:
    assert judge.evaluate(problem, kernel).verdict is Verdict.CORRECT
print(*sorted({"sympy", "torch._dynamo", "torch._inductor"} & sys.modules.keys()))
"""


@pytest.mark.slow
def test_the_judge_imports_no_compiler_of_torch(tmp_path: Path) -> None:
    command = [sys.executable, "-c", SCRIPT, str(tmp_path)]
    found = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
    assert found.returncode == 0, found.stderr
    assert found.stdout.strip() == ""

"""Too little memory on a CPU is an error of one line, not the end of the process by the system."""

import subprocess
import sys
from pathlib import Path

import pytest

BEGIN = """
import torch
from kbevolve.configs.errors import EvaluatorError
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import EvaluationSettings
from kbevolve.evaluators.device import memory
from kbevolve.evaluators.device.devices import find_device
from pathlib import Path

memory.free_bytes = lambda device: 1 << 30
device = find_device("cpu")
"""
#: 2 GiB of input, where 1 GiB is free.
PROBLEM = """
import torch
N = 1 << 29
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
def get_inputs():
    return [torch.zeros(N)]
def get_init_inputs():
    return []
"""
ACTS = {
    "an allocation": """
memory.refuse_beyond_free(device)
torch.zeros(1 << 26)  # 256 MiB
try:
    torch.zeros(1 << 29)
except RuntimeError as error:
    assert memory.is_out_of_memory(error)
    print(memory.lack_of_memory("L1/large", device, error))
""",
    "a card": """
from kbevolve.evaluators.analysis.card import card_for
from kbevolve.evaluators.disk_cache import DiskCache
try:
    card_for(problem, device, "fp32", disk_cache=DiskCache())
except EvaluatorError as error:
    print(error)
""",
    "a judge": """
from kbevolve.archive.records import Kernel
from kbevolve.configs.reference import as_model_new
from kbevolve.evaluators.judging.judge import Judge
with Judge(device, EvaluationSettings(precision="fp32")) as judge:
    try:
        print(judge.evaluate(problem, Kernel.from_source(as_model_new(PROBLEM))))
    except EvaluatorError as error:
        print(error)
""",
}


@pytest.mark.slow
@pytest.mark.parametrize("act", ACTS)
def test_what_does_not_fit_is_refused(act: str, tmp_path: Path) -> None:
    problem = f"PROBLEM = {PROBLEM!r}\nproblem = parse_problem(PROBLEM, name='L1/large', path=Path('large.py'))\n"
    done = subprocess.run(
        [sys.executable, "-c", BEGIN + problem + ACTS[act]],
        capture_output=True,
        text=True,
        timeout=60,
        env={"PATH": "/usr/bin:/bin", "PYTHONPATH": ":".join(sys.path), "KBEVOLVE_CACHE": str(tmp_path)},
    )
    assert done.returncode == 0, done.stderr
    assert "L1/large" in done.stdout
    assert "use smaller sizes" in done.stdout
    assert len(done.stdout.splitlines()) == 1

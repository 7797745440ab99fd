"""Briefs of a matrix product, and the answers of a scripted model."""

import json
from pathlib import Path
from typing import Any

from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Idea, Kernel, Operator, Verdict
from kbevolve.configs.problem import parse_problem
from kbevolve.configs.settings import LLMSettings
from kbevolve.evolve.proposers.base import Brief
from kbevolve.evolve.proposers.codegen.proposer import LLMProposer
from kbevolve.evolve.state.attempts import Failure
from kbevolve.islands.island import Member
from tests.evolve.doubles import ScriptedModel, brief_of

PROBLEM = parse_problem(
    '''"""Square matrix product."""

import torch

N = 4096

CPU_SIZES = {"N": 512}


class Model(torch.nn.Module):
    def forward(self, A, B):
        return A @ B


def get_inputs():
    return [torch.randn(N, N), torch.randn(N, N)]


def get_init_inputs():
    return []
''',
    name="L1/matmul",
    path=Path("matmul.py"),
)


PARENT = '''import torch

SOURCE = r"""
#define TILE 8  // tune: 4, 8, 16
extern "C" void matmul(const float* A, const float* B, float* C, long n) {
  for (long i = 0; i < n; i++) {}
}
"""


class ModelNew(torch.nn.Module):
    def forward(self, A, B):
        return A
'''


CHILD = PARENT.replace("i++", "i += TILE")


OTHER = PARENT.replace("TILE", "WIDTH")


REFERENCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, A, B):\n        return A @ B\n"


TRITON = "import triton\n\n\n@triton.jit\ndef k(): pass\n\n\nclass ModelNew:\n    pass\n"


IDEAS = json.dumps(
    [{"title": "Larger tiles", "mechanism": "Fewer loads.", "technique": "block tiling", "expected_gain": "1.5x"}]
)


DIFF = """I step by tiles.

<<<<<<< SEARCH
  for (long i = 0; i < n; i++) {}
=======
  for (long i = 0; i < n; i += TILE) {}
>>>>>>> REPLACE
"""


BROKEN = DIFF.replace("i < n; i++", "i < m; i++")


WHOLE = f"```python\n{CHILD}```"


def member(source: str, speedup: float = 1.83) -> Member:
    kernel = Kernel.from_source(source)
    return Member(kernel=kernel, evaluation=evaluation(kernel, Verdict.CORRECT, speedup=speedup), niche="m0")


def evaluation(kernel: Kernel, verdict: Verdict, *, message: str = "", speedup: float | None = None) -> Evaluation:
    return grouped(
        Evaluation,
        kernel=kernel.id,
        problem=PROBLEM.id,
        device="d",
        precision="fp32",
        verdict=verdict,
        message=message,
        speedup=speedup,
        speedup_low=speedup and speedup - 0.03,
        speedup_high=speedup and speedup + 0.03,
        time_ms=speedup and 2.675,
    )


def failure(source: str, verdict: Verdict, message: str, idea: Idea | None = None) -> Failure:
    kernel = Kernel.from_source(source)
    return Failure(kernel=kernel, evaluation=evaluation(kernel, verdict, message=message), idea=idea)


def brief(operator: Operator, *sources: str, **changes: Any) -> Brief:
    task = {"problem": PROBLEM, "device": "Xeon, 2 cores, avx512f"}
    return brief_of(operator, *map(member, sources or (PARENT,)), **{"seed": 7} | task | changes)


def proposer(model: ScriptedModel, **changes: Any) -> LLMProposer:
    return LLMProposer(model, LLMSettings.model_validate({"model": "m", **changes}))


def script(model: ScriptedModel, *answers: str) -> None:
    for answer in answers:
        model.say(answer)

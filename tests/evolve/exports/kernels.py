"""A measured kernel for the tests of formats: two inputs, two outputs, weights and buffers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from kbevolve.archive.export import exported_source
from kbevolve.archive.parts import grouped
from kbevolve.archive.records import Evaluation, Kernel, Run, Verdict
from kbevolve.configs.problem import parse_problem
from kbevolve.evaluators.device.devices import Device
from kbevolve.evolve.exports.measured import MeasuredKernel

PROBLEM = """
import torch
from torch import nn

ROWS = 4096
CPU_SIZES = {"ROWS": 6}


class Model(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.linear = nn.Linear(features, 5)
        self.norm = nn.BatchNorm1d(5)
        self.register_buffer("shift", torch.ones(5), persistent=False)

    def forward(self, x, scale):
        return torch.relu(self.norm(self.linear(x)) * scale + self.shift), x


def get_inputs():
    return [torch.randn(ROWS, 8), torch.rand(5)]


def get_init_inputs():
    return [8]
"""
KERNEL = """
import torch
from torch import nn

CALLS = []


class ModelNew(nn.Module):
    def __init__(self, features: int):
        super().__init__()
        self.linear = nn.Linear(features, 5)
        self.norm = nn.BatchNorm1d(5)

    def forward(self, x, scale):
        CALLS.append(x.shape)
        gain = self.norm.weight * torch.rsqrt(self.norm.running_var + self.norm.eps)
        weight = self.linear.weight * gain[:, None]
        bias = (self.linear.bias - self.norm.running_mean) * gain + self.norm.bias
        return torch.relu((x @ weight.T + bias) * scale + 1), x
"""
RUN = Run(id="own-1", problem_name="own/Fused.py", problem="0123", device="cpu/x", seed=3, settings="{}")
EVALUATION = grouped(Evaluation,
    kernel="k", problem="0123", device="cpu/x", precision="fp32", verdict=Verdict.CORRECT, error=4.9e-6,
    time_ms=0.5, reference_ms=2.0, speedup=4.0, speedup_low=3.9, speedup_high=4.1,
)  # fmt: skip


def measured(**changes: Any) -> MeasuredKernel:
    kernel = Kernel.from_source(KERNEL)
    evaluation = changes.pop("evaluation", EVALUATION)
    text = exported_source(
        kernel, evaluation, run=RUN, device="D", line=(), speedups={}, command="kbevolve evaluate kernel.py",
        moment=datetime(2026, 11, 21, tzinfo=UTC),
    )  # fmt: skip
    return MeasuredKernel(
        kernel=kernel, problem=parse_problem(PROBLEM, name="own/Fused.py", path=Path("own/Fused.py")), run=RUN,
        device=Device(type="cpu", index=0, fingerprint="cpu/x", description="D"), evaluation=evaluation, text=text,
        output_name="fast_op", **changes,
    )  # fmt: skip

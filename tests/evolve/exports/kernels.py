"""A measured kernel for the tests of formats: two inputs, two outputs, weights and buffers."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import torch

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
#: A problem without weights, with one input.
PLAIN = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)


def get_inputs():
    return [torch.randn(6, 9)]


def get_init_inputs():
    return []
"""
PLAIN_KERNEL = """
import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        powers = torch.exp(x - x.amax(-1, keepdim=True))
        return powers / powers.sum(-1, keepdim=True)
"""
RUN = Run(id="own-1", problem_name="own/Fused.py", problem="0123", device="cpu/x", seed=3, settings="{}")
EVALUATION = grouped(Evaluation,
    kernel="k", problem="0123", device="cpu/x", precision="fp32", verdict=Verdict.CORRECT, error=4.9e-6,
    time_ms=0.5, reference_ms=2.0, speedup=4.0, speedup_low=3.9, speedup_high=4.1,
)  # fmt: skip


GPU = Device(
    type="cuda", index=0, fingerprint="cuda/NVIDIA H100 80GB HBM3/sm_90/torch 2.13.0/CUDA 13.0", description="An H100"
)  # fmt: skip


def measured(*, source: str = KERNEL, problem: str = PROBLEM, **changes: Any) -> MeasuredKernel:
    kernel = Kernel.from_source(source)
    evaluation = changes.pop("evaluation", EVALUATION)
    text = exported_source(
        kernel, evaluation, run=RUN, device="D", line=(), speedups={}, command="kbevolve evaluate kernel.py",
        moment=datetime(2026, 11, 21, tzinfo=UTC),
    )  # fmt: skip
    return MeasuredKernel(
        kernel=kernel, problem=parse_problem(problem, name="own/Fused.py", path=Path("own/Fused.py")), run=RUN,
        device=changes.pop("device", Device(type="cpu", index=0, fingerprint="cpu/x", description="D")),
        evaluation=evaluation, text=text, output_name="fast_op", **changes,
    )  # fmt: skip


def reference_of(found: MeasuredKernel) -> tuple[torch.nn.Module, list[Any]]:
    """The reference with random weights, and inputs for it."""
    namespace: dict[str, Any] = {"__name__": "reference"}
    exec(found.reference, namespace)
    model: torch.nn.Module = namespace["Model"](*namespace["get_init_inputs"]()).eval()
    model.load_state_dict({name: torch.rand_like(tensor.float()) for name, tensor in model.state_dict().items()})
    return model, namespace["get_inputs"]()


def weights_of(model: torch.nn.Module) -> dict[str, torch.Tensor]:
    """Its floating-point parameters and persistent buffers, by name."""
    return {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}

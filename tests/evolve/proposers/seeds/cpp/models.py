"""Small models as problem files, one or more for each template: name -> (forward, inputs, constructor)."""

N = "torch.randn"

#: Sizes that no vector, tile or block divides.
MODELS: dict[str, tuple[str, str, str]] = {
    "scaled relu": ("torch.relu(x) * 2 + 1", f"{N}(33, 57)", ""),
    "broadcast": (
        "torch.sigmoid(x) * self.w.view(1, -1, 1, 1) + self.b",
        f"{N}(3, 5, 7, 9)",
        "self.w, self.b = nn.Parameter(torch.randn(5)), nn.Parameter(torch.randn(9))",
    ),
    "activations": (
        "F.mish(F.gelu(F.silu(F.elu(F.leaky_relu(x))))) + F.softplus(x).clamp(0.1, 2) + F.hardswish(x) * x.abs()",
        f"{N}(1000)",
        "",
    ),
    "more activations": (
        "torch.tanh(F.selu(x)) + F.hardsigmoid(x) + F.gelu(x, approximate='tanh') + torch.erf(x) + F.relu6(x * 4)",
        f"{N}(1000)",
        "",
    ),
    "arithmetic": ("(1 - x) / (x.square() + 1).rsqrt() + torch.log(x.abs() + 1) - x.exp() ** -1", f"{N}(1000)", ""),
    "masks": ("torch.where(x > 0, x, x * x).masked_fill(x.eq(0), 3)", f"{N}(77)", ""),
    "batch norm": ("F.relu(self.n(x))", f"{N}(3, 5, 7, 9)", "self.n = nn.BatchNorm2d(5)"),
    "transposed": ("torch.tanh(x.transpose(1, 2) + 1)", f"{N}(3, 5, 7)", ""),
    "softmax of rows": ("torch.softmax(x, -1) * 2", f"{N}(7, 1031)", ""),
    "softmax of channels": ("torch.softmax(x, 1)", f"{N}(3, 65, 7, 9)", ""),
    "log-softmax of columns": ("F.log_softmax(x, dim=0)", f"{N}(65, 301)", ""),
    "layer norm, residual": ("self.n(x) + x", f"{N}(4, 6, 70)", "self.n = nn.LayerNorm((6, 70))"),
    "long layer norm": ("self.n(x + 100)", f"{N}(1, 6, 7000)", "self.n = nn.LayerNorm((6, 7000))"),
    "group norm": ("torch.relu(self.n(x))", f"{N}(3, 12, 5, 7)", "self.n = nn.GroupNorm(3, 12)"),
    "instance norm": ("self.n(x)", f"{N}(3, 12, 5, 7)", "self.n = nn.InstanceNorm2d(12)"),
    "RMS norm": ("x / torch.sqrt(torch.mean(x ** 2, dim=1, keepdim=True) + 1e-5)", f"{N}(3, 12, 5, 7)", ""),
    "norm of rows": ("x / torch.norm(x, p=2, dim=1, keepdim=True)", f"{N}(13, 50)", ""),
    "mean norm": ("x / torch.mean(torch.abs(x), dim=1, keepdim=True)", f"{N}(13, 50)", ""),
    "sum of columns": ("x.sum(1)", f"{N}(3, 131, 301)", ""),
    "sum of all": ("torch.relu(x).sum() + 1", f"{N}(131, 301)", ""),
    "mean of squares": ("torch.mean(x * x, dim=-1, keepdim=True) + 1", f"{N}(13, 5, 301)", ""),
    "largest": ("torch.max(x, dim=1)[0] - torch.amin(x, dim=1)", f"{N}(13, 5, 301)", ""),
    "product of rows": ("torch.prod(x, dim=1)", f"{N}(13, 9)", ""),
    "log-sum-exp": ("torch.logsumexp(x, dim=1, keepdim=True)", f"{N}(13, 50)", ""),
    "mean squared error": ("torch.mean((x - y) ** 2)", f"{N}(130, 50), {N}(130, 50)", ""),
    "smooth L1": ("F.smooth_l1_loss(x, y)", f"{N}(130, 50), {N}(130, 50)", ""),
    "global pool": ("F.adaptive_avg_pool2d(torch.relu(x), 1) * 3", f"{N}(3, 12, 5, 7)", ""),
    "max pool": ("torch.relu(F.max_pool2d(x, 3, 2, 1))", f"{N}(3, 6, 17, 19)", ""),
    "max pool, a part behind": ("F.max_pool2d(x, 2, ceil_mode=True)", f"{N}(3, 6, 17, 19)", ""),
    "max pool, dilated": ("F.max_pool1d(x, 4, 1, padding=2, dilation=3)", f"{N}(3, 6, 170)", ""),
    "max pool 3d": ("F.max_pool3d(x, 3, 2, padding=1) + 1", f"{N}(3, 6, 7, 9, 8)", ""),
    "mean pool": ("F.avg_pool2d(x, 3, stride=2, padding=1) * y", f"{N}(3, 6, 17, 19), {N}(6, 1, 1)", ""),
    "adaptive pool": ("F.adaptive_avg_pool2d(x, (4, 2))", f"{N}(3, 6, 16, 18)", ""),
    "linear": ("torch.relu(self.l(x)) * y", f"{N}(5, 37, 53), {N}(71)", "self.l = nn.Linear(53, 71)"),
    "linear, then a sum": ("torch.relu(self.l(x)).sum(1)", f"{N}(37, 53)", "self.l = nn.Linear(53, 71)"),
    "convolution, then a mean": (
        "torch.relu(self.c(x)).mean((2, 3))",
        f"{N}(3, 5, 17, 19)",
        "self.c = nn.Conv2d(5, 9, 3)",
    ),
    "product": ("x @ y", f"{N}(37, 53), {N}(53, 71)", ""),
    "product, both turned": ("x.T @ y.T", f"{N}(53, 37), {N}(71, 53)", ""),
    "products": ("torch.bmm(x, y) + 1", f"{N}(6, 37, 53), {N}(6, 53, 71)", ""),
    "products of heads": ("torch.matmul(x, y.transpose(-1, -2)) * 0.5", f"{N}(2, 3, 37, 53), {N}(2, 3, 71, 53)", ""),
    "einsum": ("torch.einsum('bijl,lk->bijk', x, y)", f"{N}(2, 3, 7, 53), {N}(53, 71)", ""),
    "convolution": (
        "torch.relu(self.c(x)) + self.b",
        f"{N}(3, 5, 17, 19)",
        "self.c, self.b = nn.Conv2d(5, 9, 3, stride=2, padding=1), nn.Parameter(torch.randn(9, 1, 1))",
    ),
    "convolution 1x1": ("self.c(x)", f"{N}(3, 5, 17, 19)", "self.c = nn.Conv2d(5, 9, 1, bias=False)"),
    "convolution 1d": ("self.c(x)", f"{N}(3, 5, 170)", "self.c = nn.Conv1d(5, 9, 5, dilation=2, stride=3)"),
    "convolution 3d": (
        "self.c(x).tanh()",
        f"{N}(2, 5, 7, 9, 8)",
        "self.c = nn.Conv3d(5, 9, (3, 2, 1), padding=(1, 0, 1))",
    ),
    "convolution in groups": ("self.c(x)", f"{N}(3, 6, 17, 19)", "self.c = nn.Conv2d(6, 12, 3, groups=2)"),
    "depthwise": (
        "torch.relu(self.c(x))",
        f"{N}(3, 6, 17, 19)",
        "self.c = nn.Conv2d(6, 6, (3, 5), stride=2, padding=(1, 2), groups=6)",
    ),
    "few channels": (
        "self.c(x)",
        f"{N}(3, 6, 1, 19)",
        "self.c = nn.Conv2d(6, 9, (1, 5), dilation=2, groups=3, bias=False)",
    ),
    "transposed convolution": (
        "torch.sigmoid(self.c(x)) * y",
        f"{N}(3, 5, 7, 9), {N}(9, 1, 1)",
        "self.c = nn.ConvTranspose2d(5, 9, 3)",
    ),
    "transposed convolution, step 2": (
        "torch.sigmoid(self.c(x))",
        f"{N}(3, 5, 7, 9)",
        "self.c = nn.ConvTranspose2d(5, 9, 3, stride=2, padding=1, output_padding=1)",
    ),
    "transposed convolution, gaps": (
        "self.c(x) + 1",
        f"{N}(3, 5, 70)",
        "self.c = nn.ConvTranspose1d(5, 9, 2, stride=4, dilation=3)",
    ),
    "transposed convolution 3d": (
        "self.c(x)",
        f"{N}(2, 6, 4, 5, 6)",
        "self.c = nn.ConvTranspose3d(6, 8, (3, 5, 3), stride=(2, 2, 1), padding=(1, 2, 1), groups=2)",
    ),
    "residual": (
        "torch.relu(self.d(self.c(x)) + self.c(x))",
        f"{N}(3, 5, 17, 19)",
        "self.c, self.d = nn.Conv2d(5, 9, 3, padding=1), nn.Conv2d(9, 9, 3, padding=1)",
    ),
    "perceptron": (
        "self.s(x)",
        f"{N}(30, 50)",
        "self.s = nn.Sequential(nn.Linear(50, 60), nn.ReLU(), nn.Linear(60, 20), nn.Softmax(1))",
    ),
    "two results, one by torch": ("(torch.flip(torch.relu(x), (1,)) * 2, torch.relu(x) - 1)", f"{N}(13, 50)", ""),
    "prefix sums": ("torch.relu(torch.cumsum(x, 1) - 1)", f"{N}(13, 1050)", ""),
    "prefix sums of columns": ("torch.cumsum(torch.relu(x), 1) * x", f"{N}(3, 131, 301)", ""),
    "prefix products": ("torch.cumprod(x, dim=-1)", f"{N}(13, 70)", ""),
}


def problem_text(forward: str, inputs: str, constructor: str = "") -> str:
    """A problem file."""
    second = ", y" if inputs.count("torch.randn") > 1 else ""
    return f"""from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import nn


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        {constructor or "pass"}

    def forward(self, x{second}):
        return {forward}


def get_inputs():
    return [{inputs}]


def get_init_inputs():
    return []
"""

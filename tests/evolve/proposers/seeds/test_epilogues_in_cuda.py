"""Epilogues in CUDA compute what torch does: they are C++ of one number, so a compiler for CPUs can say."""

import ctypes
import subprocess
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn
from torch.nn import functional as F

from kbevolve.configs.templates import template
from kbevolve.evolve.proposers.seeds.epilogues import Epilogue
from tests.evolve.proposers.seeds.test_fusion import Chain, traced

Tensor = torch.Tensor
COLUMN, WHOLE, ONE = torch.randn(6), torch.randn(5, 6), torch.randn(1)
FUNCTIONS: list[Callable[[Tensor], Tensor]] = [
    F.gelu,
    lambda y: F.gelu(y, approximate="tanh"),
    F.mish,
    F.silu,
    F.hardswish,
    F.hardsigmoid,
    F.relu6,
    F.elu,
    F.selu,
    lambda y: F.celu(y, 0.7),
    lambda y: F.softplus(y, beta=2.0, threshold=1.0),
    lambda y: F.leaky_relu(y, 0.2) * ONE - COLUMN,
    lambda y: torch.tanh(y) + torch.erf(y) / 3 + torch.exp(-y.abs()),
    lambda y: torch.log(y.abs() + 1) + torch.log1p(y * y) + torch.sqrt(y.abs()) + torch.rsqrt(y * y + 1),
    lambda y: torch.where(y > 0.5, y * COLUMN + 1e-05, WHOLE).clamp(-1.0, float("inf")),
    lambda y: y.masked_fill(y < 0, float("-inf")).clamp_min(-3e38),
    lambda y: 1 - y.pow(3) + torch.maximum(y, WHOLE) - torch.expm1(y).sigmoid(),
]
SOURCE = """
#include <cmath>
#include <cstdint>
#include <cstring>
#define __device__
#define __forceinline__ inline
static inline float __int_as_float(int32_t bits) { float x; memcpy(&x, &bits, 4); return x; }
"""
FUNCTION = """
extern "C" void epilogue_number_%d(float* values, const float* e0, const float* e1, const float* e2, const float* e3,
                                   int64_t count, int columns) {
  for (int64_t at = 0; at < count; at++) {
    float value = values[at];
    const int column = at %% columns;
    %s
    values[at] = value;
  }
}
"""


#: The only instruction of a GPU there.
DIVISION = 'asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));'


def compiled(epilogues: list[Epilogue], folder: Path) -> ctypes.CDLL:
    functions = template("functions.cu")
    assert functions.count("asm") == functions.count(DIVISION) == 1
    text = SOURCE + functions.replace(DIVISION, "r = x / y;")
    text += "".join(FUNCTION % (number, "\n".join(one.cuda)) for number, one in enumerate(epilogues))
    (folder / "epilogues.cpp").write_text(text)
    command = [
        "g++",
        "-O1",
        "-shared",
        "-fPIC",
        "-Wall",
        "-Werror",
        "-Wno-unused",
        "epilogues.cpp",
        "-o",
        "epilogues.so",
    ]
    subprocess.run(command, cwd=folder, check=True)
    return ctypes.CDLL(str(folder / "epilogues.so"))


def test_an_epilogue_in_cuda_computes_what_torch_does(tmp_path: Path) -> None:
    x, weight = torch.randn(5, 4), torch.randn(4, 6)
    product = x @ weight
    found: list[tuple[Epilogue, list[Tensor], Tensor]] = []
    for after in FUNCTIONS:
        model: nn.Module = Chain(after, weight)
        fused, taken = traced(model, [x])
        assert fused is not None
        (epilogue,) = fused.epilogues
        (call,) = [node for node in fused.graph.graph.nodes if "kbevolve.product" in str(node.target)]
        given = dict(zip((node for node in fused.graph.graph.nodes if node.op == "placeholder"), taken, strict=True))
        extras = [given[one] for one in call.args[-2]]
        found.append((epilogue, extras, after(product)))
    library = compiled([epilogue for epilogue, _, _ in found], tmp_path)
    for number, (epilogue, extras, right) in enumerate(found):
        values = product.detach().clone()
        pointers = [ctypes.c_void_p(one.data_ptr()) for one in (*extras, *4 * (values,))[:4]]
        call = getattr(library, f"epilogue_number_{number}")
        call(ctypes.c_void_p(values.data_ptr()), *pointers, ctypes.c_int64(values.numel()), 6)
        torch.testing.assert_close(
            values, right.detach(), rtol=2e-6, atol=2e-6, msg=lambda text, e=epilogue: f"{e.cuda}: {text}"
        )

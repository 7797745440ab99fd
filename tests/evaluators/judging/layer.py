"""A problem, kernels for it, and settings under which a judge is quick."""

import textwrap
from collections.abc import Callable
from pathlib import Path

from kbevolve.archive.records import Evaluation
from kbevolve.configs.problem import Problem, parse_problem
from kbevolve.configs.settings import EvaluationSettings

PROBLEM = """
import torch
from torch import nn

ROWS, COLUMNS = 48, 64


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        return torch.relu(x @ self.weight)


def get_inputs():
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs():
    return [COLUMNS]
"""


#: A candidate with one part to be replaced.
HONEST = """
import os, sys, time
import torch
from torch import nn


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        {body}
"""


CPP = r'''
import ctypes
import torch
from torch import nn
from torch.utils.cpp_extension import load

SOURCE = r"""
extern "C" void layer(const float* x, const float* w, float* y, long rows, long columns) {
  for (long i = 0; i < rows; i++)
    for (long j = 0; j < columns; j++) {
      float sum = 0;
      for (long k = 0; k < columns; k++) sum += x[i * columns + k] * w[k * columns + j];
      y[i * columns + j] = sum > 0 ? sum : 0;
    }
}
"""
with open("layer.cpp", "w") as file:
    file.write(SOURCE)
library = ctypes.CDLL(load("layer", ["layer.cpp"], is_python_module=False))


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(columns, columns))

    def forward(self, x):
        y = torch.empty(x.shape)
        pointers = [ctypes.c_void_p(tensor.data_ptr()) for tensor in (x, self.weight, y)]
        library.layer(*pointers, ctypes.c_long(x.shape[0]), ctypes.c_long(x.shape[1]))
        return y
'''


RIGHT = "return torch.relu(x @ self.weight)"


SETTINGS = EvaluationSettings(
    trials=4,
    warmup=1,
    rounds=3,
    calls_per_round=3,
    timing_seconds=0.3,
    build_seconds=60,
    import_seconds=4,
    run_seconds=4,
    total_seconds=60,
)


Evaluate = Callable[[str], Evaluation]


def problem_of(source: str = PROBLEM) -> Problem:
    return parse_problem(source, name="tests/layer", path=Path("layer.py"))


def candidate(body: str, *, first: str = "") -> str:
    return first + HONEST.format(body=textwrap.indent(textwrap.dedent(body).strip(), " " * 8).strip())

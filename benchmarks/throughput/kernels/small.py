"""Twelve children that need no GPU, to try the benchmark itself out: C++ in both lanes, and plain torch."""

from benchmarks.throughput.child import Fate, Kind, edited
from benchmarks.throughput.kernels.family import Family, Plan
from benchmarks.throughput.shells import Interface
from kbevolve.archive.records import Verdict

_MATMUL = Interface(
    fast_model="""LIBRARY.launch.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty(M, N)
        LIBRARY.launch(A.data_ptr(), B.data_ptr(), C.data_ptr(), M, N, K)
        return C
""",
    entry="""torch::Tensor matmul(torch::Tensor A, torch::Tensor B) {
  auto C = torch::empty({A.size(0), B.size(1)}, A.options());
  launch(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), A.size(0), B.size(1), A.size(1));
  return C;
}""",
    prototype="torch::Tensor matmul(torch::Tensor A, torch::Tensor B);",
    inline_model="""
class ModelNew(nn.Module):
    def forward(self, A, B):
        return @NAME@.matmul(A.contiguous(), B.contiguous())
""",
)

#: Rows of B are read in order, so that the compiler uses vectors.
_ROWWISE = """
@LINKAGE@ int launch(const float* A, const float* B, float* C, int M, int N, int K) {
  for (int m = 0; m < M; m++) {
    float* row = C + m * N;
    for (int n = 0; n < N; n++) row[n] = 0;
    for (int k = 0; k < K; k++)
      for (int n = 0; n < N; n++) row[n] += A[m * K + k] * B[k * N + n];
  }
  return 0;
}
"""

#: Every entry on its own, B by its columns, with a division to keep the compiler from making it fast.
_ENTRYWISE = """
@LINKAGE@ int launch(const float* A, const float* B, float* C, int M, int N, int K) {
  for (int n = 0; n < N; n++)
    for (int m = 0; m < M; m++) {
      double sum = 0;
      for (int k = 0; k < K; k++) sum += (double)A[m * K + k] / 3.0 * (3.0 * B[k * N + n]);
      C[m * N + n] = (float)sum;
    }
  return 0;
}
"""

_SOFTMAX = Interface(
    fast_model="",
    entry="""torch::Tensor softmax(torch::Tensor x) {
  auto y = torch::empty_like(x);
  launch(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1));
  return y;
}""",
    prototype="torch::Tensor softmax(torch::Tensor x);",
    inline_model="""
class ModelNew(nn.Module):
    def forward(self, x):
        return @NAME@.softmax(x.contiguous())
""",
)

_ROWS = """
#include <math.h>

@LINKAGE@ int launch(const float* x, float* y, int rows, int columns) {
  for (int r = 0; r < rows; r++) {
    const float* in = x + r * columns;
    float* out = y + r * columns;
    float top = in[0];
    for (int c = 1; c < columns; c++) top = in[c] > top ? in[c] : top;
    double sum = 0;
    for (int c = 0; c < columns; c++) sum += exp((double)in[c] - top);
    for (int c = 0; c < columns; c++) out[c] = (float)(exp((double)in[c] - top) / sum);
  }
  return 0;
}
"""

_TORCH = '''"""@TITLE@"""

import torch
from torch import nn


class ModelNew(nn.Module):
    def forward(self, x):
        {body}
'''


def _torch(body: str) -> str:
    return _TORCH.replace("{body}", body)


_RIGHT = "e = torch.exp(x - x.amax(dim=1, keepdim=True))\n        return e / e.sum(dim=1, keepdim=True)"

FAMILIES = (
    Family(
        problem="L1/matmul",
        label="matmul",
        interface=_MATMUL,
        cuda=False,
        plans=(
            Plan(Kind.FAST, Fate.CORRECT, "rows of B in order", _ROWWISE),
            Plan(Kind.FAST, Fate.WRONG, "leaves the last k out", edited(_ROWWISE, ("k < K;", "k < K - 1;"))),
            Plan(
                Kind.FAST,
                Fate.FAILING,
                "reads address zero",
                edited(_ROWWISE, ("float* row = C + m * N;", "float* row = C + m * N;\n    A = nullptr;")),
                Verdict.CRASHED,
            ),
            Plan(Kind.FAST, Fate.SLOW, "entry by entry, with divisions", _ENTRYWISE),
            Plan(Kind.INLINE, Fate.CORRECT, "rows of B in order", edited(_ROWWISE, ("row[n] = 0;", "row[n] = 0.0f;"))),
            Plan(
                Kind.INLINE,
                Fate.FAILING,
                "forgets a semicolon",
                edited(_ROWWISE, ("float* row = C + m * N;", "float* row = C + m * N")),
                Verdict.BUILD_FAILED,
            ),
        ),
    ),
    Family(
        problem="L1/softmax",
        label="softmax",
        interface=_SOFTMAX,
        cuda=False,
        plans=(
            Plan(Kind.TORCH, Fate.CORRECT, "three operations of torch", _torch(_RIGHT)),
            Plan(
                Kind.TORCH,
                Fate.WRONG,
                "sums over the wrong dimension",
                _torch(_RIGHT.replace("sum(dim=1", "sum(dim=0")),
            ),
            Plan(
                Kind.TORCH,
                Fate.FAILING,
                "misspells an operation",
                _torch("return torch.sofmax(x, dim=1)"),
                Verdict.CRASHED,
            ),
            Plan(
                Kind.TORCH,
                Fate.SLOW,
                "row by row, in a loop of Python",
                _torch("return torch.stack([torch.softmax(row, dim=0) for row in x])"),
            ),
            Plan(Kind.INLINE, Fate.WRONG, "does not divide by the sum", edited(_ROWS, (" / sum)", ")"))),
            Plan(Kind.INLINE, Fate.SLOW, "in double precision, entry by entry", _ROWS),
        ),
    ),
)

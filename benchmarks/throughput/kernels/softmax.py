"""Children for L1/softmax: softmax over the rows of a wide matrix."""

from benchmarks.throughput.child import Fate, Kind, declared, edited
from benchmarks.throughput.kernels.family import Family, Plan
from benchmarks.throughput.shells import Interface, filled
from kbevolve.archive.records import Verdict

INTERFACE = Interface(
    fast_model="""LIBRARY.launch.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] * 2 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.launch(x.data_ptr(), y.data_ptr(), x.shape[0], x.shape[1], stream)
        if status:
            raise RuntimeError(f"softmax: CUDA error {status}")
        return y
""",
    entry="""torch::Tensor softmax_cuda(torch::Tensor x) {
  auto y = torch::empty_like(x);
  launch(x.data_ptr<float>(), y.data_ptr<float>(), x.size(0), x.size(1), 0);
  return y;
}""",
    prototype="torch::Tensor softmax_cuda(torch::Tensor x);",
    inline_model="""
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.module = @NAME@

    def forward(self, x):
        return self.module.softmax_cuda(x.contiguous())
""",
)

_REDUCTIONS = """
#include <math.h>

__device__ float block_max(float value, float* shared) {
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = shared[threadIdx.x % (THREADS / 32)];
  for (int step = 16; step > 0; step /= 2) value = fmaxf(value, __shfl_xor_sync(0xffffffff, value, step));
  return value;
}

__device__ float block_sum(float value, float* shared) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < THREADS / 32 ? shared[threadIdx.x % 32] : 0.0f;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  return value;
}
"""

_LAUNCH = """
@LINKAGE@ int launch(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
  softmax_kernel<<<rows, THREADS, 0, stream>>>(x, y, rows, columns);
  return cudaGetLastError();
}
"""

#: One block a row; maximum and sum in one pass, four floats at a time.
_ONLINE = (
    _REDUCTIONS
    + """
__global__ void __launch_bounds__(THREADS) softmax_kernel(const float* __restrict__ x, float* __restrict__ y, int rows,
                                                          int columns) {
  __shared__ float shared[32];
  const float4* in = reinterpret_cast<const float4*>(x + (size_t)blockIdx.x * columns);
  float4* out = reinterpret_cast<float4*>(y + (size_t)blockIdx.x * columns);
  float top = -INFINITY, sum = 0.0f;
  for (int i = threadIdx.x; i < columns / 4; i += THREADS) {
    const float4 v = in[i];
    const float larger = fmaxf(fmaxf(fmaxf(v.x, v.y), fmaxf(v.z, v.w)), top);
    sum = sum * expf(top - larger);
    sum += expf(v.x - larger) + expf(v.y - larger) + expf(v.z - larger) + expf(v.w - larger);
    top = larger;
  }
  const float row_top = block_max(top, shared);
  const float scale = 1.0f / block_sum(sum * expf(top - row_top), shared);
  for (int i = threadIdx.x; i < columns / 4; i += THREADS) {
    const float4 v = in[i];
    out[i] = make_float4(expf(v.x - row_top) * scale, expf(v.y - row_top) * scale, expf(v.z - row_top) * scale,
                         expf(v.w - row_top) * scale);
  }
}
"""
    + _LAUNCH
)

#: One block a row, three passes.
_THREE_PASSES = (
    _REDUCTIONS
    + """
__global__ void softmax_kernel(const float* x, float* y, int rows, int columns) {
  __shared__ float shared[32];
  const float* in = x + (size_t)blockIdx.x * columns;
  float* out = y + (size_t)blockIdx.x * columns;
  float top = -INFINITY;
  for (int i = threadIdx.x; i < columns; i += THREADS) top = fmaxf(top, in[i]);
  top = block_max(top, shared);
  float sum = 0.0f;
  for (int i = threadIdx.x; i < columns; i += THREADS) sum += expf(in[i] - top);
  sum = block_sum(sum, shared);
  for (int i = threadIdx.x; i < columns; i += THREADS) out[i] = expf(in[i] - top) / sum;
}
"""
    + _LAUNCH
)

#: One thread a row. It adds up in pieces: of 65536 terms added one by one to the largest, the small ones are lost.
_ROW_PER_THREAD = """
#include <math.h>

__global__ void softmax_kernel(const float* x, float* y, int rows, int columns) {
  const int row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const float* in = x + (size_t)row * columns;
  float* out = y + (size_t)row * columns;
  float top = in[0];
  for (int i = 1; i < columns; i++) top = fmaxf(top, in[i]);
  float sum = 0.0f;
  for (int start = 0; start < columns; start += 256) {
    float piece = 0.0f;
    for (int i = start; i < start + 256 && i < columns; i++) piece += expf(in[i] - top);
    sum += piece;
  }
  for (int i = 0; i < columns; i++) out[i] = expf(in[i] - top) / sum;
}

@LINKAGE@ int launch(const float* x, float* y, int rows, int columns, cudaStream_t stream) {
  softmax_kernel<<<(rows + THREADS - 1) / THREADS, THREADS, 0, stream>>>(x, y, rows, columns);
  return cudaGetLastError();
}
"""

_TRITON = '''"""@TITLE@"""

import torch
import triton
import triton.language as tl
from torch import nn

BLOCK = @BLOCK@


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * columns
    y_ptr += row * columns
    offsets = tl.arange(0, BLOCK)
@BODY@

class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        softmax_kernel[(x.shape[0],)](x, y, x.shape[1], BLOCK=BLOCK, num_warps=@WARPS@)
        return y
'''

_TRITON_ONLINE = """    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        v = tl.load(x_ptr + start + offsets)
        larger = tl.maximum(top, v)
        total = total * tl.exp(top - larger) + tl.exp(v - larger)
        top = larger
    row_top = tl.max(top, 0)
    scale = 1.0 / tl.sum(total * tl.exp(top - row_top), 0)
    for start in range(0, columns, BLOCK):
        v = tl.load(x_ptr + start + offsets)
        tl.store(y_ptr + start + offsets, tl.exp(v - row_top) * scale)
"""

_TRITON_THREE_PASSES = """    top = tl.full((BLOCK,), float("-inf"), tl.float32)
    for start in range(0, columns, BLOCK):
        top = tl.maximum(top, tl.load(x_ptr + start + offsets))
    row_top = tl.max(top, 0)
    total = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, columns, BLOCK):
        total += tl.exp(tl.load(x_ptr + start + offsets) - row_top)
    denominator = tl.sum(total, 0)
    for start in range(0, columns, BLOCK):
        numerator = tl.exp(tl.load(x_ptr + start + offsets) - row_top)
        tl.store(y_ptr + start + offsets, numerator / denominator)
"""

#: 128 rows in a program, one column of them at a time: no two lanes read neighbouring words. It adds up in pieces too.
_TRITON_COLUMNWISE = '''"""@TITLE@"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def softmax_kernel(x_ptr, y_ptr, columns, ROWS: tl.constexpr):
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    x_ptrs = x_ptr + rows.to(tl.int64) * columns
    y_ptrs = y_ptr + rows.to(tl.int64) * columns
    top = tl.full((ROWS,), float("-inf"), tl.float32)
    for column in range(0, columns):
        top = tl.maximum(top, tl.load(x_ptrs + column))
    total = tl.zeros((ROWS,), tl.float32)
    for start in range(0, columns, 256):
        piece = tl.zeros((ROWS,), tl.float32)
        for column in range(start, tl.minimum(start + 256, columns)):
            piece += tl.exp(tl.load(x_ptrs + column) - top)
        total += piece
    for column in range(0, columns):
        tl.store(y_ptrs + column, tl.exp(tl.load(x_ptrs + column) - top) / total)


class ModelNew(nn.Module):
    def forward(self, x):
        x = x.contiguous()
        y = torch.empty_like(x)
        ROWS = 128
        softmax_kernel[(triton.cdiv(x.shape[0], ROWS),)](x, y, x.shape[1], ROWS=ROWS)
        return y
'''


def _threads(count: int, code: str, *changes: tuple[str, str]) -> str:
    return declared(THREADS=count) + edited(code, *changes)


def _triton(block: str, warps: int, body: str, *changes: tuple[str, str]) -> str:
    return filled(_TRITON, BODY=edited(body, *changes), BLOCK=block, WARPS=warps)


PLANS = (
    Plan(Kind.FAST, Fate.CORRECT, "maximum and sum in one pass, float4, 1024 threads a row", _threads(1024, _ONLINE)),
    Plan(Kind.FAST, Fate.CORRECT, "three passes, 256 threads a row", _threads(256, _THREE_PASSES)),
    Plan(
        Kind.FAST,
        Fate.WRONG,
        "the sum over the block takes the first warp only",
        _threads(
            512,
            _THREE_PASSES,
            ("threadIdx.x % 32 < THREADS / 32 ? shared[threadIdx.x % 32] : 0.0f", "shared[0] / 32.0f"),
        ),
    ),
    Plan(
        Kind.FAST,
        Fate.FAILING,
        "reads far outside: the stride of a row is the size of the whole",
        _threads(512, _ONLINE, ("(x + (size_t)blockIdx.x * columns)", "(x + (size_t)blockIdx.x * rows * columns)")),
        Verdict.CRASHED,
    ),
    Plan(Kind.FAST, Fate.SLOW, "one thread a row, 256 threads a block", _threads(256, _ROW_PER_THREAD)),
    Plan(Kind.INLINE, Fate.CORRECT, "maximum and sum in one pass, float4, 512 threads a row", _threads(512, _ONLINE)),
    Plan(Kind.INLINE, Fate.CORRECT, "three passes, 1024 threads a row", _threads(1024, _THREE_PASSES)),
    Plan(
        Kind.INLINE,
        Fate.WRONG,
        "the running sum is not scaled down when the maximum grows",
        _threads(256, _ONLINE, ("    sum = sum * expf(top - larger);\n", "")),
    ),
    Plan(
        Kind.INLINE,
        Fate.FAILING,
        "calls a function by a name that it has not",
        _threads(512, _THREE_PASSES, ("top = block_max(top, shared);", "top = blockReduceMax(top, shared);")),
        Verdict.BUILD_FAILED,
    ),
    Plan(Kind.INLINE, Fate.SLOW, "one thread a row, 64 threads a block", _threads(64, _ROW_PER_THREAD)),
    Plan(
        Kind.TRITON,
        Fate.CORRECT,
        "maximum and sum in one pass, blocks of 4096",
        _triton("4096", 8, _TRITON_ONLINE),
    ),
    Plan(Kind.TRITON, Fate.CORRECT, "three passes, blocks of 8192", _triton("8192", 8, _TRITON_THREE_PASSES)),
    Plan(
        Kind.TRITON,
        Fate.WRONG,
        "does not divide by the sum",
        _triton("4096", 4, _TRITON_THREE_PASSES, ("numerator / denominator", "numerator")),
    ),
    Plan(
        Kind.TRITON,
        Fate.FAILING,
        "a block of 3072, which is no power of two",
        _triton("3 * 1024", 8, _TRITON_ONLINE),
        Verdict.BUILD_FAILED,
    ),
    Plan(Kind.TRITON, Fate.SLOW, "128 rows a program, column by column", _TRITON_COLUMNWISE),
)

FAMILY = Family(problem="L1/softmax", label="softmax", interface=INTERFACE, plans=PLANS)

"""CUDA and Triton code of the children for L1/layernorm."""

MODEL = """
class ModelNew(nn.Module):
    def __init__(self, normalized_shape):
        super().__init__()
        self.norm = nn.LayerNorm(normalized_shape)

    def forward(self, x):
        x = x.contiguous()
"""

SUM = """
__device__ float block_sum(float value) {
  __shared__ float shared[32];
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  __syncthreads();
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = value;
  __syncthreads();
  value = threadIdx.x % 32 < blockDim.x / 32 ? shared[threadIdx.x % 32] : 0.0f;
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(0xffffffff, value, step);
  return value;
}
"""


#: Parts of each row on their own: sums, then squared differences to the row's mean, then the result.
SPLIT = (
    SUM
    + """
__device__ float row_total(const float* part) {
  float total = 0.0f;
  for (int i = 0; i < SPLITS; i++) total += part[i];
  return total;
}

__global__ void sums(const float* __restrict__ x, float* part, long long width) {
  const int row = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
  const long long share = width / SPLITS;
  const float4* in = reinterpret_cast<const float4*>(x + row * width + split * share);
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < share / 4; i += blockDim.x) {
    const float4 v = in[i];
    sum += (v.x + v.y) + (v.z + v.w);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) part[blockIdx.x] = sum;
}

__global__ void squares(const float* __restrict__ x, const float* part, float* part2, long long width) {
  const int row = blockIdx.x / SPLITS, split = blockIdx.x % SPLITS;
  const long long share = width / SPLITS;
  const float mean = row_total(part + row * SPLITS) / width;
  const float4* in = reinterpret_cast<const float4*>(x + row * width + split * share);
  float sum = 0.0f;
  for (long long i = threadIdx.x; i < share / 4; i += blockDim.x) {
    const float4 v = in[i];
    const float a = v.x - mean, b = v.y - mean, c = v.z - mean, d = v.w - mean;
    sum += (a * a + b * b) + (c * c + d * d);
  }
  sum = block_sum(sum);
  if (threadIdx.x == 0) part2[blockIdx.x] = sum;
}

__global__ void normalise(const float* __restrict__ x, const float* __restrict__ weight, const float* __restrict__ bias,
                          float* __restrict__ y, const float* part, const float* part2, long long width, float eps) {
  const int row = blockIdx.y;
  const float mean = row_total(part + row * SPLITS) / width;
  const float rstd = rsqrtf(row_total(part2 + row * SPLITS) / width + eps);
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= width / 4) return;
  const float4 v = reinterpret_cast<const float4*>(x + row * width)[i];
  const float4 w = reinterpret_cast<const float4*>(weight)[i];
  const float4 b = reinterpret_cast<const float4*>(bias)[i];
  reinterpret_cast<float4*>(y + row * width)[i] =
      make_float4((v.x - mean) * rstd * w.x + b.x, (v.y - mean) * rstd * w.y + b.y, (v.z - mean) * rstd * w.z + b.z,
                  (v.w - mean) * rstd * w.w + b.w);
}

@LINKAGE@ int launch(const float* x, const float* weight, const float* bias, float* y, float* parts, int rows,
                     long long width, float eps, cudaStream_t stream) {
  float* parts2 = parts + rows * SPLITS;
  sums<<<rows * SPLITS, THREADS, 0, stream>>>(x, parts, width);
  squares<<<rows * SPLITS, THREADS, 0, stream>>>(x, parts, parts2, width);
  const dim3 grid((width / 4 + THREADS - 1) / THREADS, rows);
  normalise<<<grid, THREADS, 0, stream>>>(x, weight, bias, y, parts, parts2, width, eps);
  return cudaGetLastError();
}
"""
)


#: One block a row, three passes. Each thread adds up in pieces: of a hundred thousand terms added one by one, the last
#: are rounded at the size of the whole.
BLOCK_PER_ROW = (
    SUM
    + """
constexpr int PIECE = 256;

__global__ void layernorm_kernel(const float* x, const float* weight, const float* bias, float* y, long long width,
                                 float eps) {
  const float* in = x + blockIdx.x * width;
  float* out = y + blockIdx.x * width;
  const long long piece = PIECE * blockDim.x;
  float sum = 0.0f;
  for (long long start = threadIdx.x; start < width; start += piece) {
    float part = 0.0f;
    for (long long i = start; i < width && i < start + piece; i += blockDim.x) part += in[i];
    sum += part;
  }
  const float mean = block_sum(sum) / width;
  float squares = 0.0f;
  for (long long start = threadIdx.x; start < width; start += piece) {
    float part = 0.0f;
    for (long long i = start; i < width && i < start + piece; i += blockDim.x) part += (in[i] - mean) * (in[i] - mean);
    squares += part;
  }
  const float rstd = rsqrtf(block_sum(squares) / width + eps);
  for (long long i = threadIdx.x; i < width; i += blockDim.x) out[i] = (in[i] - mean) * rstd * weight[i] + bias[i];
}

@LINKAGE@ int launch(const float* x, const float* weight, const float* bias, float* y, float* parts, int rows,
                     long long width, float eps, cudaStream_t stream) {
  layernorm_kernel<<<rows, THREADS, 0, stream>>>(x, weight, bias, y, width, eps);
  return cudaGetLastError();
}
"""
)


#: Statistics of each channel alone, as an instance norm has them.
PER_CHANNEL = (
    ("const float* in = x + blockIdx.x * width;", "const float* in = x + blockIdx.x * PLANE;"),
    (
        "float* out = y + blockIdx.x * width;",
        "float* out = y + blockIdx.x * PLANE;\n"
        "  weight += blockIdx.x * PLANE % width;\n"
        "  bias += blockIdx.x * PLANE % width;\n"
        "  width = PLANE;",
    ),
    ("layernorm_kernel<<<rows, THREADS", "layernorm_kernel<<<rows * (width / PLANE), THREADS"),
)


TRITON = (
    '''"""@TITLE@"""

import torch
import triton
import triton.language as tl
from torch import nn

SPLITS = @SPLITS@
BLOCK = @BLOCK@


@triton.jit
def sum_kernel(x_ptr, part_ptr, width, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    share = width // SPLITS
    x_ptr += pid // SPLITS * width + pid % SPLITS * share
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, share, BLOCK):
        acc += tl.load(x_ptr + start + tl.arange(0, BLOCK))
    tl.store(part_ptr + pid, tl.sum(acc, 0))


@triton.jit
def square_kernel(x_ptr, part_ptr, part2_ptr, width, SPLITS: tl.constexpr, BLOCK: tl.constexpr):
    pid = tl.program_id(0).to(tl.int64)
    share = width // SPLITS
    row = pid // SPLITS
    mean = tl.sum(tl.load(part_ptr + row * SPLITS + tl.arange(0, SPLITS)), 0) / width
    x_ptr += row * width + pid % SPLITS * share
    acc = tl.zeros((BLOCK,), tl.float32)
    for start in range(0, share, BLOCK):
        diff = tl.load(x_ptr + start + tl.arange(0, BLOCK)) - mean
        acc += diff * diff
    tl.store(part2_ptr + pid, tl.sum(acc, 0))


@triton.jit
def normalise_kernel(
    x_ptr, w_ptr, b_ptr, y_ptr, part_ptr, part2_ptr, width, eps, SPLITS: tl.constexpr, BLOCK: tl.constexpr
):
    row = tl.program_id(1).to(tl.int64)
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mean = tl.sum(tl.load(part_ptr + row * SPLITS + tl.arange(0, SPLITS)), 0) / width
    var = tl.sum(tl.load(part2_ptr + row * SPLITS + tl.arange(0, SPLITS)), 0) / width
    rstd = 1.0 / tl.sqrt(var + eps)
    v = tl.load(x_ptr + row * width + offsets)
    out = (v - mean) * rstd * tl.load(w_ptr + offsets) + tl.load(b_ptr + offsets)
    tl.store(y_ptr + row * width + offsets, out)

'''
    + MODEL
    + """        w, b = self.norm.weight, self.norm.bias
        width = w.numel()
        rows = x.numel() // width
        y = torch.empty_like(x)
        part, part2 = torch.empty(2, rows, SPLITS, device=x.device)
        sum_kernel[(rows * SPLITS,)](x, part, width, SPLITS, BLOCK, num_warps=@WARPS@)
        square_kernel[(rows * SPLITS,)](x, part, part2, width, SPLITS, BLOCK, num_warps=@WARPS@)
        grid = (triton.cdiv(width, BLOCK), rows)
        normalise_kernel[grid](x, w, b, y, part, part2, width, self.norm.eps, SPLITS, BLOCK, num_warps=@WARPS@)
        return y
"""
)


#: One program of one warp a row; it adds up in pieces too.
TRITON_ROW = (
    '''"""@TITLE@"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def layernorm_kernel(x_ptr, w_ptr, b_ptr, y_ptr, width, eps, BLOCK: tl.constexpr, PIECE: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    x_ptr += row * width
    y_ptr += row * width
    offsets = tl.arange(0, BLOCK)
    acc = tl.zeros((BLOCK,), tl.float32)
    for piece in range(0, width, PIECE):
        part = tl.zeros((BLOCK,), tl.float32)
        for start in range(piece, tl.minimum(piece + PIECE, width), BLOCK):
            part += tl.load(x_ptr + start + offsets)
        acc += part
    mean = tl.sum(acc, 0) / width
    acc = tl.zeros((BLOCK,), tl.float32)
    for piece in range(0, width, PIECE):
        part = tl.zeros((BLOCK,), tl.float32)
        for start in range(piece, tl.minimum(piece + PIECE, width), BLOCK):
            diff = tl.load(x_ptr + start + offsets) - mean
            part += diff * diff
        acc += part
    rstd = 1.0 / tl.sqrt(tl.sum(acc, 0) / width + eps)
    for start in range(0, width, BLOCK):
        v = tl.load(x_ptr + start + offsets)
        out = (v - mean) * rstd * tl.load(w_ptr + start + offsets) + tl.load(b_ptr + start + offsets)
        tl.store(y_ptr + start + offsets, out)

'''
    + MODEL
    + """        y = torch.empty_like(x)
        width = self.norm.weight.numel()
        rows = x.numel() // width
        w, b, eps = self.norm.weight, self.norm.bias, self.norm.eps
        layernorm_kernel[(rows,)](x, w, b, y, width, eps, BLOCK=64, PIECE=1 << 14, num_warps=1)
        return y
"""
)

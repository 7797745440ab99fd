"""Children for L2/gemm_bias_relu: y = relu(x @ weight.T + bias) in fp32."""

from functools import partial

from benchmarks.throughput.child import Fate, Kind, declared, edited
from benchmarks.throughput.kernels.family import Family, Plan
from benchmarks.throughput.kernels.tiles import blocked, tiled
from benchmarks.throughput.shells import Interface
from kbevolve.archive.records import Verdict

_MODEL = """
class ModelNew(nn.Module):
    def __init__(self, in_features, out_features):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x):
        x = x.contiguous()
"""

INTERFACE = Interface(
    fast_model="""LIBRARY.launch.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 3 + [ctypes.c_void_p]

"""
    + _MODEL
    + """        weight = self.gemm.weight
        (M, K), N = x.shape, weight.shape[0]
        y = torch.empty(M, N, device=x.device)
        parts = torch.empty(0, device=x.device)
        pointers = [tensor.data_ptr() for tensor in (x, weight, self.bias, y, parts)]
        status = LIBRARY.launch(*pointers, M, N, K, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"gemm_bias_relu: CUDA error {status}")
        return y
""",
    entry="""torch::Tensor gemm_bias_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  const int M = x.size(0), K = x.size(1), N = weight.size(0);
  auto y = torch::empty({M, N}, x.options());
  launch(x.data_ptr<float>(), weight.data_ptr<float>(), bias.data_ptr<float>(), y.data_ptr<float>(), nullptr, M, N, K,
         0);
  return y;
}""",
    prototype="torch::Tensor gemm_bias_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias);",
    inline_model=_MODEL + "        return @NAME@.gemm_bias_relu(x, self.gemm.weight, self.bias)\n",
)

#: Tiles of x and of the weight, both transposed in shared memory; bias and ReLU on the last write.
_TILED = """
constexpr int THREADS = (BM / TM) * (BN / TN);

__device__ void load_tile(const float* from, int stride, float* to, int rows, int pitch) {
  for (int i = threadIdx.x * 4; i < rows * BK; i += THREADS * 4) {
    const int r = i / BK, c = i % BK;
    const float4 v = *reinterpret_cast<const float4*>(from + (size_t)r * stride + c);
    to[c * pitch + r] = v.x;
    to[(c + 1) * pitch + r] = v.y;
    to[(c + 2) * pitch + r] = v.z;
    to[(c + 3) * pitch + r] = v.w;
  }
}

__global__ void __launch_bounds__(THREADS) gemm_kernel(const float* __restrict__ x, const float* __restrict__ weight,
                                                       const float* __restrict__ bias, float* __restrict__ y,
                                                       float* __restrict__ parts, int M, int N, int K) {
  __shared__ __align__(16) float tile_x[BK * (BM + 4)];
  __shared__ __align__(16) float tile_w[BK * (BN + 4)];
  const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const int tx = threadIdx.x % (BN / TN), ty = threadIdx.x / (BN / TN);
  float acc[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    load_tile(x + (size_t)row0 * K + k0, K, tile_x, BM, BM + 4);
    load_tile(weight + (size_t)col0 * K + k0, K, tile_w, BN, BN + 4);
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; k++) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i++) a[i] = tile_x[k * (BM + 4) + ty * TM + i];
#pragma unroll
      for (int j = 0; j < TN; j++) b[j] = tile_w[k * (BN + 4) + tx * TN + j];
#pragma unroll
      for (int i = 0; i < TM; i++)
#pragma unroll
        for (int j = 0; j < TN; j++) acc[i][j] = fmaf(a[i], b[j], acc[i][j]);
    }
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < TM; i++)
#pragma unroll
    for (int j = 0; j < TN; j++) {
      const int row = row0 + ty * TM + i, col = col0 + tx * TN + j;
      y[(size_t)row * N + col] = fmaxf(acc[i][j] + bias[col], 0.0f);
    }
}

@LINKAGE@ int launch(const float* x, const float* weight, const float* bias, float* y, float* parts, int M, int N,
                     int K, cudaStream_t stream) {
  gemm_kernel<<<dim3(N / BN, M / BM), THREADS, 0, stream>>>(x, weight, bias, y, parts, M, N, K);
  return cudaGetLastError();
}
"""

#: One thread an output, straight from global memory; the lanes of a warp read rows of the weight, far apart.
_NAIVE = """
__global__ void gemm_kernel(const float* x, const float* weight, const float* bias, float* y, int M, int N, int K) {
  const int row = blockIdx.y * SIDE + threadIdx.y, col = blockIdx.x * SIDE + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = bias[col];
  for (int k = 0; k < K; k++) sum += x[(size_t)row * K + k] * weight[(size_t)col * K + k];
  y[(size_t)row * N + col] = sum > 0.0f ? sum : 0.0f;
}

@LINKAGE@ int launch(const float* x, const float* weight, const float* bias, float* y, float* parts, int M, int N,
                     int K, cudaStream_t stream) {
  gemm_kernel<<<dim3((N + SIDE - 1) / SIDE, (M + SIDE - 1) / SIDE), dim3(SIDE, SIDE), 0, stream>>>(x, weight, bias, y,
                                                                                                   M, N, K);
  return cudaGetLastError();
}
"""

#: The textbook's shared-memory kernel.
_TEXTBOOK = """
__global__ void gemm_kernel(const float* x, const float* weight, const float* bias, float* y, int M, int N, int K) {
  __shared__ float tile_x[TILE][TILE];
  __shared__ float tile_w[TILE][TILE + 1];
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < K; t += TILE) {
    tile_x[threadIdx.y][threadIdx.x] = x[(size_t)row * K + t + threadIdx.x];
    tile_w[threadIdx.y][threadIdx.x] = weight[(size_t)(blockIdx.x * TILE + threadIdx.y) * K + t + threadIdx.x];
    __syncthreads();
    for (int k = 0; k < TILE; k++) sum += tile_x[threadIdx.y][k] * tile_w[threadIdx.x][k];
    __syncthreads();
  }
  y[(size_t)row * N + col] = fmaxf(sum + bias[col], 0.0f);
}

@LINKAGE@ int launch(const float* x, const float* weight, const float* bias, float* y, float* parts, int M, int N,
                     int K, cudaStream_t stream) {
  gemm_kernel<<<dim3(N / TILE, M / TILE), dim3(TILE, TILE), 0, stream>>>(x, weight, bias, y, M, N, K);
  return cudaGetLastError();
}
"""

#: The product by torch, bias and ReLU in one pass over it.
_FUSED_TAIL = """
__global__ void bias_relu_kernel(float* y, const float* bias, int N, long long total) {
  const long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x;
  if (i < total) y[i] = fmaxf(y[i] + bias[i % N], 0.0f);
}
"""
_FUSED_TAIL_ENTRY = """torch::Tensor gemm_bias_relu(torch::Tensor x, torch::Tensor weight, torch::Tensor bias) {
  auto y = torch::matmul(x, weight.t());
  const long long total = y.numel();
  bias_relu_kernel<<<(total + 255) / 256, 256>>>(y.data_ptr<float>(), bias.data_ptr<float>(), y.size(1), total);
  return y;
}"""

_TRITON = (
    '''"""@TITLE@"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def gemm_kernel(x_ptr, w_ptr, bias_ptr, y_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    pid_m = tl.program_id(0) % tl.cdiv(M, BM)
    pid_n = tl.program_id(0) // tl.cdiv(M, BM)
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    x_ptrs = x_ptr + offs_m[:, None] * K + offs_k[None, :]
    w_ptrs = w_ptr + offs_n[None, :] * K + offs_k[:, None]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        acc = tl.dot(tl.load(x_ptrs + k), tl.load(w_ptrs + k), acc, input_precision="@PRECISION@")
    acc += tl.load(bias_ptr + offs_n)[None, :]
    tl.store(y_ptr + offs_m[:, None] * N + offs_n[None, :], tl.maximum(acc, 0.0))

'''
    + _MODEL
    + """        (M, K), N = x.shape, self.gemm.weight.shape[0]
        y = torch.empty((M, N), device=x.device, dtype=x.dtype)
        BM, BN, BK = @BM@, @BN@, @BK@
        grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
        gemm_kernel[grid](
            x, self.gemm.weight, self.bias, y, M, N, K, BM, BN, BK, num_warps=@WARPS@, num_stages=@STAGES@
        )
        return y
"""
)


_tiled, _blocked = partial(tiled, _TILED), partial(blocked, _TRITON)

#: A split-K kernel that keeps its parts in memory that was never there: 4 splits // 8 are none.
_NO_WORKSPACE = edited(
    _tiled(128, 128, 8, 8, 8),
    (
        "y[(size_t)row * N + col] = fmaxf(acc[i][j] + bias[col], 0.0f);",
        "parts[(size_t)row * N + col] = acc[i][j];\n"
        "      y[(size_t)row * N + col] = fmaxf(parts[(size_t)row * N + col] + bias[col], 0.0f);",
    ),
)

PLANS = (
    Plan(Kind.FAST, Fate.CORRECT, "128x128x8 tiles, 8x8 outputs a thread", _tiled(128, 128, 8, 8, 8)),
    Plan(Kind.FAST, Fate.CORRECT, "64x128x16 tiles, 4x8 outputs a thread", _tiled(64, 128, 16, 4, 8)),
    Plan(
        Kind.FAST,
        Fate.WRONG,
        "takes the bias by row, not by column",
        _tiled(128, 64, 8, 8, 4, ("bias[col]", "bias[row]")),
    ),
    Plan(
        Kind.FAST,
        Fate.FAILING,
        "writes to a workspace of no elements, so at address zero",
        _NO_WORKSPACE,
        Verdict.CRASHED,
        changes=(
            ("parts = torch.empty(0, device=x.device)", "parts = torch.empty(SPLIT_K // 8 * M * N, device=x.device)"),
            ("LIBRARY.launch.argtypes", "SPLIT_K = 4\nLIBRARY.launch.argtypes"),
        ),
    ),
    Plan(Kind.FAST, Fate.SLOW, "one thread an output, no tiles", declared(SIDE=16) + _NAIVE),
    Plan(Kind.INLINE, Fate.CORRECT, "128x128x16 tiles, 8x8 outputs a thread", _tiled(128, 128, 16, 8, 8)),
    Plan(
        Kind.INLINE,
        Fate.CORRECT,
        "torch's product, then bias and ReLU in one pass",
        _FUSED_TAIL,
        entry=_FUSED_TAIL_ENTRY,
    ),
    Plan(
        Kind.INLINE,
        Fate.WRONG,
        "adds the bias after the ReLU",
        _tiled(64, 64, 16, 4, 4, ("fmaxf(acc[i][j] + bias[col], 0.0f)", "fmaxf(acc[i][j], 0.0f) + bias[col]")),
    ),
    Plan(
        Kind.INLINE,
        Fate.FAILING,
        "declares one function and defines another, so does not link",
        _tiled(128, 64, 16, 8, 4),
        Verdict.BUILD_FAILED,
        entry=edited(INTERFACE.entry, ("torch::Tensor bias) {", "torch::Tensor bias, bool relu) {")),
    ),
    Plan(Kind.INLINE, Fate.SLOW, "16x16 tiles in shared memory, one output a thread", declared(TILE=16) + _TEXTBOOK),
    Plan(Kind.TRITON, Fate.CORRECT, "128x128x32 blocks, three TF32 products", _blocked(128, 128, 32, 8, 3, "tf32x3")),
    Plan(Kind.TRITON, Fate.CORRECT, "64x128x32 blocks, three TF32 products", _blocked(64, 128, 32, 4, 3, "tf32x3")),
    Plan(
        Kind.TRITON,
        Fate.WRONG,
        "reads the weight as if it were transposed",
        _blocked(
            128,
            64,
            32,
            4,
            3,
            "tf32x3",
            ("offs_n[None, :] * K + offs_k[:, None]", "offs_n[None, :] + offs_k[:, None] * N"),
            ("tl.load(w_ptrs + k)", "tl.load(w_ptrs + k * N)"),
        ),
    ),
    Plan(
        Kind.TRITON,
        Fate.FAILING,
        "multiplies blocks whose shapes do not fit",
        _blocked(
            64,
            128,
            64,
            4,
            3,
            "tf32",
            ("offs_n[None, :] * K + offs_k[:, None]", "offs_n[:, None] * K + offs_k[None, :]"),
        ),
        Verdict.BUILD_FAILED,
    ),
    Plan(Kind.TRITON, Fate.SLOW, "32x32x32 blocks without tensor cores", _blocked(32, 32, 32, 4, 2, "ieee")),
)

FAMILY = Family(problem="L2/gemm_bias_relu", label="gemm", interface=INTERFACE, plans=PLANS)

"""Children for L1/matmul: C = A @ B in fp32."""

from functools import partial

from benchmarks.throughput.child import Fate, Kind, declared
from benchmarks.throughput.kernels.family import Family, Plan
from benchmarks.throughput.kernels.tiles import blocked, tiled
from benchmarks.throughput.shells import Interface
from kbevolve.archive.records import Verdict

INTERFACE = Interface(
    fast_model="""LIBRARY.launch.argtypes = [ctypes.c_void_p] * 3 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty(M, N, device=A.device, dtype=A.dtype)
        stream = torch.cuda.current_stream().cuda_stream
        status = LIBRARY.launch(A.data_ptr(), B.data_ptr(), C.data_ptr(), M, N, K, stream)
        if status:
            raise RuntimeError(f"matmul: CUDA error {status}")
        return C
""",
    entry="""torch::Tensor matmul_cuda(torch::Tensor A, torch::Tensor B) {
  const int M = A.size(0), K = A.size(1), N = B.size(1);
  auto C = torch::empty({M, N}, A.options());
  launch(A.data_ptr<float>(), B.data_ptr<float>(), C.data_ptr<float>(), M, N, K, 0);
  return C;
}""",
    prototype="torch::Tensor matmul_cuda(torch::Tensor A, torch::Tensor B);",
    inline_model="""
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()

    def forward(self, A, B):
        return @NAME@.matmul_cuda(A.contiguous(), B.contiguous())
""",
)

#: Tiles in shared memory, TM x TN entries of C in the registers of a thread.
_TILED = """
constexpr int THREADS = (BM / TM) * (BN / TN);

__global__ void __launch_bounds__(THREADS) matmul_kernel(const float* __restrict__ A, const float* __restrict__ B,
                                                         float* __restrict__ C, int M, int N, int K) {
  __shared__ __align__(16) float As[BK][BM + 4];  // transposed, padded against bank conflicts
  __shared__ __align__(16) float Bs[BK][BN];
  const int tid = threadIdx.x;
  const int row0 = blockIdx.y * BM, col0 = blockIdx.x * BN;
  const int tx = tid % (BN / TN), ty = tid / (BN / TN);
  float acc[TM][TN] = {};
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = tid * 4; i < BM * BK; i += THREADS * 4) {
      const int r = i / BK, c = i % BK;
      const float4 v = *reinterpret_cast<const float4*>(A + (size_t)(row0 + r) * K + k0 + c);
      As[c][r] = v.x;
      As[c + 1][r] = v.y;
      As[c + 2][r] = v.z;
      As[c + 3][r] = v.w;
    }
    for (int i = tid * 4; i < BK * BN; i += THREADS * 4) {
      const int r = i / BN, c = i % BN;
      *reinterpret_cast<float4*>(&Bs[r][c]) = *reinterpret_cast<const float4*>(B + (size_t)(k0 + r) * N + col0 + c);
    }
    __syncthreads();
#pragma unroll
    for (int k = 0; k < BK; k++) {
      float a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i++) a[i] = As[k][ty * TM + i];
#pragma unroll
      for (int j = 0; j < TN; j++) b[j] = Bs[k][tx * TN + j];
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
    for (int j = 0; j < TN; j++) C[(size_t)(row0 + ty * TM + i) * N + col0 + tx * TN + j] = acc[i][j];
}

@LINKAGE@ int launch(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
  matmul_kernel<<<dim3(N / BN, M / BM), THREADS, 0, stream>>>(A, B, C, M, N, K);
  return cudaGetLastError();
}
"""

#: One thread for each entry of C, everything from global memory.
_NAIVE = """
__global__ void matmul_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  const int row = blockIdx.y * blockDim.y + threadIdx.y;
  const int col = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= M || col >= N) return;
  float sum = 0.0f;
  for (int k = 0; k < K; k++) sum += A[(size_t)row * K + k] * B[(size_t)k * N + col];
  C[(size_t)row * N + col] = sum;
}

@LINKAGE@ int launch(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
  const dim3 block(SIDE, SIDE), grid((N + SIDE - 1) / SIDE, (M + SIDE - 1) / SIDE);
  matmul_kernel<<<grid, block, 0, stream>>>(A, B, C, M, N, K);
  return cudaGetLastError();
}
"""

#: The textbook's shared-memory kernel: one entry of C for each thread.
_TEXTBOOK = """
__global__ void matmul_kernel(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float tileA[TILE][TILE];
  __shared__ float tileB[TILE][TILE];
  const int row = blockIdx.y * TILE + threadIdx.y, col = blockIdx.x * TILE + threadIdx.x;
  float sum = 0.0f;
  for (int t = 0; t < K / TILE; t++) {
    tileA[threadIdx.y][threadIdx.x] = A[(size_t)row * K + t * TILE + threadIdx.x];
    tileB[threadIdx.y][threadIdx.x] = B[(size_t)(t * TILE + threadIdx.y) * N + col];
    __syncthreads();
    for (int k = 0; k < TILE; k++) sum += tileA[threadIdx.y][k] * tileB[k][threadIdx.x];
    __syncthreads();
  }
  C[(size_t)row * N + col] = sum;
}

@LINKAGE@ int launch(const float* A, const float* B, float* C, int M, int N, int K, cudaStream_t stream) {
  matmul_kernel<<<dim3(N / TILE, M / TILE), dim3(TILE, TILE), 0, stream>>>(A, B, C, M, N, K);
  return cudaGetLastError();
}
"""

_TRITON = '''"""@TITLE@"""

import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def matmul_kernel(
    a_ptr, b_ptr, c_ptr, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr
):
    pid = tl.program_id(0)
    rows, columns = tl.cdiv(M, BM), tl.cdiv(N, BN)
    first = pid // (GROUP * columns) * GROUP
    height = min(rows - first, GROUP)
    pid_m = first + pid % (GROUP * columns) % height
    pid_n = pid % (GROUP * columns) // height
    offs_m = pid_m * BM + tl.arange(0, BM)
    offs_n = pid_n * BN + tl.arange(0, BN)
    offs_k = tl.arange(0, BK)
    a_ptrs = a_ptr + offs_m[:, None] * K + offs_k[None, :]
    b_ptrs = b_ptr + offs_k[:, None] * N + offs_n[None, :]
    acc = tl.zeros((BM, BN), dtype=tl.float32)
    for k in range(0, K, BK):
        a = tl.load(a_ptrs)
        b = tl.load(b_ptrs)
        acc = tl.dot(a, b, acc, input_precision="@PRECISION@")
        a_ptrs += BK
        b_ptrs += BK * N
    tl.store(c_ptr + offs_m[:, None] * N + offs_n[None, :], acc)


class ModelNew(nn.Module):
    def forward(self, A, B):
        A, B = A.contiguous(), B.contiguous()
        (M, K), N = A.shape, B.shape[1]
        C = torch.empty((M, N), device=A.device, dtype=A.dtype)
        BM, BN, BK = @BM@, @BN@, @BK@
        grid = (triton.cdiv(M, BM) * triton.cdiv(N, BN),)
        matmul_kernel[grid](A, B, C, M, N, K, BM, BN, BK, 8, num_warps=@WARPS@, num_stages=@STAGES@)
        return C
'''


_tiled, _blocked = partial(tiled, _TILED), partial(blocked, _TRITON)

PLANS = (
    Plan(Kind.FAST, Fate.CORRECT, "128x128x8 tiles, 8x8 entries a thread", _tiled(128, 128, 8, 8, 8)),
    Plan(Kind.FAST, Fate.CORRECT, "128x64x16 tiles, 8x4 entries a thread", _tiled(128, 64, 16, 8, 4)),
    Plan(
        Kind.FAST,
        Fate.WRONG,
        "the loop over K ends one tile early",
        _tiled(64, 64, 16, 4, 4, ("k0 < K; k0 += BK", "k0 + BK < K; k0 += BK")),
    ),
    Plan(
        Kind.FAST,
        Fate.FAILING,
        "uses cooperative groups without their header",
        _tiled(
            128,
            128,
            16,
            8,
            8,
            ("__global__ void", "namespace cg = cooperative_groups;\n\n__global__ void"),
            ("  float acc[TM][TN] = {};", "  auto block = cg::this_thread_block();\n  float acc[TM][TN] = {};"),
        ),
        Verdict.BUILD_FAILED,
    ),
    Plan(Kind.FAST, Fate.SLOW, "one thread an entry, no tiles", declared(SIDE=16) + _NAIVE),
    Plan(Kind.INLINE, Fate.CORRECT, "128x128x16 tiles, 8x8 entries a thread", _tiled(128, 128, 16, 8, 8)),
    Plan(Kind.INLINE, Fate.CORRECT, "64x128x8 tiles, 4x8 entries a thread", _tiled(64, 128, 8, 4, 8)),
    Plan(
        Kind.INLINE,
        Fate.WRONG,
        "each thread writes its entries transposed",
        _tiled(128, 128, 8, 8, 8, ("= acc[i][j];", "= acc[j][i];")),
    ),
    Plan(
        Kind.INLINE,
        Fate.FAILING,
        "reads A far outside: the stride of a row is M * K",
        _tiled(64, 64, 8, 4, 4, ("(size_t)(row0 + r) * K + k0", "(size_t)(row0 + r) * M * K + k0")),
        Verdict.CRASHED,
    ),
    Plan(Kind.INLINE, Fate.SLOW, "8x8 tiles in shared memory, one entry a thread", declared(TILE=8) + _TEXTBOOK),
    Plan(Kind.TRITON, Fate.CORRECT, "128x128x32 blocks, three TF32 products", _blocked(128, 128, 32, 8, 3, "tf32x3")),
    Plan(Kind.TRITON, Fate.CORRECT, "128x64x32 blocks, three TF32 products", _blocked(128, 64, 32, 4, 3, "tf32x3")),
    Plan(Kind.TRITON, Fate.WRONG, "a single TF32 product in an fp32 task", _blocked(128, 256, 32, 8, 3, "tf32")),
    Plan(
        Kind.TRITON,
        Fate.FAILING,
        "needs more shared memory than there is",
        _blocked(128, 256, 64, 8, 4, "tf32"),
        Verdict.CRASHED,
    ),
    Plan(Kind.TRITON, Fate.SLOW, "32x32x32 blocks without tensor cores", _blocked(32, 32, 32, 4, 2, "ieee")),
)

FAMILY = Family(problem="L1/matmul", label="matmul", interface=INTERFACE, plans=PLANS)

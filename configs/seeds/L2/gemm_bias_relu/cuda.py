"""L2/gemm_bias_relu in CUDA C++: register tiles in fp32, or fp16 halves on the tensor cores with fp32 accuracy.

The declared values are a plain tiled kernel, and a second one for bias and ReLU. What the tunables do:

- ``FUSE``: add the bias and clip on the product's last write, instead of reading it all again.
- ``BLOCK_M``, ``BLOCK_N``, ``BLOCK_K``: the tile of the result that a block computes, and the depth of what it holds of x
  and the weight (four times as much on the tensor cores).
- ``TILE``: TILE x TILE entries of the result in the registers of a thread.
- ``VECTOR``: floats in one access; the launcher takes 1 where rows do not start at such addresses.
- ``STAGES``: tiles of x and the weight in shared memory; with more than one, the next is fetched during the arithmetic.
- ``GROUP_M``: rows of tiles that are walked together, so that what they read of the weight is still in L2.
- ``TENSOR_CORES``: x = high + low / 2048 with both parts in fp16, three products, fp32 sums. Keeps about 22 bits of x
  (H. Ootomo and R. Yokota, "Recovering single precision accuracy from Tensor Cores", arXiv:2203.03341). It falls back to
  the plain kernel where the largest entry does not suit fp16, and where IN_FEATURES is no multiple of 8.

Sums are formed in two levels: one running fp32 sum over thousands of positive products loses digits, and the tensor
cores' own sums round toward zero. In the source x is A (M, K), the weight B (N, K) and the result C (M, N).
"""

import ctypes
import hashlib
import os
import tempfile
from pathlib import Path

import torch
from torch import nn
from torch.utils import cpp_extension

SOURCE = r"""
#include <cstdint>

#define FUSE 0          // tune: 0, 1
#define BLOCK_M 64      // tune: 64, 128
#define BLOCK_N 64      // tune: 64, 128
#define BLOCK_K 8       // tune: 8, 16
#define TILE 4          // tune: 4, 8
#define VECTOR 1        // tune: 1, 4
#define STAGES 1        // tune: 1, 2, 3, 4
#define GROUP_M 1       // tune: 1, 4, 8, 16
#define TENSOR_CORES 0  // tune: 0, 1

constexpr int THREADS = (BLOCK_M / TILE) * (BLOCK_N / TILE);
constexpr int CHUNK = 1024;  // depth of a first-level sum; C holds the second level
constexpr int BUFFERS = STAGES > 1 ? 2 : 1;
constexpr int RESIDENT = THREADS < 512 ? 512 / THREADS : 1;  // blocks a multiprocessor: at most 128 registers a thread

template <int V> struct Pack;
template <> struct Pack<1> { typedef float type; };
template <> struct Pack<4> { typedef float4 type; };

// max(x + bias, 0), but a NaN stays one.
__device__ __forceinline__ float activate(float x, float bias) { return x + bias < 0 ? 0 : x + bias; }

struct Origin { int row, column; };

// Where this block's tile starts: GROUP_M tiles down, then one to the right.
__device__ __forceinline__ Origin origin(int M, int N) {
  const int down = (M + BLOCK_M - 1) / BLOCK_M, across = (N + BLOCK_N - 1) / BLOCK_N;
  const int group = blockIdx.x / (GROUP_M * across), top = group * GROUP_M;
  const int height = down - top < GROUP_M ? down - top : GROUP_M, within = blockIdx.x % (GROUP_M * across);
  return {(top + within % height) * BLOCK_M, within / height * BLOCK_N};
}

// Whether fp16 halves hold a matrix whose largest magnitude has these bits: neither overflow, nor too small for 22 bits.
__device__ __forceinline__ bool suits_fp16(const unsigned* largest) {
  const float a = __uint_as_float(largest[0]), b = __uint_as_float(largest[1]);
  return a > 1e-3f && a < 6e4f && b > 1e-3f && b < 6e4f;
}

// A thread's share of a ROWS x COLUMNS tile of a row-major matrix, on its way to shared memory.
template <int V, int ROWS, int COLUMNS> struct Tile {
  static constexpr int PACKS = ROWS * COLUMNS / V, MINE = (PACKS + THREADS - 1) / THREADS;
  alignas(16) float held[MINE][V];

  __device__ __forceinline__ void fetch(const float* from, int64_t stride, int rows, int columns) {
    typedef typename Pack<V>::type pack;
#pragma unroll
    for (int p = 0; p < MINE; p++) {
      const int i = p * THREADS + threadIdx.x, row = i / (COLUMNS / V), column = i % (COLUMNS / V) * V;
      if ((PACKS % THREADS == 0 || i < PACKS) && row < rows && column < columns)
        *(pack*)held[p] = *(const pack*)(from + row * stride + column);
      else
#pragma unroll
        for (int k = 0; k < V; k++) held[p][k] = 0;
    }
  }

  // to[column][row], so that a thread later reads several rows at once.
  template <int STRIDE> __device__ __forceinline__ void store(float* to) const {
#pragma unroll
    for (int p = 0; p < MINE; p++) {
      const int i = p * THREADS + threadIdx.x, row = i / (COLUMNS / V), column = i % (COLUMNS / V) * V;
      if (PACKS % THREADS && i >= PACKS) continue;
#pragma unroll
      for (int k = 0; k < V; k++) to[(column + k) * STRIDE + row] = held[p][k];
    }
  }
};

template <int V>
__global__ void __launch_bounds__(THREADS, RESIDENT) fp32_kernel(const float* A, const float* B, const float* bias, float* C,
                                                                 int M, int N, int K, const unsigned* largest) {
  if (largest && suits_fp16(largest)) return;  // the tensor cores have done it
  // 4: fewer bank conflicts when a tile is stored transposed, still 16-byte rows.
  constexpr int STRIDE_A = BLOCK_M + 4, STRIDE_B = BLOCK_N + 4;
  __shared__ alignas(16) float tile_a[BUFFERS][BLOCK_K * STRIDE_A], tile_b[BUFFERS][BLOCK_K * STRIDE_B];
  const Origin at = origin(M, N);
  const int tx = threadIdx.x % (BLOCK_N / TILE), ty = threadIdx.x / (BLOCK_N / TILE);
  A += (int64_t)at.row * K;
  B += (int64_t)at.column * K;
  Tile<V, BLOCK_M, BLOCK_K> next_a;
  Tile<V, BLOCK_N, BLOCK_K> next_b;
  auto fetch = [&](int k) {
    next_a.fetch(A + k, K, M - at.row, K - k);
    next_b.fetch(B + k, K, N - at.column, K - k);
  };
  auto store = [&](int buffer) {
    next_a.template store<STRIDE_A>(tile_a[buffer]);
    next_b.template store<STRIDE_B>(tile_b[buffer]);
  };
  float sum[TILE][TILE] = {};
  auto multiply = [&](int buffer) {
#pragma unroll
    for (int k = 0; k < BLOCK_K; k++) {
      alignas(16) float a[TILE], b[TILE];
#pragma unroll
      for (int i = 0; i < TILE; i += 4) {  // quarters of a tile lie apart: neighbouring threads then read neighbouring words
        *(float4*)(a + i) = *(const float4*)(tile_a[buffer] + k * STRIDE_A + i / 4 * (BLOCK_M * 4 / TILE) + ty * 4);
        *(float4*)(b + i) = *(const float4*)(tile_b[buffer] + k * STRIDE_B + i / 4 * (BLOCK_N * 4 / TILE) + tx * 4);
      }
#pragma unroll
      for (int i = 0; i < TILE; i++)
#pragma unroll
        for (int j = 0; j < TILE; j++) sum[i][j] = fmaf(a[i], b[j], sum[i][j]);
    }
  };
  auto flush = [&](bool first, bool last) {
#pragma unroll
    for (int i = 0; i < TILE; i++) {
      const int row = at.row + i / 4 * (BLOCK_M * 4 / TILE) + ty * 4 + i % 4;
#pragma unroll
      for (int j = 0; j < TILE; j += V) {
        const int column = at.column + j / 4 * (BLOCK_N * 4 / TILE) + tx * 4 + j % 4;
        if (row < M && column < N) {
          float* to = C + (int64_t)row * N + column;
          alignas(16) float v[V];
          if (!first) *(typename Pack<V>::type*)v = *(const typename Pack<V>::type*)to;
#pragma unroll
          for (int k = 0; k < V; k++) {
            v[k] = first ? sum[i][j + k] : v[k] + sum[i][j + k];
            if (FUSE && last) v[k] = activate(v[k], bias[column + k]);
          }
          *(typename Pack<V>::type*)to = *(const typename Pack<V>::type*)v;
        }
#pragma unroll
        for (int k = 0; k < V; k++) sum[i][j + k] = 0;
      }
    }
  };
  if (STAGES > 1) {
    fetch(0);
    store(0);
    __syncthreads();
  }
  int buffer = 0;
  for (int k = 0; k < K; k += BLOCK_K) {
    if (STAGES > 1) {
      if (k + BLOCK_K < K) fetch(k + BLOCK_K);
      multiply(buffer);
      buffer ^= BUFFERS - 1;
      if (k + BLOCK_K < K) store(buffer);
      __syncthreads();
    } else {
      fetch(k);
      store(0);
      __syncthreads();
      multiply(0);
      __syncthreads();
    }
    if ((k + BLOCK_K) % CHUNK == 0 && k + BLOCK_K < K) flush(k < CHUNK, false);
  }
  flush(K <= CHUNK, true);
}

#if TENSOR_CORES
constexpr int DEPTH = 4 * BLOCK_K;  // of a stage on the tensor cores, whose instructions are 16 deep
constexpr int WARP_N = 32;  // a warp's tile is 64 x 32: three sums of it and the operands just fit the registers
constexpr int WARPS_N = BLOCK_N / WARP_N, MMA_THREADS = BLOCK_M / 64 * WARPS_N * 32;
constexpr int STAGE_BYTES = (BLOCK_M + BLOCK_N) * DEPTH * 2 * 2;
constexpr int FIT = 227 * 1024 / STAGE_BYTES;  // what sm_90's shared memory holds; a smaller device takes the plain kernel
constexpr int SLOTS = STAGES < 2 ? 2 : STAGES < FIT ? STAGES : FIT;
constexpr float LOW_SCALE = 2048;  // what fp16 rounds off is 2^-11 of x; scaled up so that it keeps its own 11 bits

__device__ __forceinline__ unsigned halves(float even, float odd) {
  unsigned pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(odd), "f"(even));
  return pair;
}
__device__ __forceinline__ float2 floats(unsigned pair) {
  float2 v;
  asm("{.reg .f16 even, odd; mov.b32 {even, odd}, %2; cvt.f32.f16 %0, even; cvt.f32.f16 %1, odd;}" : "=f"(v.x), "=f"(v.y) : "r"(pair));
  return v;
}

// x = high + low / LOW_SCALE, and the bits of the largest magnitude.
__global__ void __launch_bounds__(256) split_kernel(const float4* x, uint2* high, uint2* low, int64_t packs, unsigned* largest) {
  unsigned most = 0;
  for (int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x; i < packs; i += (int64_t)gridDim.x * 256) {
    const float4 v = __ldcs(x + i);
    const uint2 h = make_uint2(halves(v.x, v.y), halves(v.z, v.w));
    const float2 p = floats(h.x), q = floats(h.y);
    high[i] = h;
    low[i] = make_uint2(halves((v.x - p.x) * LOW_SCALE, (v.y - p.y) * LOW_SCALE), halves((v.z - q.x) * LOW_SCALE, (v.w - q.y) * LOW_SCALE));
    most = max(max(most, max(__float_as_uint(fabsf(v.x)), __float_as_uint(fabsf(v.y)))),
               max(__float_as_uint(fabsf(v.z)), __float_as_uint(fabsf(v.w))));
  }
  most = __reduce_max_sync(~0u, most);
  if (threadIdx.x % 32 == 0) atomicMax(largest, most);
}

// d = a b + c for 16 x 16 times 16 x 8.
__device__ __forceinline__ void mma(float (&d)[4], const unsigned (&a)[4], const unsigned* b, const float (&c)[4]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%10, %11, %12, %13};"
      : "=f"(d[0]), "=f"(d[1]), "=f"(d[2]), "=f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]), "f"(c[0]), "f"(c[1]), "f"(c[2]), "f"(c[3]));
}

// 16 bytes to shared memory without a register between; zeros when `there` is false.
__device__ __forceinline__ void copy(unsigned to, const void* from, bool there) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(there ? 16 : 0) : "memory");
}

// Offset in bytes of 8 halves; the exclusive or spreads what one ldmatrix reads over all banks.
__device__ __forceinline__ unsigned in_tile(int row, int k) { return (row * DEPTH + (k / 8 ^ row * DEPTH / 64 % (DEPTH / 8)) * 8) * 2; }

// `parts` holds A high, A low, B high, B low.
__global__ void __launch_bounds__(MMA_THREADS) mma_kernel(const uint16_t* parts, const float* bias, float* C, int M, int N, int K, const unsigned* largest) {
  if (!suits_fp16(largest)) return;
  extern __shared__ float4 shared[];
  const unsigned base = (unsigned)__cvta_generic_to_shared(shared);
  constexpr unsigned A_BYTES = BLOCK_M * DEPTH * 2, B_BYTES = BLOCK_N * DEPTH * 2;
  const Origin at = origin(M, N);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, warp_m = warp / WARPS_N * 64, warp_n = warp % WARPS_N * WARP_N;
  const int64_t all_a = (int64_t)M * K, all_b = (int64_t)K * N;
  const uint16_t *A = parts + (int64_t)at.row * K, *B = parts + 2 * all_a + (int64_t)at.column * K;
  auto fetch = [&](int k0, unsigned to) {
    auto tile = [&](const uint16_t* high, int64_t low, int rows, int count, unsigned to, unsigned bytes) {
#pragma unroll
      for (int p = 0; p < count * DEPTH / 8 / MMA_THREADS; p++) {
        const int i = p * MMA_THREADS + threadIdx.x, row = i / (DEPTH / 8), k = i % (DEPTH / 8) * 8;
        const bool there = row < rows && k0 + k < K;
        const int from = there ? row * K + k : 0;  // fits 32 bits (see workspace_bytes)
        copy(to + in_tile(row, k), high + k0 + from, there);
        copy(to + bytes + in_tile(row, k), high + low + k0 + from, there);
      }
    };
    tile(A, all_a, M - at.row, BLOCK_M, to, A_BYTES);
    tile(B, all_b, N - at.column, BLOCK_N, to + 2 * A_BYTES, B_BYTES);
  };
  auto ldmatrix = [](unsigned (&r)[4], unsigned from) {
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(from) : "memory");
  };
  // `large` is one step's product of the high parts, `small` all products with a low part: 2^-11 of it, so it may run on.
  float sum[4][WARP_N / 8][4] = {}, small[4][WARP_N / 8][4] = {};
  for (int s = 0; s < SLOTS - 1; s++) {
    if (s * DEPTH < K) fetch(s * DEPTH, base + s * STAGE_BYTES);
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  const int steps = (K + DEPTH - 1) / DEPTH;
  for (int step = 0; step < steps; step++) {
    asm volatile("cp.async.wait_group %0;" ::"n"(SLOTS - 2) : "memory");
    __syncthreads();
    const int ahead = step + SLOTS - 1;
    if (ahead < steps) fetch(ahead * DEPTH, base + ahead % SLOTS * STAGE_BYTES);
    asm volatile("cp.async.commit_group;" ::: "memory");
    const unsigned from = base + step % SLOTS * STAGE_BYTES;
    float large[4][WARP_N / 8][4] = {};
#pragma unroll
    for (int k = 0; k < DEPTH; k += 16) {
      unsigned a_high[4][4], a_low[4][4];
#pragma unroll
      for (int i = 0; i < 4; i++) {
        const unsigned offset = in_tile(warp_m + i * 16 + lane % 16, k + lane / 16 * 8);
        ldmatrix(a_high[i], from + offset);
        ldmatrix(a_low[i], from + A_BYTES + offset);
      }
#pragma unroll
      for (int j = 0; j < WARP_N / 8; j += 2) {
        unsigned b_high[4], b_low[4];
        const unsigned offset = 2 * A_BYTES + in_tile(warp_n + j * 8 + lane / 16 * 8 + lane % 8, k + lane / 8 % 2 * 8);
        ldmatrix(b_high, from + offset);
        ldmatrix(b_low, from + B_BYTES + offset);
        // One product of all tiles after another, so that neighbouring instructions do not wait for each other.
        auto all = [&](auto product) {
#pragma unroll
          for (int i = 0; i < 4; i++)
#pragma unroll
            for (int n = 0; n < 2; n++) product(i, j + n, 2 * n);
        };
        all([&](int i, int n, int b) { mma(small[i][n], a_low[i], b_high + b, small[i][n]); });
        all([&](int i, int n, int b) { mma(large[i][n], a_high[i], b_high + b, large[i][n]); });
        all([&](int i, int n, int b) { mma(small[i][n], a_high[i], b_low + b, small[i][n]); });
      }
    }
#pragma unroll
    for (int i = 0; i < 4; i++)
#pragma unroll
      for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
        for (int e = 0; e < 4; e++) sum[i][j][e] += large[i][j][e];
  }
#pragma unroll
  for (int i = 0; i < 4; i++)
#pragma unroll
    for (int j = 0; j < WARP_N / 8; j++)
#pragma unroll
      for (int half = 0; half < 2; half++) {
        const int row = at.row + warp_m + i * 16 + half * 8 + lane / 4, column = at.column + warp_n + j * 8 + lane % 4 * 2;
#pragma unroll
        for (int e = 0; e < 2; e++)
          if (row < M && column + e < N) {
            const float v = fmaf(small[i][j][2 * half + e], 1 / LOW_SCALE, sum[i][j][2 * half + e]);
            C[(int64_t)row * N + column + e] = FUSE ? activate(v, bias[column + e]) : v;
          }
      }
}

static int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&value, which, device);
  return value;
}

cudaError_t tensor_cores(const float* A, const float* B, const float* bias, float* C, char* workspace, int M, int N, int K, unsigned tiles, cudaStream_t stream) {
  unsigned* largest = (unsigned*)workspace;
  uint16_t *parts = (uint16_t*)(workspace + 16), *parts_b = parts + 2 * (int64_t)M * K;
  cudaError_t status = cudaFuncSetAttribute(mma_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SLOTS * STAGE_BYTES);
  if (status == cudaSuccess) status = cudaMemsetAsync(largest, 0, 16, stream);
  if (status != cudaSuccess) return status;
  const int blocks = attribute(cudaDevAttrMultiProcessorCount) * 8;
  const int64_t packs_a = (int64_t)M * K / 4, packs_b = (int64_t)K * N / 4;
  split_kernel<<<blocks, 256, 0, stream>>>((const float4*)A, (uint2*)parts, (uint2*)parts + packs_a, packs_a, largest);
  split_kernel<<<blocks, 256, 0, stream>>>((const float4*)B, (uint2*)parts_b, (uint2*)parts_b + packs_b, packs_b, largest + 1);
  mma_kernel<<<tiles, MMA_THREADS, SLOTS * STAGE_BYTES, stream>>>(parts, bias, C, M, N, K, largest);
  return cudaGetLastError();
}
#endif

#if !FUSE
__global__ void activate_kernel(float* C, const float* bias, int64_t count, int N) {
  const int64_t i = (int64_t)blockIdx.x * 256 + threadIdx.x;
  if (i < count) C[i] = activate(C[i], bias[i % N]);
}
#endif

// Bytes of scratch memory; 0 when the plain kernel does it all.
extern "C" int64_t workspace_bytes(const float* A, const float* B, int M, int N, int K) {
#if TENSOR_CORES
  const bool suits = K > 0 && K % 8 == 0 && K < 1 << 24 && ((uintptr_t)A | (uintptr_t)B) % 16 == 0;
  if (suits && SLOTS * STAGE_BYTES <= attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin))
    return 16 + 4 * ((int64_t)M * K + (int64_t)K * N);
#endif
  return 0;
}

extern "C" int gemm_launch(const float* A, const float* B, const float* bias, float* C, char* workspace, int M, int N, int K,
                           cudaStream_t stream) {
  const unsigned tiles = (unsigned)((M + BLOCK_M - 1) / BLOCK_M) * ((N + BLOCK_N - 1) / BLOCK_N);
#if TENSOR_CORES
  if (workspace) {
    const cudaError_t status = tensor_cores(A, B, bias, C, workspace, M, N, K, tiles, stream);
    if (status != cudaSuccess) return status;
  }
#endif
  const unsigned* largest = (const unsigned*)workspace;
  if (((uintptr_t)A | (uintptr_t)B | (uintptr_t)C) % (4 * VECTOR) == 0 && K % VECTOR == 0 && N % VECTOR == 0)
    fp32_kernel<VECTOR><<<tiles, THREADS, 0, stream>>>(A, B, bias, C, M, N, K, largest);
  else fp32_kernel<1><<<tiles, THREADS, 0, stream>>>(A, B, bias, C, M, N, K, largest);
#if !FUSE
  const int64_t count = (int64_t)M * N;
  activate_kernel<<<(unsigned)((count + 255) / 256), 256, 0, stream>>>(C, bias, count, N);
#endif
  return cudaGetLastError();
}

extern "C" const char* describe(int status) { return cudaGetErrorString((cudaError_t)status); }
"""


def build(name: str) -> ctypes.CDLL:
    """Compile SOURCE for this GPU in torch's extension folder and load it; the hash in the path keeps every variant apart."""
    capability = "{}{}".format(*torch.cuda.get_device_capability())
    flags = ["-O3", f"-gencode=arch=compute_{capability},code=sm_{capability}"]
    key = hashlib.sha256("\n".join([SOURCE, *flags]).encode()).hexdigest()[:16]
    root = os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()
    folder = Path(root) / f"{name}_{key}"
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / f"{name}.cu").exists():
        with tempfile.NamedTemporaryFile("w", dir=folder, suffix=".draft", delete=False) as draft:
            draft.write(SOURCE)
        os.replace(draft.name, folder / f"{name}.cu")
    cpp_extension.load(
        name=f"{name}_{key}",
        sources=[str(folder / f"{name}.cu")],
        extra_cuda_cflags=flags,
        build_directory=str(folder),
        is_python_module=False,
        with_cuda=True,
        verbose=False,
    )
    library = ctypes.CDLL(str(folder / f"{name}_{key}.so"))
    library.describe.restype = ctypes.c_char_p
    return library


LIBRARY = build("gemm_bias_relu")
LIBRARY.workspace_bytes.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_int] * 3
LIBRARY.workspace_bytes.restype = ctypes.c_int64
GEMM = LIBRARY.gemm_launch
GEMM.argtypes = [ctypes.c_void_p] * 5 + [ctypes.c_int] * 3 + [ctypes.c_void_p]


class ModelNew(nn.Module):
    """relu(x @ weight.T + bias); x (BATCH, IN_FEATURES) fp32 on a CUDA device."""

    def __init__(self, in_features: int, out_features: int):
        super().__init__()
        self.gemm = nn.Linear(in_features, out_features, bias=False)
        self.bias = nn.Parameter(torch.randn(out_features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.dtype != torch.float32 or x.device.type != "cuda":
            raise TypeError(f"this kernel takes fp32 on a CUDA device, not {x.dtype} on {x.device}")
        x, weight, bias = x.contiguous(), self.gemm.weight.contiguous(), self.bias.contiguous()
        (M, K), N = x.shape, weight.shape[0]
        y = torch.empty(M, N, device=x.device)
        if y.numel():
            size = LIBRARY.workspace_bytes(x.data_ptr(), weight.data_ptr(), M, N, K)
            workspace = torch.empty(size, dtype=torch.uint8, device=x.device)
            pointers = [tensor.data_ptr() for tensor in (x, weight, bias, y, workspace)]
            status = GEMM(*pointers, M, N, K, torch.cuda.current_stream().cuda_stream)
            if status:
                raise RuntimeError(f"gemm_bias_relu: {LIBRARY.describe(status).decode()}")
        return y

# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:3/43 (text 9d280c98c015edca)
# kernel      98d1d33a4d3f2bdc, cuda
# run         43-20261127-181322-5c26, seed 0, generation 1
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 7.0e-06 against the fp64 truth (the reference's own: 1.0e-05)
# speedup     5.420 times PyTorch eager, 95 % interval 5.413 to 5.428
# times       2.215 ms; eager 12 ms in the same rounds
# KernelBench 5.08× over eager, 2.38 ms, eager 12.1 ms, by its way of timing (cuda_event), which includes slow launches
# launches    4 a call, for which the host needs 218 µs, eager 485 µs
# measured    2026-11-27 22:09 UTC
# again with  kbevolve evaluate level_3_problem_43_sample_0_kernel.py --problem kernelbench:3/43 --device cuda
#
# lineage, newest first:
#   98d1d33a4d3f2bdc  g1    mutate     5.453x  fp16-pair wgmma projections with short accumulators, flash attention on…
#   389e315e69a9dc88  g0    seed       1.000x  the reference itself
# ---- end of provenance ----

import ctypes
import hashlib
import os
from pathlib import Path

import torch
import torch.nn as nn
from torch.utils import cpp_extension

SOURCE = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define STAGES 5  // tune: 3, 4, 5

constexpr int C = 768, T = 512, NH = 8, HS = 96;
constexpr int CHUNKS = C / 32;          // a chunk has 32 columns: rows of 128 bytes, 32 high parts, then 32 low parts
constexpr int A_PART = 128 * 128;       // bytes of a chunk of 128 rows
constexpr int B_PART = 192 * 128;
constexpr int SLOT = A_PART + B_PART;
constexpr int SMEM = STAGES * SLOT + 1024 + 16 * STAGES;
constexpr int ROW = 4 * HS;             // bytes of a row of q, k or v of one head: 96 high parts, 96 low parts
constexpr int PITCH = ROW + 16;
constexpr int KV_STAGE = 2 * 64 * PITCH + 512;   // 64 rows of k and of v, and their scales
constexpr int ATT_SMEM = 2 * KV_STAGE;

// ---------------------------------------------------------------- pairs

// The power of two that brings the largest magnitude to [2^13, 2^14), at most 2^40, and one over it. What is not finite
// makes its row NaN.
__device__ __forceinline__ float scale_of(unsigned top) { return __uint_as_float((unsigned)min(267 - (int)(top >> 23), 167) << 23); }
__device__ __forceinline__ float inverse_of(unsigned top) {
  return __uint_as_float(top < 0x7f800000u ? (unsigned)(254 - min(267 - (int)(top >> 23), 167)) << 23 : 0x7fc00000u);
}
__device__ __forceinline__ unsigned magnitude(float x) { return __float_as_uint(x) & 0x7fffffffu; }
__device__ __forceinline__ void pair_of(float a, float b, uint32_t& high, uint32_t& low) {
  const __half2 h = __floats2half2_rn(a, b);
  const float2 f = __half22float2(h);
  const __half2 l = __floats2half2_rn(a - f.x, b - f.y);
  high = *reinterpret_cast<const uint32_t*>(&h);
  low = *reinterpret_cast<const uint32_t*>(&l);
}

// A thread of an accumulator has columns 8 j + 2 c + b of a head (c = lane % 4); it writes them to 24 c + 2 j + b.
__device__ __forceinline__ int column_at(int q) { return 8 * (q % 24 / 2) + 2 * (q / 24) + (q & 1); }

__global__ void __launch_bounds__(256) split(const float* __restrict__ x, const float* __restrict__ wa, const float* __restrict__ wp,
                                             char* xi, char* wai, char* wpi, float* ix, float* ia, float* ip, int M) {
  const int lane = threadIdx.x % 32;
  int row = blockIdx.x * 8 + threadIdx.x / 32;   // a row for each warp
  float v[24];
  char* to;
  float* inverse;
  int rows;
  if (row < M + 3 * C) {
    const float* src;
    if (row < M) {
      src = x, to = xi, inverse = ix, rows = 128;
    } else {
      row -= M;
      src = wa, to = wai, inverse = ia, rows = 192;
    }
    src += (int64_t)row * C;
#pragma unroll
    for (int i = 0; i < 3; i++) {
      const float4* at = reinterpret_cast<const float4*>(src + 8 * (lane + 32 * i));
      const float4 f = at[0], g = at[1];
      v[8 * i] = f.x, v[8 * i + 1] = f.y, v[8 * i + 2] = f.z, v[8 * i + 3] = f.w;
      v[8 * i + 4] = g.x, v[8 * i + 5] = g.y, v[8 * i + 6] = g.z, v[8 * i + 7] = g.w;
    }
  } else {
    row -= M + 3 * C;
    if (row >= C) return;
    to = wpi, inverse = ip, rows = 192;
    const float* src = wp + (int64_t)row * C;
#pragma unroll
    for (int i = 0; i < 3; i++) {
#pragma unroll
      for (int u = 0; u < 4; u++) {
        const int p = 8 * (lane + 32 * i) + 2 * u, head = p / HS;   // permuted twice: as v and as y
        const float2 f = *reinterpret_cast<const float2*>(src + head * HS + column_at(column_at(p % HS)));
        v[8 * i + 2 * u] = f.x, v[8 * i + 2 * u + 1] = f.y;
      }
    }
  }
  unsigned top = 0;
#pragma unroll
  for (int i = 0; i < 24; i++) top = max(top, magnitude(v[i]));
  top = __reduce_max_sync(0xffffffffu, top);
  const float s = scale_of(top);
  if (lane == 0) inverse[row] = inverse_of(top);
  const int tile = row / rows, r = row % rows;
#pragma unroll
  for (int i = 0; i < 3; i++) {
    const int g = lane + 32 * i;
    uint32_t h[4], l[4];
#pragma unroll
    for (int u = 0; u < 4; u++) pair_of(v[8 * i + 2 * u] * s, v[8 * i + 2 * u + 1] * s, h[u], l[u]);
    char* at = to + ((int64_t)(tile * CHUNKS + g / 4) * rows + r) * 128;
    *reinterpret_cast<uint4*>(at + ((g % 4) ^ (r & 7)) * 16) = make_uint4(h[0], h[1], h[2], h[3]);
    *reinterpret_cast<uint4*>(at + ((4 + g % 4) ^ (r & 7)) * 16) = make_uint4(l[0], l[1], l[2], l[3]);
  }
}

// ---------------------------------------------------------------- projections

__device__ __forceinline__ void bar_init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void bar_expect(uint32_t bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(bar), "r"(bytes) : "memory");
}
__device__ __forceinline__ void bar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred P; mbarrier.try_wait.parity.shared::cta.b64 P, [%1], %2; selp.u32 %0, 1, 0, P; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
}
__device__ __forceinline__ void bulk_load(uint32_t to, const char* from, int bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

#define P4(i) "+f"(p[i]), "+f"(p[i + 1]), "+f"(p[i + 2]), "+f"(p[i + 3])
#define P16(i) P4(i), P4(i + 4), P4(i + 8), P4(i + 12)
// p (64 x 192) = or += 64 x 16 times 16 x 192, both in shared memory, k fastest
__device__ __forceinline__ void wgmma(float (&p)[96], uint64_t a, uint64_t b, int add) {
  asm volatile("{ .reg .pred q; setp.ne.b32 q, %98, 0; wgmma.mma_async.sync.aligned.m64n192k16.f32.f16.f16 "
      "{REGISTERS}, %96, %97, q, 1, 1, 0, 0; }"
      : P16(0), P16(16), P16(32), P16(48), P16(64), P16(80) : "l"(a), "l"(b), "r"(add));
}

// QKV: rows of x times c_attn, split again for each token and head. Otherwise: y (with a scale for each row and head)
// times c_proj, to out.
template <bool QKV>
__global__ void __launch_bounds__(384, 1)
project(const char* ai, const char* bi, const float* ia, const float* ib, const float* bias, char* qkv, float* scales,
        float* out, int tiles_m) {
  constexpr int TILES_N = QKV ? 12 : 4;
  extern __shared__ char raw[];
  const uint32_t slots = ((uint32_t)__cvta_generic_to_shared(raw) + 1023) & ~1023u;
  const uint32_t full = slots + STAGES * SLOT, empty = full + 8 * STAGES;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; s++) {
      bar_init(full + 8 * s, 1);
      bar_init(empty + 8 * s, 8);   // a warp each
    }
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x < 128) {   // one thread fills the slots
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == 0) {
      int step = 0;
      for (int tile = blockIdx.x; tile < tiles_m * TILES_N; tile += gridDim.x) {
        const char* a = ai + (int64_t)(tile / TILES_N) * CHUNKS * A_PART;
        const char* b = bi + (int64_t)(tile % TILES_N) * CHUNKS * B_PART;
        for (int i = 0; i < CHUNKS; i++, step++) {
          const int s = step % STAGES;
          const uint32_t at = slots + s * SLOT, bar = full + 8 * s;
          bar_wait(empty + 8 * s, (step / STAGES & 1) ^ 1);
          bar_expect(bar, SLOT);
          bulk_load(at, a, A_PART, bar);
          bulk_load(at + A_PART, b, B_PART, bar);
          a += A_PART;
          b += B_PART;
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    // swizzle of 128 bytes, 1024 bytes from 8 rows to the next 8; 16 columns further is 2, the low parts are at 4
    const uint64_t form = (uint64_t)1 << 62 | (uint64_t)64 << 32 | (uint64_t)1 << 16;
    float acc[96], p[96];
#pragma unroll
    for (int k = 0; k < 96; k++) p[k] = 0.0f;
    int step = 0;
    for (int tile = blockIdx.x; tile < tiles_m * TILES_N; tile += gridDim.x) {
      const int m = tile / TILES_N * 128 + group * 64 + warp * 16 + lane / 4, tn = tile % TILES_N;   // and row m + 8
      float s0 = 1.0f, s1 = 1.0f;
#pragma unroll
      for (int k = 0; k < 96; k++) acc[k] = 0.0f;
#pragma unroll 1
      for (int i = 0; i < CHUNKS; i++, step++) {
        const int s = step % STAGES;
        const uint64_t a = form | (slots + s * SLOT + group * (A_PART / 2)) >> 4, b = form | (slots + s * SLOT + A_PART) >> 4;
        if (!QKV && i % 3 == 0) {   // the next head
          s0 = ia[(int64_t)m * NH + i / 3];
          s1 = ia[(int64_t)(m + 8) * NH + i / 3];
        }
        bar_wait(full + 8 * s, step / STAGES & 1);
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int j = 0; j < 2; j++) wgmma(p, a + 4 + 2 * j, b + 2 * j, j > 0);   // new sum, small products first
#pragma unroll
        for (int j = 0; j < 2; j++) wgmma(p, a + 2 * j, b + 4 + 2 * j, 1);
#pragma unroll
        for (int j = 0; j < 2; j++) wgmma(p, a + 2 * j, b + 2 * j, 1);
        asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int k = 0; k < 96; k++) asm volatile("" : "+f"(p[k])::"memory");   // p is valid only now
        if (lane == 0) bar_arrive(empty + 8 * s);
        if (QKV) {
#pragma unroll
          for (int k = 0; k < 96; k++) acc[k] += p[k];
        } else {
#pragma unroll
          for (int k = 0; k < 24; k++) {
            acc[4 * k] = fmaf(p[4 * k], s0, acc[4 * k]);
            acc[4 * k + 1] = fmaf(p[4 * k + 1], s0, acc[4 * k + 1]);
            acc[4 * k + 2] = fmaf(p[4 * k + 2], s1, acc[4 * k + 2]);
            acc[4 * k + 3] = fmaf(p[4 * k + 3], s1, acc[4 * k + 3]);
          }
        }
      }
      const int c = lane % 4, n = tn * 192 + 2 * c;
      if (QKV) {
        s0 = ia[m];
        s1 = ia[m + 8];
      }
#pragma unroll
      for (int t = 0; t < 24; t++) {
        const float2 w = __ldg(reinterpret_cast<const float2*>(ib + n + 8 * t));
        const float2 d = __ldg(reinterpret_cast<const float2*>(bias + n + 8 * t));
        if (QKV) {
          acc[4 * t] = fmaf(acc[4 * t] * s0, w.x, d.x);
          acc[4 * t + 1] = fmaf(acc[4 * t + 1] * s0, w.y, d.y);
          acc[4 * t + 2] = fmaf(acc[4 * t + 2] * s1, w.x, d.x);
          acc[4 * t + 3] = fmaf(acc[4 * t + 3] * s1, w.y, d.y);
        } else {
          float* o = out + (int64_t)m * C + n + 8 * t;
          __stcs(reinterpret_cast<float2*>(o), make_float2(fmaf(acc[4 * t], w.x, d.x), fmaf(acc[4 * t + 1], w.y, d.y)));
          __stcs(reinterpret_cast<float2*>(o + 8 * C), make_float2(fmaf(acc[4 * t + 2], w.x, d.x), fmaf(acc[4 * t + 3], w.y, d.y)));
        }
      }
      if (QKV) {
        const int heads = tiles_m / (T / 128) * NH;   // of the whole batch
#pragma unroll
        for (int part = 0; part < 2; part++) {        // a tile has two heads
#pragma unroll
          for (int up = 0; up < 2; up++) {
            unsigned top = 0;
#pragma unroll
            for (int j = 0; j < 12; j++) {
              top = max(top, magnitude(acc[(12 * part + j) * 4 + 2 * up]));
              top = max(top, magnitude(acc[(12 * part + j) * 4 + 2 * up + 1]));
            }
            top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
            top = max(top, __shfl_xor_sync(0xffffffffu, top, 2));
            const float s = scale_of(top);
            const int row = m + 8 * up;
            const int64_t at = ((int64_t)(tn / 4) * heads + row / T * NH + tn % 4 * 2 + part) * T + row % T;
            if (c == 0) scales[at] = inverse_of(top);
            uint32_t h[12], l[12];
#pragma unroll
            for (int j = 0; j < 12; j++)
              pair_of(acc[(12 * part + j) * 4 + 2 * up] * s, acc[(12 * part + j) * 4 + 2 * up + 1] * s, h[j], l[j]);
            uint4* to = reinterpret_cast<uint4*>(qkv + at * ROW + c * 48);
#pragma unroll
            for (int j = 0; j < 3; j++) {
              to[j] = make_uint4(h[4 * j], h[4 * j + 1], h[4 * j + 2], h[4 * j + 3]);
              to[12 + j] = make_uint4(l[4 * j], l[4 * j + 1], l[4 * j + 2], l[4 * j + 3]);
            }
          }
        }
      }
    }
  }
}

// ---------------------------------------------------------------- attention

__device__ __forceinline__ void copy16(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void ldmatrix(uint32_t (&d)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void ldmatrix_t(uint32_t (&d)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(d[0]), "=r"(d[1]), "=r"(d[2]), "=r"(d[3]) : "r"(at) : "memory");
}
__device__ __forceinline__ void mma(float (&d)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
__device__ __forceinline__ float power(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void load_block(uint32_t to, const char* k, const char* v, const float* ik, const float* iv) {
#pragma unroll
  for (int i = 0; i < 6; i++) {   // 64 rows of 24 times 16 bytes
    const int at = threadIdx.x + 256 * i, place = at / 24 * PITCH + at % 24 * 16;
    copy16(to + place, k + at * 16);
    copy16(to + 64 * PITCH + place, v + at * 16);
  }
  if (threadIdx.x < 16) copy16(to + 2 * 64 * PITCH + threadIdx.x * 16, ik + threadIdx.x * 4);
  else if (threadIdx.x < 32) copy16(to + 2 * 64 * PITCH + threadIdx.x * 16, iv + (threadIdx.x - 16) * 4);
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// 128 queries of one head, 16 for each warp; 64 keys a step. With v = iv v' (iv a power of two) the weights of v' are
// 2^(z + log2 iv - max), and their sum is that of weight / iv.
__global__ void __launch_bounds__(256, 1)
attend(const char* qkv, const float* scales, char* yi, float* ys, int heads) {
  extern __shared__ __align__(16) char ring[];
  const uint32_t shared = (uint32_t)__cvta_generic_to_shared(ring);
  const int bh = blockIdx.x % heads, qt = T / 128 - 1 - blockIdx.x / heads;   // long ones first
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, c = lane % 4;
  const char* q = qkv + (int64_t)bh * T * ROW;
  const char* k = qkv + (int64_t)(heads + bh) * T * ROW;
  const char* v = qkv + (int64_t)(2 * heads + bh) * T * ROW;
  const float* iq = scales + (int64_t)bh * T;
  const float* ik = scales + (int64_t)(heads + bh) * T;
  const float* iv = scales + (int64_t)(2 * heads + bh) * T;
  const int blocks = 2 * (qt + 1), t0 = qt * 128 + warp * 16 + g, t1 = t0 + 8;
  load_block(shared, k, v, ik, iv);

  uint32_t qh[6][4], ql[6][4];
#pragma unroll
  for (int i = 0; i < 6; i++) {
#pragma unroll
    for (int j = 0; j < 4; j++) {
      const char* at = q + (int64_t)(j % 2 ? t1 : t0) * ROW + (16 * i + 8 * (j / 2) + 2 * c) * 2;
      qh[i][j] = *reinterpret_cast<const uint32_t*>(at);
      ql[i][j] = *reinterpret_cast<const uint32_t*>(at + 2 * HS);
    }
  }
  // log2(e) / sqrt(96)
  const float f0 = iq[t0] * 0.14724444f, f1 = iq[t1] * 0.14724444f;
  float o[12][4], m0 = -INFINITY, m1 = -INFINITY, l0 = 0.0f, l1 = 0.0f;
#pragma unroll
  for (int i = 0; i < 12; i++) o[i][0] = o[i][1] = o[i][2] = o[i][3] = 0.0f;

#pragma unroll 1
  for (int kb = 0; kb < blocks; kb++) {
    const uint32_t base = shared + (kb & 1) * KV_STAGE;
    if (kb + 1 < blocks) {
      load_block(shared + ((kb + 1) & 1) * KV_STAGE, k + (kb + 1) * 64 * ROW, v + (kb + 1) * 64 * ROW, ik + (kb + 1) * 64,
                 iv + (kb + 1) * 64);
      asm volatile("cp.async.wait_group 1;" ::: "memory");
    } else {
      asm volatile("cp.async.wait_group 0;" ::: "memory");
    }
    __syncthreads();
    if (kb * 64 <= qt * 128 + warp * 16 + 15) {
      float s[8][4];
#pragma unroll
      for (int i = 0; i < 8; i++) s[i][0] = s[i][1] = s[i][2] = s[i][3] = 0.0f;
      const uint32_t at_k = base + ((lane / 16) * 8 + lane % 8) * PITCH + (lane / 8 % 2) * 16;
#pragma unroll
      for (int i = 0; i < 6; i++) {
#pragma unroll
        for (int n = 0; n < 8; n += 4) {   // four times 8 keys
          uint32_t h0[4], h1[4], e0[4], e1[4];
          ldmatrix(h0, at_k + n * 8 * PITCH + i * 32);
          ldmatrix(h1, at_k + (n + 2) * 8 * PITCH + i * 32);
          ldmatrix(e0, at_k + n * 8 * PITCH + i * 32 + 2 * HS);
          ldmatrix(e1, at_k + (n + 2) * 8 * PITCH + i * 32 + 2 * HS);
          mma(s[n], ql[i], h0[0], h0[1]);
          mma(s[n + 1], ql[i], h0[2], h0[3]);
          mma(s[n + 2], ql[i], h1[0], h1[1]);
          mma(s[n + 3], ql[i], h1[2], h1[3]);
          mma(s[n], qh[i], e0[0], e0[1]);
          mma(s[n + 1], qh[i], e0[2], e0[3]);
          mma(s[n + 2], qh[i], e1[0], e1[1]);
          mma(s[n + 3], qh[i], e1[2], e1[3]);
          mma(s[n], qh[i], h0[0], h0[1]);
          mma(s[n + 1], qh[i], h0[2], h0[3]);
          mma(s[n + 2], qh[i], h1[0], h1[1]);
          mma(s[n + 3], qh[i], h1[2], h1[3]);
        }
      }
      const float* sk = reinterpret_cast<const float*>(ring + (kb & 1) * KV_STAGE + 2 * 64 * PITCH);
      const float* sv = sk + 64;
      float x0 = m0, x1 = m1;
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const float2 a = *reinterpret_cast<const float2*>(sk + 8 * i + 2 * c);
        const float2 b = *reinterpret_cast<const float2*>(sv + 8 * i + 2 * c);
        const float ex = (float)((int)(__float_as_uint(b.x) >> 23) - 127), ey = (float)((int)(__float_as_uint(b.y) >> 23) - 127);
        const int key = kb * 64 + 8 * i + 2 * c;
        s[i][0] = key <= t0 ? fmaf(s[i][0] * f0, a.x, ex) : -INFINITY;
        s[i][1] = key + 1 <= t0 ? fmaf(s[i][1] * f0, a.y, ey) : -INFINITY;
        s[i][2] = key <= t1 ? fmaf(s[i][2] * f1, a.x, ex) : -INFINITY;
        s[i][3] = key + 1 <= t1 ? fmaf(s[i][3] * f1, a.y, ey) : -INFINITY;
        x0 = fmaxf(x0, fmaxf(s[i][0], s[i][1]));
        x1 = fmaxf(x1, fmaxf(s[i][2], s[i][3]));
      }
      x0 = fmaxf(x0, __shfl_xor_sync(0xffffffffu, x0, 1));
      x0 = fmaxf(x0, __shfl_xor_sync(0xffffffffu, x0, 2));
      x1 = fmaxf(x1, __shfl_xor_sync(0xffffffffu, x1, 1));
      x1 = fmaxf(x1, __shfl_xor_sync(0xffffffffu, x1, 2));
      const float r0 = power(m0 - x0), r1 = power(m1 - x1);
      m0 = x0;
      m1 = x1;
      l0 *= r0;
      l1 *= r1;
      uint32_t ph[4][4], pl[4][4];
#pragma unroll
      for (int i = 0; i < 8; i++) {
        const float2 b = *reinterpret_cast<const float2*>(sv + 8 * i + 2 * c);
        const float dx = __uint_as_float(0x7f000000u - __float_as_uint(b.x)), dy = __uint_as_float(0x7f000000u - __float_as_uint(b.y));
        const float p0 = power(s[i][0] - m0), p1 = power(s[i][1] - m0), p2 = power(s[i][2] - m1), p3 = power(s[i][3] - m1);
        l0 = fmaf(p0, dx, fmaf(p1, dy, l0));
        l1 = fmaf(p2, dx, fmaf(p3, dy, l1));
        pair_of(p0, p1, ph[i / 2][i % 2 * 2], pl[i / 2][i % 2 * 2]);
        pair_of(p2, p3, ph[i / 2][i % 2 * 2 + 1], pl[i / 2][i % 2 * 2 + 1]);
      }
      const uint32_t at_v = base + 64 * PITCH + ((lane / 8 % 2) * 8 + lane % 8) * PITCH + (lane / 16) * 16;
#pragma unroll
      for (int n = 0; n < 12; n += 4) {   // four times 8 columns
        float d[4][4];
#pragma unroll
        for (int i = 0; i < 4; i++) d[i][0] = d[i][1] = d[i][2] = d[i][3] = 0.0f;
#pragma unroll
        for (int i = 0; i < 4; i++) {
          uint32_t h0[4], h1[4], e0[4], e1[4];
          ldmatrix_t(h0, at_v + i * 16 * PITCH + n * 16);
          ldmatrix_t(h1, at_v + i * 16 * PITCH + (n + 2) * 16);
          ldmatrix_t(e0, at_v + i * 16 * PITCH + n * 16 + 2 * HS);
          ldmatrix_t(e1, at_v + i * 16 * PITCH + (n + 2) * 16 + 2 * HS);
          mma(d[0], pl[i], h0[0], h0[1]);
          mma(d[1], pl[i], h0[2], h0[3]);
          mma(d[2], pl[i], h1[0], h1[1]);
          mma(d[3], pl[i], h1[2], h1[3]);
          mma(d[0], ph[i], e0[0], e0[1]);
          mma(d[1], ph[i], e0[2], e0[3]);
          mma(d[2], ph[i], e1[0], e1[1]);
          mma(d[3], ph[i], e1[2], e1[3]);
          mma(d[0], ph[i], h0[0], h0[1]);
          mma(d[1], ph[i], h0[2], h0[3]);
          mma(d[2], ph[i], h1[0], h1[1]);
          mma(d[3], ph[i], h1[2], h1[3]);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) {
          o[n + i][0] = fmaf(o[n + i][0], r0, d[i][0]);
          o[n + i][1] = fmaf(o[n + i][1], r0, d[i][1]);
          o[n + i][2] = fmaf(o[n + i][2], r1, d[i][2]);
          o[n + i][3] = fmaf(o[n + i][3], r1, d[i][3]);
        }
      }
    }
    __syncthreads();
  }

  l0 += __shfl_xor_sync(0xffffffffu, l0, 1);
  l0 += __shfl_xor_sync(0xffffffffu, l0, 2);
  l1 += __shfl_xor_sync(0xffffffffu, l1, 1);
  l1 += __shfl_xor_sync(0xffffffffu, l1, 2);
  const int b = bh / NH, h = bh % NH, tile = b * (T / 128) + qt;
#pragma unroll
  for (int up = 0; up < 2; up++) {
    const float d = 1.0f / (up ? l1 : l0);
    unsigned top = 0;
#pragma unroll
    for (int j = 0; j < 12; j++) {
      o[j][2 * up] *= d;
      o[j][2 * up + 1] *= d;
      top = max(top, max(magnitude(o[j][2 * up]), magnitude(o[j][2 * up + 1])));
    }
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 1));
    top = max(top, __shfl_xor_sync(0xffffffffu, top, 2));
    const float s = scale_of(top);
    const int r = warp * 16 + g + 8 * up;
    if (c == 0) ys[((int64_t)tile * 128 + r) * NH + h] = inverse_of(top);
    uint32_t hi[12], lo[12];
#pragma unroll
    for (int j = 0; j < 12; j++) pair_of(o[j][2 * up] * s, o[j][2 * up + 1] * s, hi[j], lo[j]);
#pragma unroll
    for (int i = 0; i < 3; i++) {   // columns 24 c + 8 i to + 7 of the head
      const int e = 3 * c + i;
      char* at = yi + ((int64_t)(tile * CHUNKS + h * 3 + e / 4) * 128 + r) * 128;
      *reinterpret_cast<uint4*>(at + ((e % 4) ^ (r & 7)) * 16) = make_uint4(hi[4 * i], hi[4 * i + 1], hi[4 * i + 2], hi[4 * i + 3]);
      *reinterpret_cast<uint4*>(at + ((4 + e % 4) ^ (r & 7)) * 16) = make_uint4(lo[4 * i], lo[4 * i + 1], lo[4 * i + 2], lo[4 * i + 3]);
    }
  }
}

extern "C" int attention(const float* x, const float* wa, const float* ba, const float* wp, const float* bp, char* image,
                         char* weights, char* qkv, float* scales, float* out, int batch, int processors, cudaStream_t stream) {
  const int M = batch * T, heads = batch * NH, tiles_m = M / 128;
  char* wpi = weights + (int64_t)3 * C * C * 4;
  float *ia = scales, *ip = ia + 3 * C, *ix = ip + C, *ys = ix + M, *iqkv = ys + (int64_t)M * NH;
  split<<<(M + 4 * C) / 8, 256, 0, stream>>>(x, wa, wp, image, weights, wpi, ix, ia, ip, M);
  cudaError_t status = cudaFuncSetAttribute(project<true>, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(project<false>, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(attend, cudaFuncAttributeMaxDynamicSharedMemorySize, ATT_SMEM);
  if (status != cudaSuccess) return status;
  project<true><<<min(processors, tiles_m * 12), 384, SMEM, stream>>>(image, weights, ix, ia, ba, qkv, iqkv, nullptr, tiles_m);
  attend<<<heads * (T / 128), 256, ATT_SMEM, stream>>>(qkv, iqkv, image, ys, heads);   // y takes the place of x
  project<false><<<min(processors, tiles_m * 4), 384, SMEM, stream>>>(image, wpi, ys, ip, bp, nullptr, nullptr, out, tiles_m);
  return cudaGetLastError();
}
""".replace("REGISTERS", ", ".join(f"%{i}" for i in range(96)))
FLAGS = ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]


def build(source: str) -> ctypes.CDLL:
    name = "kernel_" + hashlib.sha256((source + str(FLAGS)).encode()).hexdigest()[:16]
    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or cpp_extension.get_default_build_root()) / name
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "kernel.cu"
    if not file.exists():
        file.write_text(source)
    cpp_extension.load(name=name, sources=[str(file)], extra_cuda_cflags=FLAGS,
                       build_directory=str(folder), is_python_module=False, with_cuda=True)
    return ctypes.CDLL(str(folder / f"{name}.so"))


LIBRARY = build(SOURCE)
LIBRARY.attention.argtypes = [ctypes.c_void_p] * 10 + [ctypes.c_int] * 2 + [ctypes.c_void_p]
LIBRARY.attention.restype = ctypes.c_int


class ModelNew(nn.Module):
    """
    A vanilla multi-head masked self-attention layer with a projection at the end.
    """

    def __init__(self, n_embd, n_head, attn_pdrop, resid_pdrop, max_seqlen):
        super().__init__()
        assert n_embd % n_head == 0
        # key, query, value projections for all heads, but in a batch
        self.c_attn = nn.Linear(n_embd, 3 * n_embd)
        # output projection
        self.c_proj = nn.Linear(n_embd, n_embd)
        # regularization
        self.attn_dropout = nn.Dropout(attn_pdrop)
        self.resid_dropout = nn.Dropout(resid_pdrop)
        # causal mask to ensure that attention is only applied to the left in the input sequence
        self.register_buffer("bias", torch.tril(torch.ones(max_seqlen, max_seqlen))
                                     .view(1, 1, max_seqlen, max_seqlen))
        self.n_head = n_head
        self.n_embd = n_embd

    @torch.no_grad()
    def forward(self, x):
        if x.dim() != 3 or x.shape[1:] != (512, 768) or self.n_head != 8 or self.n_embd != 768 or x.shape[0] == 0:
            raise RuntimeError("shape not supported")
        if x.shape[0] > 1024 or self.bias.shape[-1] < 512:
            raise RuntimeError("shape not supported")
        if self.training and (self.attn_dropout.p > 0 or self.resid_dropout.p > 0):
            raise RuntimeError("dropout not supported")
        wa, ba, wp, bp = self.c_attn.weight, self.c_attn.bias, self.c_proj.weight, self.c_proj.bias
        if not all(t.is_cuda and t.dtype == torch.float32 and t.device == x.device for t in (x, wa, ba, wp, bp)):
            raise RuntimeError("tensors not supported")
        x, wa, ba, wp, bp = (t.contiguous() for t in (x, wa, ba, wp, bp))
        x, wa, ba, wp, bp = (t.clone() if t.data_ptr() % 16 else t for t in (x, wa, ba, wp, bp))
        dev, batch = x.device, x.shape[0]
        rows = batch * 512
        image = torch.empty((rows * 768 * 4,), device=dev, dtype=torch.uint8)
        weights = torch.empty((4 * 768 * 768 * 4,), device=dev, dtype=torch.uint8)
        qkv = torch.empty((3 * rows * 768 * 4,), device=dev, dtype=torch.uint8)
        scales = torch.empty((4 * 768 + rows * (1 + 8 + 24),), device=dev, dtype=torch.float32)
        out = torch.empty((batch, 512, 768), device=dev, dtype=torch.float32)
        processors = torch.cuda.get_device_properties(dev).multi_processor_count
        with torch.cuda.device(dev):
            status = LIBRARY.attention(x.data_ptr(), wa.data_ptr(), ba.data_ptr(), wp.data_ptr(), bp.data_ptr(),
                                       image.data_ptr(), weights.data_ptr(), qkv.data_ptr(), scales.data_ptr(),
                                       out.data_ptr(), batch, processors, torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"attention: CUDA error {status}")
        return out

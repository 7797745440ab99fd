# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:1/50 (text 86ecad0e77b2c9f8)
# kernel      f4a4d143693b778a, cuda
# run         50-20261127-181234-bd65, seed 0, generation 2
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 3.6e-05 against the fp64 truth (the reference's own: 8.2e-07)
# speedup     11.695 times PyTorch eager, 95 % interval 11.674 to 11.716
# times       0.2307 ms; eager 2.697 ms in the same rounds
# KernelBench 9.70× over eager, 281 µs, eager 2.72 ms, by its way of timing (cuda_event), which includes slow launches
# launches    2 a call, for which the host needs 69.7 µs, eager 59.9 µs
# measured    2026-11-27 22:07 UTC
# again with  kbevolve evaluate level_1_problem_50_sample_0_kernel.py --problem kernelbench:1/50 --device cuda
#
# lineage, newest first:
#   f4a4d143693b778a  g2    rewrite   11.750x  Pack the lone eleventh columns: 23 steps of K instead of 25 (whole file)
#   71b3ca524c6b633d  g1    mutate    11.269x  Two sets of A fragments, wait_group 1 (5 edits)
#   4425183c33d22c3e  g0    seed      11.179x  given: level_1_problem_50_sample_0_kernel.py
# ---- end of provenance ----

"""A convolution 3 -> 96, 11 x 11, step 4: one fp16 product and two fp8 ones, x split on the way into shared memory.

The three last columns of a row are packed: 363 products of an output are 23 steps of 16, not 25.
"""

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
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#define ORDER 0  // tune: 0, 1
#define TURNS 1  // tune: 0, 1

// x [256, 3, 224, 224] becomes 57 x 57 pixels of 3 channels x 4 rows x 4 columns, beginning at row and column -2. An
// output meets 3 x 3 pixels. A group is 4 columns of one row of one channel of one pixel. 66 groups are complete; of the
// 33 in the third pixel, only 3 columns count, and four of these are packed into three: A, B, C. A step of K = 16 has a
// group for each of the 4 lanes of a quad, a unit (K = 32 in fp8) has two steps:
//   units 0 to 6: plain groups 0 to 13; 7: A, B; 8: C, plain 14; 9: A, B; 10: C, plain 15; 11: plain 16, nothing
constexpr int FILTERS = 96, SIDE = 55, PLACES = SIDE * SIDE, PAIRS = 24, IMAGES = 256;   // a pair of tiles: 128 places
constexpr int SLOTS = 8;
constexpr int PLANE16 = 480, PLANE8 = 288;        // bytes of a row of 57 groups, padded against bank conflicts
constexpr int LOW = 12 * PLANE16, SLOT = LOW + 12 * PLANE8;
constexpr int STEPS = 23, UNITS = 12;
constexpr int W16 = STEPS * 3072, W8 = 2 * UNITS * 1536;    // two (fp16) or one (fp8) planes of 96 x 16 bytes for a step
constexpr int WEIGHTS = W16 + 2 * W8, TABLE = FILTERS * 8;
constexpr int RING = WEIGHTS, TABLE_AT = RING + SLOTS * SLOT, BARS = TABLE_AT + TABLE;
constexpr int SMEM = BARS + 8 * (2 * SLOTS + 1) + 8;
static_assert(SMEM <= 232448 && WEIGHTS % 96 == 0, "shared memory");

// Which channel, row and column the plain group p of lane q has as its number e; false for none.
__device__ __forceinline__ bool plain_of(int p, int q, int e, int& c, int& kh, int& kw) {
  if (p < 12) {
    c = p % 6 / 2, kh = p / 6 * 4 + q, kw = p % 2 * 4 + e;
    return true;
  }
  const int t = p - 12;
  if (q < 3) {
    c = t / 2, kh = 8 + q, kw = t % 2 * 4 + e;
    return true;
  }
  c = 2, kh = t < 3 ? 8 + t : 10, kw = (t < 3 ? 4 : 8) + e;
  return t < 4 && kw < 11;
}

// The same for the number e of step s.
__device__ __forceinline__ bool element_of(int s, int q, int e, int& c, int& kh, int& kw) {
  if (s < 14) return plain_of(s, q, e, c, kh, kw);
  if (s == 17) return plain_of(14, q, e, c, kh, kw);
  if (s == 21) return plain_of(15, q, e, c, kh, kw);
  if (s == 22) return plain_of(16, q, e, c, kh, kw);
  if (s > 22) return false;
  const int pack = s >= 18, kind = s - (pack ? 18 : 14);
  int i;   // of the 8 groups that are packed
  if (kind == 0) {
    i = e < 3 ? 0 : 1;
    kw = e < 3 ? 8 + e : 10;
  } else if (kind == 1) {
    i = e < 2 ? 1 : 2;
    kw = 8 + e % 2;
  } else {
    i = e == 0 ? 2 : 3;
    kw = e < 2 ? 10 : 6 + e;
  }
  i += 4 * pack;
  if (i < 6) {
    c = i % 3, kh = i / 3 * 4 + q;
  } else if (q < 3) {
    c = i - 6, kh = 8 + q;
  } else {
    c = 2, kh = 8 + i - 6;
  }
  return true;
}

__global__ void __launch_bounds__(384) pack_filters(const float* w, const float* bias, uint8_t* packed) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  __shared__ unsigned top;
  const int f = blockIdx.x, p = threadIdx.x;
  if (p == 0) top = 0;
  __syncthreads();
  unsigned m = 0;
  if (p < 363) {
    const unsigned u = __float_as_uint(w[f * 363 + p]) & 0x7fffffffu;
    if (u < 0x7f800000u) m = u;
  }
  m = __reduce_max_sync(0xffffffffu, m);
  if (p % 32 == 0) atomicMax(&top, m);
  __syncthreads();
  // a power of two that brings the largest finite magnitude to [2^14, 2^15)
  const int power = min(268 - (int)(top >> 23), 253);
  const float scale = __uint_as_float((unsigned)power << 23);
  const int s = p / 16, q = p % 16 / 4, e = p % 4;
  int c, kh, kw;
  float v = 0.0f;
  if (element_of(s, q, e, c, kh, kw)) v = w[f * 363 + c * 121 + kh * 11 + kw] * scale;
  const __half high = __float2half_rn(v);
  const float low = (v - __half2float(high)) * 16.0f;
  if (s < STEPS)
    *reinterpret_cast<__half*>(packed + s * 3072 + (e >> 1) * 1536 + f * 16 + (2 * q + (e & 1)) * 2) = high;
  uint8_t* to = packed + W16 + s * 1536 + f * 16 + 4 * q + e;
  to[0] = __nv_cvt_float_to_fp8(v * 0.0078125f, __NV_SATFINITE, __NV_E4M3);
  to[W8] = __nv_cvt_float_to_fp8(low, __NV_SATFINITE, __NV_E4M3);
  if (p == 0) {
    // for a pair of filters: two factors (x comes 16 times as large) and two biases
    float* table = reinterpret_cast<float*>(packed + WEIGHTS) + f / 2 * 4 + f % 2;
    table[0] = __uint_as_float((unsigned)(254 - power) << 23) * 0.0625f;
    table[2] = bias[f];
  }
}

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
__device__ __forceinline__ void bulk_copy(uint32_t to, const void* from, int bytes, uint32_t bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
               ::"r"(to), "l"(from), "r"(bytes), "r"(bar) : "memory");
}

#define F4(p, i) "+f"(p[i]), "+f"(p[i + 1]), "+f"(p[i + 2]), "+f"(p[i + 3])
#define F16(p, i) F4(p, i), F4(p, i + 4), F4(p, i + 8), F4(p, i + 12)
#define REGISTERS48 \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, " \
  "%32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47}, " \
  "{%48, %49, %50, %51}, %52, "
// p (64 x 96) = or += 64 x 16 in registers times 16 x 96 in shared memory
__device__ __forceinline__ void product16(float (&p)[48], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile("{ .reg .pred q; setp.ne.b32 q, %53, 0; wgmma.mma_async.sync.aligned.m64n96k16.f32.f16.f16 "
               REGISTERS48 "q, 1, 1, 0; }"
               : F16(p, 0), F16(p, 16), F16(p, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}
__device__ __forceinline__ void product8(float (&p)[48], const uint32_t (&a)[4], uint64_t b, int add) {
  asm volatile("{ .reg .pred q; setp.ne.b32 q, %53, 0; wgmma.mma_async.sync.aligned.m64n96k32.f32.e5m2.e4m3 "
               REGISTERS48 "q, 1, 1; }"
               : F16(p, 0), F16(p, 16), F16(p, 32)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(add));
}

// Four e5m2 numbers of four fp16 ones: the high bytes, rounded.
__device__ __forceinline__ uint32_t high_bytes(uint32_t a, uint32_t b) {
  uint32_t r;
  asm volatile("{ .reg .b32 t, u; add.u32 t, %1, 0x00800080; add.u32 u, %2, 0x00800080; prmt.b32 %0, t, u, 0x7531; }"
               : "=r"(r) : "r"(a), "r"(b));
  return r;
}
__device__ __forceinline__ uint32_t moved(uint32_t a, uint32_t zero) {
  uint32_t r;
  asm volatile("xor.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(zero));
  return r;
}

template <int FORM>
__device__ __forceinline__ uint32_t joined(uint32_t a, uint32_t b) {
  uint32_t r;
  asm volatile("prmt.b32 %0, %1, %2, %3;" : "=r"(r) : "r"(a), "r"(b), "n"(FORM));
  return r;
}

// The pairs of tiles of one image that a block has, and the pixel rows that they need.
struct Segment {
  int image, begin, end, first, last;
};
__device__ __forceinline__ Segment segment_of(int pair, int stop) {
  Segment g;
  g.image = pair / PAIRS;
  g.begin = pair - g.image * PAIRS;
  g.end = min(PAIRS, g.begin + stop - pair);
  g.first = g.begin * 128 / SIDE;
  g.last = (min(g.end * 128, PLACES) - 1) / SIDE + 2;
  return g;
}

__device__ __forceinline__ float2 load_two(const float* p, bool there) {
  float2 v;
  asm volatile("{ .reg .pred P; setp.ne.b32 P, %3, 0; mov.f32 %0, 0f00000000; mov.f32 %1, 0f00000000; "
               "@P ld.global.nc.v2.f32 {%0, %1}, [%2]; }"
               : "=f"(v.x), "=f"(v.y) : "l"(p), "r"((int)there));
  return v;
}

// One pixel row: a thread has one pixel, and 6 of 12 rows of x.
__device__ __forceinline__ void fetch(float2 (&v)[12], const float* x, int image, int row, int pixel, int odd) {
  const float* p = x + (int64_t)image * 150528 + (4 * row - 2 + odd) * 224 + 4 * pixel - 2;
  const bool left = pixel > 0 && pixel < 57, right = pixel < 56;
#pragma unroll
  for (int i = 0; i < 6; i++) {
    const int h = 4 * row - 2 + odd + 2 * (i & 1);
    const bool inside = h >= 0 && h < 224;
    const float* from = p + (i >> 1) * 50176 + (i & 1) * 448;
    v[2 * i] = load_two(from, inside && left);
    v[2 * i + 1] = load_two(from + 2, inside && right);
  }
}

__device__ __forceinline__ uint32_t bits_of(__half2 a) { return *reinterpret_cast<uint32_t*>(&a); }

// One group of both rows of a thread: h has the first two columns of the rows, then the last two.
__device__ __forceinline__ void load_group(uint32_t (&h)[4], uint32_t (&l)[2], uint32_t to16, uint32_t to8,
                                           const uint32_t (&at16)[2][3], const uint32_t (&at8)[2][3], int u) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(h[r]), "=r"(h[2 + r]) : "r"(at16[r][u] + to16));
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(l[r]) : "r"(at8[r][u] + to8));
  }
}

// Where, behind the addresses below, a thread finds a group; the planes of high and low parts differ in size.
__device__ __forceinline__ uint32_t plain_offset(int p, int q, int plane, int size) {
  if (p < 12) return p % 6 / 2 * 4 * plane + p % 2 * size;
  const int t = p - 12;
  return q < 3 ? t / 2 * 4 * plane + t % 2 * size : (t < 3 ? t * plane + size : 2 * plane + 2 * size);
}
__device__ __forceinline__ uint32_t packed_offset(int i, int q, int plane, int size) {
  if (i < 6) return i % 3 * 4 * plane + 2 * size;
  return (q < 3 ? (i - 6) * 4 * plane : (i - 6) * plane) + 2 * size;
}
__device__ __forceinline__ void load_plain(uint32_t (&h)[4], uint32_t (&l)[2], const uint32_t (&at16)[2][3],
                                           const uint32_t (&at8)[2][3], int p, int q) {
  load_group(h, l, plain_offset(p, q, PLANE16, 8), plain_offset(p, q, PLANE8, 4), at16, at8, p < 12 ? p / 6 : 2);
}
__device__ __forceinline__ void load_packed(uint32_t (&h)[4], uint32_t (&l)[2], const uint32_t (&at16)[2][3],
                                            const uint32_t (&at8)[2][3], int i, int q) {
  load_group(h, l, packed_offset(i, q, PLANE16, 8), packed_offset(i, q, PLANE8, 4), at16, at8, i < 6 ? i / 3 : 2);
}

// What a unit needs. Units 8 and 10 also need the third group of the unit before, which stays where it is.
__device__ __forceinline__ void take(uint32_t (&rh)[3][4], uint32_t (&rl)[3][2], const uint32_t (&at16)[2][3],
                                     const uint32_t (&at8)[2][3], int unit, int q) {
  if (unit == 7 || unit == 9) {
    const int i = (unit - 7) * 2;
    load_packed(rh[0], rl[0], at16, at8, i, q);
    load_packed(rh[1], rl[1], at16, at8, i + 1, q);
    load_packed(rh[2], rl[2], at16, at8, i + 2, q);
  } else if (unit == 8 || unit == 10) {
    load_packed(rh[1], rl[1], at16, at8, (unit - 8) * 2 + 3, q);
    load_plain(rh[0], rl[0], at16, at8, 10 + unit / 2, q);
  } else if (unit == 11) {
    load_plain(rh[0], rl[0], at16, at8, 16, q);
  } else {
    load_plain(rh[0], rl[0], at16, at8, 2 * unit, q);
    load_plain(rh[1], rl[1], at16, at8, 2 * unit + 1, q);
  }
}

// The fragments of a unit's two steps: high parts in fp16, low ones in fp8.
__device__ __forceinline__ void arrange(uint32_t (&ah)[2][4], uint32_t (&al)[4], const uint32_t (&rh)[3][4],
                                        const uint32_t (&rl)[3][2], int unit, uint32_t zero) {
#pragma unroll
  for (int r = 0; r < 2; r++) {
    if (unit == 7 || unit == 9) {
      ah[0][r] = moved(rh[0][r], zero);
      ah[0][2 + r] = joined<0x5410>(rh[0][2 + r], rh[1][2 + r]);
      al[r] = joined<0x6210>(rl[0][r], rl[1][r]);
      ah[1][r] = moved(rh[1][r], zero);
      ah[1][2 + r] = moved(rh[2][r], zero);
      al[2 + r] = joined<0x5410>(rl[1][r], rl[2][r]);
    } else {
      if (unit == 8 || unit == 10) {
        ah[0][r] = joined<0x5410>(rh[2][2 + r], rh[1][2 + r]);
        ah[0][2 + r] = moved(rh[1][r], zero);
        al[r] = joined<0x5462>(rl[2][r], rl[1][r]);
      } else {
        ah[0][r] = moved(rh[0][r], zero);
        ah[0][2 + r] = moved(rh[0][2 + r], zero);
        al[r] = moved(rl[0][r], zero);
      }
      const int from = unit >= 8 ? 0 : 1;   // the last half unit meets weights of zero: any numbers of the same place
      ah[1][r] = moved(rh[from][r], zero);
      ah[1][2 + r] = moved(rh[from][2 + r], zero);
      al[2 + r] = moved(rl[from][r], zero);
    }
  }
}

__global__ void __launch_bounds__(384, 1)
convolve_all(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ bias,
             const uint8_t* packed, float* out, uint32_t zero) {
  extern __shared__ __align__(1024) char raw[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(raw);
  const uint32_t ring = base + RING, full = base + BARS, empty = full + 8 * SLOTS, ready = empty + 8 * SLOTS;
  const int lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < SLOTS; s++) {
      bar_init(full + 8 * s, 4);    // a warp each
      bar_init(empty + 8 * s, 8);
    }
    bar_init(ready, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();
  const int start = (int)((int64_t)blockIdx.x * (IMAGES * PAIRS) / gridDim.x);
  const int stop = (int)((int64_t)(blockIdx.x + 1) * (IMAGES * PAIRS) / gridDim.x);

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 72;");
    if (start >= stop) return;
    const int pixel = threadIdx.x & 63, odd = threadIdx.x >> 6;
    int pair = start;
    Segment g = segment_of(pair, stop);
    int row = g.first;
    float2 v[12];
    fetch(v, x, g.image, row, pixel, odd);
    if (threadIdx.x == 0) {
      asm volatile("griddepcontrol.wait;" ::: "memory");
      bar_expect(ready, WEIGHTS + TABLE);
      for (int i = 0; i < 6; i++)
        bulk_copy(base + i * (WEIGHTS / 6), packed + i * (WEIGHTS / 6), WEIGHTS / 6, ready);
      bulk_copy(base + TABLE_AT, packed + WEIGHTS, TABLE, ready);
    }
    __syncwarp();
    const uint32_t to16 = ring + odd * PLANE16 + pixel * 8, to8 = ring + LOW + odd * PLANE8 + pixel * 4;
    for (int seq = 0;; seq++) {
      uint32_t high[6][2], low[6];
#pragma unroll
      for (int i = 0; i < 6; i++) {
        const float a = v[2 * i].x * 16.0f, b = v[2 * i].y * 16.0f;
        const float c = v[2 * i + 1].x * 16.0f, d = v[2 * i + 1].y * 16.0f;
        const __half2 ab = __floats2half2_rn(a, b), cd = __floats2half2_rn(c, d);
        const float2 ab2 = __half22float2(ab), cd2 = __half22float2(cd);
        const __half2 lab = __floats2half2_rn((a - ab2.x) * 2048.0f, (b - ab2.y) * 2048.0f);
        const __half2 lcd = __floats2half2_rn((c - cd2.x) * 2048.0f, (d - cd2.y) * 2048.0f);
        high[i][0] = bits_of(ab);
        high[i][1] = bits_of(cd);
        low[i] = high_bytes(bits_of(lab), bits_of(lcd));
      }
      bool more = true;
      if (++row > g.last) {
        pair += g.end - g.begin;
        more = pair < stop;
        if (more) {
          g = segment_of(pair, stop);
          row = g.first;
        }
      }
      if (more) fetch(v, x, g.image, row, pixel, odd);
      const int slot = seq & (SLOTS - 1);
      bar_wait(empty + 8 * slot, ((seq / SLOTS) & 1) ^ 1);
      if (pixel < 57) {
#pragma unroll
        for (int i = 0; i < 6; i++) {
          asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                       ::"r"(to16 + slot * SLOT + 2 * i * PLANE16), "r"(high[i][0]), "r"(high[i][1]) : "memory");
          asm volatile("st.shared.b32 [%0], %1;" ::"r"(to8 + slot * SLOT + 2 * i * PLANE8), "r"(low[i]) : "memory");
        }
      }
      __syncwarp();
      if (lane == 0) bar_arrive(full + 8 * slot);
      if (!more) break;
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 216;");
    if (start >= stop) return;
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, quad = lane / 4, q = lane % 4;
    const bool odd = q & 1;
    const float4* table = reinterpret_cast<const float4*>(raw + TABLE_AT);
    // no swizzle: 1536 bytes from 8 (fp8: 16) columns of K to the next, 128 from 8 filters to the next
    const uint64_t form = (uint64_t)8 << 32 | (uint64_t)96 << 16;
    const uint64_t b16 = form | base >> 4, b8high = form | (base + W16) >> 4, b8low = form | (base + W16 + W8) >> 4;
    bar_wait(ready, 0);
    float tiny = 0.0f;
    for (int i = 0; i < FILTERS / 2; i++) tiny = fmaxf(tiny, fmaxf(table[i].x, table[i].y));
    tiny *= 32.0f;

    float h[48], s[48];
#pragma unroll
    for (int i = 0; i < 48; i++) h[i] = s[i] = 0.0f;
    int known = 0, freed = 0, origin = 0;   // rows waited for, rows given back, number of a segment's first row
    for (int pair = start; pair < stop;) {
      const Segment g = segment_of(pair, stop);
      const int number = origin - g.first;   // of the image's row 0
#pragma unroll 1
      for (int t = g.begin; t < g.end; t++, pair++) {
        const int m0 = t * 128 + group * 64;
        const int need = number + min(m0 + 63, PLACES - 1) / SIDE + 2;
        for (; known <= need; known++) bar_wait(full + 8 * (known & (SLOTS - 1)), (known / SLOTS) & 1);
        uint32_t at16[2][3], at8[2][3];
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int m = min(m0 + warp * 16 + quad + 8 * r, PLACES - 1), oh = m / SIDE, ow = m - oh * SIDE;
#pragma unroll
          for (int u = 0; u < 3; u++) {
            const uint32_t slot = ring + ((number + oh + u) & (SLOTS - 1)) * SLOT;
            const int plane = u < 2 || q < 3 ? q : 8;
            at16[r][u] = slot + ow * 8 + plane * PLANE16;
            at8[r][u] = slot + LOW + ow * 4 + plane * PLANE8;
          }
        }
        // two sets of fragments: one is written while the products of the other run
        uint32_t rh[3][4], rl[3][2], ah[2][2][4], al[2][4], a8[2][4];
        take(rh, rl, at16, at8, 0, q);
        if (TURNS) {   // half a tile behind the other warpgroup
          if (group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
          else if (pair > start) asm volatile("bar.sync 2, 256;" ::: "memory");
        }
#pragma unroll
        for (int c = 0; c < UNITS; c++) {
          arrange(ah[c & 1], al[c & 1], rh, rl, c, zero);   // unit c - 1 may still run, and has the other set
#pragma unroll
          for (int half = 0; half < 2; half++) {
            a8[c & 1][2 * half] = high_bytes(ah[c & 1][half][0], ah[c & 1][half][2]);
            a8[c & 1][2 * half + 1] = high_bytes(ah[c & 1][half][1], ah[c & 1][half][3]);
          }
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
          product16(h, ah[c & 1][0], b16 + 2 * c * 192, c > 0);
          if (ORDER && 2 * c + 1 < STEPS) product16(h, ah[c & 1][1], b16 + (2 * c + 1) * 192, 1);
          product8(s, a8[c & 1], b8low + c * 192, c > 0);
          if (!ORDER && 2 * c + 1 < STEPS) product16(h, ah[c & 1][1], b16 + (2 * c + 1) * 192, 1);
          product8(s, al[c & 1], b8high + c * 192, 1);
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          if (c + 1 < UNITS) {
            take(rh, rl, at16, at8, c + 1, q);
            asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory");   // the set of unit c - 1 is free
          } else {
            asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          }
          if (TURNS && c == UNITS / 2) {
            if (group == 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
            else if (pair + 1 < stop) asm volatile("bar.arrive 2, 256;" ::: "memory");
          }
        }
#pragma unroll
        for (int k = 0; k < 48; k++) asm volatile("" : "+f"(h[k]), "+f"(s[k])::"memory");

        // give back the rows that the next tile does not need
        const int until = number + (t + 1 == g.end ? g.last + 1 : (m0 + 128) / SIDE);
        for (; known < until; known++) bar_wait(full + 8 * (known & (SLOTS - 1)), (known / SLOTS) & 1);
        __syncwarp();
        for (; freed < until; freed++)
          if (lane == 0) bar_arrive(empty + 8 * (freed & (SLOTS - 1)));
        __syncwarp();

        // Neighbours exchange, so that a thread has one place (16 in a row for a warp) and every second pair of filters.
        const int place = m0 + warp * 16 + quad + (odd ? 8 : 0);
        const bool there = place < PLACES;
        float* image_out = out + (int64_t)g.image * (FILTERS * PLACES);
        float* o = image_out + (q >> 1) * (4 * PLACES) + place;
        float wrong = 0.0f, most = 0.0f;
#pragma unroll
        for (int j = 0; j < 12; j++) {
          const float4 f = table[4 * j + q];
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const float factor = e ? f.y : f.x, shift = e ? f.w : f.z;
            const float v0 = fmaf(fmaf(s[4 * j + e], 0.0625f, h[4 * j + e]), factor, shift);
            const float v1 = fmaf(fmaf(s[4 * j + 2 + e], 0.0625f, h[4 * j + 2 + e]), factor, shift);
            const float other = __shfl_xor_sync(0xffffffffu, odd ? v0 : v1, 1);
            const float a = odd ? other : v0, b = odd ? v1 : other;
            wrong = fmaf(a, 0.0f, fmaf(b, 0.0f, wrong));   // NaN where one is not finite
            most = fmaxf(most, fmaxf(fabsf(a), fabsf(b)));
            if (there) {
              o[(8 * j + e) * PLACES] = a;
              o[(8 * j + e + 2) * PLACES] = b;
            }
          }
        }
        // x may have been too large or too small for its parts: such places again, exactly, by the whole warp.
        wrong += __shfl_xor_sync(0xffffffffu, wrong, 2);
        most = fmaxf(most, __shfl_xor_sync(0xffffffffu, most, 2));
        unsigned todo = __ballot_sync(0xffffffffu, there && q < 2 && (!(wrong == 0.0f) || most < tiny));
        if (todo) {
          __syncwarp();
          const float* image_x = x + (int64_t)g.image * 150528;
#pragma unroll 1
          while (todo) {
            const int m = __shfl_sync(0xffffffffu, place, __ffs(todo) - 1), oh = m / SIDE, ow = m - oh * SIDE;
            todo &= todo - 1;
            float sum0 = 0.0f, sum1 = 0.0f, sum2 = 0.0f;
#pragma unroll 1
            for (int k = 0; k < 33; k++) {
              const int channel = k / 11, line = 4 * oh - 2 + k % 11;
              if (line < 0 || line >= 224) continue;
#pragma unroll 1
              for (int l = 0; l < 11; l++) {
                const int column = 4 * ow - 2 + l;
                if (column < 0 || column >= 224) continue;
                const float value = image_x[channel * 50176 + line * 224 + column];
                const float* weight = w + lane * 363 + k * 11 + l;
                sum0 = fmaf(value, weight[0], sum0);
                sum1 = fmaf(value, weight[32 * 363], sum1);
                sum2 = fmaf(value, weight[64 * 363], sum2);
              }
            }
            image_out[lane * PLACES + m] = sum0 + bias[lane];
            image_out[(lane + 32) * PLACES + m] = sum1 + bias[lane + 32];
            image_out[(lane + 64) * PLACES + m] = sum2 + bias[lane + 64];
          }
          __syncwarp();
        }
      }
      origin += g.last - g.first + 1;
    }
  }
}

extern "C" int convolve(const float* x, const float* w, const float* bias, uint8_t* packed, float* out,
                        cudaStream_t stream) {
  int device = 0, processors = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (status != cudaSuccess) return status;
  pack_filters<<<FILTERS, 384, 0, stream>>>(w, bias, packed);
  status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(convolve_all, cudaFuncAttributeMaxDynamicSharedMemorySize, SMEM);
  if (status != cudaSuccess) return status;
  // may begin while the filters are packed, and waits for them itself
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(processors);
  config.blockDim = dim3(384);
  config.dynamicSmemBytes = SMEM;
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  status = cudaLaunchKernelEx(&config, convolve_all, x, w, bias, (const uint8_t*)packed, out, (uint32_t)0);
  if (status != cudaSuccess) return status;
  return cudaGetLastError();
}
"""
FLAGS = ["-O3", "-gencode=arch=compute_90a,code=sm_90a"]
PACKED = 23 * 3072 + 2 * 24 * 1536 + 96 * 8  # bytes of the packed filters, their factors and biases


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
LIBRARY.convolve.argtypes = [ctypes.c_void_p] * 6


def convolution(x, weight, bias):
    if x.data_ptr() % 8:
        x = x.clone()
    packed = torch.empty(PACKED, device=x.device, dtype=torch.uint8)
    out = torch.empty((256, 96, 55, 55), device=x.device, dtype=torch.float32)
    status = LIBRARY.convolve(x.data_ptr(), weight.data_ptr(), bias.data_ptr(), packed.data_ptr(), out.data_ptr(),
                              torch.cuda.current_stream().cuda_stream)
    if status:
        raise RuntimeError(f"convolve: CUDA error {status}")
    return out


class ModelNew(nn.Module):
    def __init__(self, num_classes=1000):
        super(ModelNew, self).__init__()
        self.conv1 = nn.Conv2d(in_channels=3, out_channels=96, kernel_size=11, stride=4, padding=2)

    @torch.no_grad()
    def forward(self, x):
        weight, bias = self.conv1.weight, self.conv1.bias
        if tuple(x.shape) != (256, 3, 224, 224) or tuple(weight.shape) != (96, 3, 11, 11):
            raise RuntimeError("shape not supported")
        if x.dtype != torch.float32 or weight.dtype != torch.float32 or bias.dtype != torch.float32:
            raise RuntimeError("type not supported")
        if not (x.is_cuda and weight.is_cuda and bias.is_cuda):
            raise RuntimeError("device not supported")
        return convolution(x.contiguous(), weight.contiguous(), bias.contiguous())

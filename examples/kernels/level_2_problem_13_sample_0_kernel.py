# Exported by kbevolve 0.1.0 on 2026-11-27; the kernel follows this block.
#
# problem     kernelbench:2/13 (text f33a027962c4ffa7)
# kernel      babdced256a55bbc, cuda
# run         13-20261127-181517-94f4, seed 0, generation 2
# device      NVIDIA H200, 132 SMs, 150 GB, sm_90, CUDA 13.0, torch 2.11.0+cu130, Triton 3.6.0 (cuda/NVIDIA H200/sm_90/torch 2.11.0+cu130/CUDA 13.0/Triton 3.6.0)
# verdict     CORRECT, asked for fp32; error 9.4e-06 against the fp64 truth (the reference's own: 1.2e-05)
# speedup     107.247 times PyTorch eager, 95 % interval 107.153 to 107.341
# times       0.2075 ms; eager 22.26 ms in the same rounds
# KernelBench 103× over eager, 217 µs, eager 22.3 ms, by its way of timing (cuda_event), which includes slow launches
# launches    1 a call, for which the host needs 56.4 µs, eager 265 µs
# measured    2026-11-27 22:08 UTC
# again with  kbevolve evaluate level_2_problem_13_sample_0_kernel.py --problem kernelbench:2/13 --device cuda
#
# lineage, newest first:
#   babdced256a55bbc  g2    rewrite  106.135x  One CUDA kernel: strips that swap boundary sums, deep register streamin…
#   54899ec0782f8281  g1    mutate   105.966x  L2 prefetch some chunks ahead of the register loads (12 edits)
#   09eced2c59767899  g0    seed      98.149x  given: level_2_problem_13_sample_0_kernel.py
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
#include <cuda_runtime.h>
#include <cuda_fp16.h>

#define L2_HINT 1  // tune: 0, 1
#define STREAM_OUT 0  // tune: 0, 1

// Summed over the outputs' depths, x[d] meets all three taps of the filter's depth, but x[0] only the last two, and x[31]
// only the first two. So three planes for each channel, the sum of x[1..30], x[0] and x[31], with three sums of weights,
// give the sum over depth by a convolution in two dimensions.
//
// A strip is 16 rows of a sample. Its ring has rows 0..17: 1..16 are its own, 0 and 17 come from its neighbours. Strips
// run downwards and upwards by turns, so neighbours have the rows that they share at the same time.

constexpr int PLANE_ROW = 130 * 16;           // 130 pixels of 8 channels in fp16
constexpr int SLOT = 12 * PLANE_ROW;          // [plane][hi, lo][half of the channels][pixel][8 channels]
constexpr int RING = 54 * 2048;               // weights: [tap][plane][hi, lo][half of the channels][filter][8 channels]
constexpr int COLUMN = RING + 4 * SLOT;
constexpr int SHIFT = COLUMN + 256;
constexpr int BAD = SHIFT + 256;
constexpr int STAT = BAD + 128;
constexpr int BARS = STAT + 16;
constexpr int SHARED = BARS + 64;
constexpr int EXCHANGE = 12 * 2048;           // a row as in a slot, without the zeros at both ends

// For each strip: its first and its last row are in the exchange (1, or 2 if flagged). The reader sets it back to 0.
__device__ unsigned strip_flags[256];

__device__ __forceinline__ float4 ldx(const float* p) {
  float4 v;
#if L2_HINT
  asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
#else
  asm volatile("ld.global.nc.L1::no_allocate.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(v.x), "=f"(v.y), "=f"(v.z), "=f"(v.w) : "l"(p));
#endif
  return v;
}

__device__ __forceinline__ void add4(float4& a, const float4& b) {
  a.x += b.x;
  a.y += b.y;
  a.z += b.z;
  a.w += b.w;
}

__device__ __forceinline__ float get(const float4& v, int e) { return e == 0 ? v.x : e == 1 ? v.y : e == 2 ? v.z : v.w; }

__device__ __forceinline__ float ex2(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

__device__ __forceinline__ void bar_sync(int id, int n) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ __forceinline__ void bar_arrive(int id, int n) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(n) : "memory"); }
__device__ __forceinline__ void fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

__device__ __forceinline__ void mbar_init(uint32_t bar, uint32_t count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count) : "memory");
}
__device__ __forceinline__ void mbar_arrive(uint32_t bar) {
  asm volatile("{ .reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0]; }" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void mbar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2; selp.u32 %0, 1, 0, p; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
}

__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading, uint32_t stride) {
  // bytes between the two halves of k, and between groups of 8 rows
  return (uint64_t)((address & 0x3FFFF) >> 4) | ((uint64_t)(leading >> 4) << 16) | ((uint64_t)(stride >> 4) << 32);
}

#define D8(d, i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3]), "+f"(d[i + 4]), "+f"(d[i + 5]), \
                 "+f"(d[i + 6]), "+f"(d[i + 7])

__device__ __forceinline__ void product(float (&d)[32], uint64_t a, uint64_t b, int keep) {
  asm volatile(
      "{ .reg .pred p; setp.ne.b32 p, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.f16.f16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, "
      "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, "
      "%32, %33, p, 1, 1, 0, 0; }\n"
      : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24)
      : "l"(a), "l"(b), "r"(keep));
}

__device__ __forceinline__ void products_done(float (&d)[32]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" : D8(d, 0), D8(d, 8), D8(d, 16), D8(d, 24)::"memory");
}

__device__ __forceinline__ int scale_field(const volatile int* stat) {
  // A power of two that gives the sample a mean exponent of 0: sums over depth are about 32 then.
  const int count = stat[0] > 1 ? stat[0] : 1;
  const int field = 254 - stat[1] / count;
  return field < 1 ? 1 : field > 253 ? 253 : field;
}

__device__ __forceinline__ void emit_plane(const float4& v0, const float4& v1, const float4& v2, const float4& v3,
                                           float power, int lane, float (&size)[4], char* to, char* also) {
  // 4 channels of 4 pixels: hi and lo of each pixel are 8 bytes. Lanes take their pixels in different orders, for the banks.
  uint2 hi[4], lo[4];
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    const float a = get(v0, e) * power, b = get(v1, e) * power, c = get(v2, e) * power, d = get(v3, e) * power;
    size[e] += fabsf(a) + fabsf(b) + (fabsf(c) + fabsf(d));
    const __half2 ab = __floats2half2_rn(a, b), cd = __floats2half2_rn(c, d);
    const float2 fab = __half22float2(ab), fcd = __half22float2(cd);
    const __half2 rab = __floats2half2_rn(a - fab.x, b - fab.y), rcd = __floats2half2_rn(c - fcd.x, d - fcd.y);
    hi[e].x = *reinterpret_cast<const unsigned*>(&ab);
    hi[e].y = *reinterpret_cast<const unsigned*>(&cd);
    lo[e].x = *reinterpret_cast<const unsigned*>(&rab);
    lo[e].y = *reinterpret_cast<const unsigned*>(&rcd);
  }
  const int r = (lane >> 1) & 3;
  uint2 h1[4], l1[4];
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    h1[k].x = (r & 1) ? hi[(k + 1) & 3].x : hi[k].x;
    h1[k].y = (r & 1) ? hi[(k + 1) & 3].y : hi[k].y;
    l1[k].x = (r & 1) ? lo[(k + 1) & 3].x : lo[k].x;
    l1[k].y = (r & 1) ? lo[(k + 1) & 3].y : lo[k].y;
  }
#pragma unroll
  for (int k = 0; k < 4; ++k) {
    uint2 h, l;
    h.x = (r & 2) ? h1[(k + 2) & 3].x : h1[k].x;
    h.y = (r & 2) ? h1[(k + 2) & 3].y : h1[k].y;
    l.x = (r & 2) ? l1[(k + 2) & 3].x : l1[k].x;
    l.y = (r & 2) ? l1[(k + 2) & 3].y : l1[k].y;
    const int px = 4 * lane + ((k + r) & 3);
    *reinterpret_cast<uint2*>(to + (px + 1) * 16) = h;
    *reinterpret_cast<uint2*>(to + 2 * PLANE_ROW + (px + 1) * 16) = l;
    if (also != nullptr) {
      *reinterpret_cast<uint2*>(also + px * 16) = h;
      *reinterpret_cast<uint2*>(also + 2 * 2048 + px * 16) = l;
    }
  }
}

__global__ void __launch_bounds__(512, 1)
strip_kernel(const float* __restrict__ x, const float* __restrict__ w, const float* __restrict__ own,
             const float* __restrict__ bias, char* exchange, float* __restrict__ out, float factor) {
  extern __shared__ __align__(1024) char shared[];
  const uint32_t shared_at = (uint32_t)__cvta_generic_to_shared(shared);
  const uint32_t full = shared_at + BARS, empty = full + 32;
  volatile int* bad = reinterpret_cast<volatile int*>(shared + BAD);
  int* stat = reinterpret_cast<int*>(shared + STAT);
  float* column = reinterpret_cast<float*>(shared + COLUMN);
  float* shift = reinterpret_cast<float*>(shared + SHIFT);

  const int tid = threadIdx.x, lane = tid & 31;
  const int strip = blockIdx.x, sample = strip >> 3, q8 = strip & 7, top = q8 * 16;
  const bool backwards = q8 & 1;
  const bool begins_inside = q8 != 0 && q8 != 7;
  const float* xs = x + (size_t)sample * 8388608;

  if (tid < 32) bad[tid] = 0;
  if (tid == 0) {
    stat[0] = 0;
    stat[1] = 0;
    for (int i = 0; i < 4; ++i) {
      mbar_init(full + 8 * i, 4);
      mbar_init(empty + 8 * i, 8);
    }
  }
  __syncthreads();

  if (tid < 256) {
    // Two rows a step: a warp has one of them, and 4 channels; a lane 4 pixels. 4 depths are always on the way.
    const int warp = tid >> 5, j = warp & 1, quad = warp >> 1;
    const float* base = xs + quad * 4 * 524288 + j * 128 + lane * 4;
    const int first_pair = backwards ? top + 14 : top, towards = backwards ? -2 : 2;
    const float* p = base + first_pair * 128;
    float4 buf[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) buf[i] = ldx(p + (i >> 2) * 16384 + (i & 3) * 524288);
    float power = 1.0f;
#pragma unroll 1
    for (int s = 0; s < 8; ++s) {
      const float* next = p + towards * 128;
      float4 mid[4], head[4];
      {
        const float* ahead = p + 4 * 16384;
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          if (i < 4)
            head[i & 3] = buf[i];
          else if (i < 8)
            mid[i & 3] = buf[i];
          else
            add4(mid[i & 3], buf[i]);
          buf[i] = ldx(ahead + (i >> 2) * 16384 + (i & 3) * 524288);
        }
      }
      const float* ahead = p + 8 * 16384;
#pragma unroll 1
      for (int g = 1; g < 7; ++g) {
#pragma unroll
        for (int i = 0; i < 16; ++i) {
          add4(mid[i & 3], buf[i]);
          buf[i] = ldx(ahead + (i >> 2) * 16384 + (i & 3) * 524288);
        }
        ahead += 4 * 16384;
      }
#pragma unroll
      for (int i = 0; i < 12; ++i) {
        add4(mid[i & 3], buf[i]);
        if (s < 7) buf[i] = ldx(next + (i >> 2) * 16384 + (i & 3) * 524288);
      }
      // buf[12..15] are the last depth.
      const int row = backwards ? 2 + 2 * s - j : 2 * s + 1 + j, slot = row & 3;
      if (s == 0) {
        bar_sync(1, 512);
        power = __int_as_float(scale_field(stat) << 23);
      }
      if (row >= 4) mbar_wait(empty + 8 * slot, ((row - 4) >> 2) & 1);
      const int within = (quad >> 1), byte = (quad & 1) * 8;
      char* to = shared + RING + slot * SLOT + within * PLANE_ROW + byte;
      char* also = nullptr;
      if (row == 1 || row == 16)
        also = exchange + (size_t)(strip * 2 + (row == 16)) * EXCHANGE + within * 2048 + byte;
      float size[4] = {0.0f, 0.0f, 0.0f, 0.0f};
      emit_plane(mid[0], mid[1], mid[2], mid[3], power, lane, size, to, also);
      emit_plane(head[0], head[1], head[2], head[3], power, lane, size, to + 4 * PLANE_ROW,
                 also != nullptr ? also + 4 * 2048 : nullptr);
      emit_plane(buf[12], buf[13], buf[14], buf[15], power, lane, size, to + 8 * PLANE_ROW,
                 also != nullptr ? also + 8 * 2048 : nullptr);
      if (s < 7) {
#pragma unroll
        for (int i = 12; i < 16; ++i) buf[i] = ldx(next + (i >> 2) * 16384 + (i & 3) * 524288);
      }
      // A pixel that is not finite, or does not fit the power of two, has its rows computed again.
      bool misfit = false;
#pragma unroll
      for (int e = 0; e < 4; ++e)
        misfit = misfit || !(size[e] <= 32768.0f) || (size[e] < 0.0625f && size[e] != 0.0f);
      if (misfit) bad[row] = 1;
      fence_async();
      __syncwarp();
      if (lane == 0) mbar_arrive(full + 8 * slot);
      if (s == 0 || s == 7) {
        __threadfence();
        bar_sync(2, 256);
        if (tid == 0 && (s == 7 || begins_inside)) {
          const unsigned value = 1 + bad[s == 0 ? 1 : 16];
          asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(strip_flags + strip * 2 + (s == 7)), "r"(value)
                       : "memory");
        }
      }
      p = next;
    }
  } else {
    const int ctid = tid - 256, half = ctid >> 7, warp = (ctid >> 5) & 3;
    // The mean exponent of some numbers of the sample, the same for all of its strips.
    {
      const float* some = xs + (ctid >> 4) * 524288 + 16 * 16384 + ((ctid & 15) * 8 + 3) * 128 + (ctid & 15);
      unsigned count = 0, total = 0;
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const unsigned e = (__float_as_uint(__ldg(some + i * 16)) >> 23) & 255;
        if (e > 0 && e < 255) {
          count += 1;
          total += e;
        }
      }
      count = __reduce_add_sync(0xFFFFFFFFu, count);
      total = __reduce_add_sync(0xFFFFFFFFu, total);
      if (lane == 0) {
        atomicAdd(stat, (int)count);
        atomicAdd(stat + 1, (int)total);
      }
      __syncwarp();
      __threadfence_block();
      bar_arrive(1, 512);
    }
    // Zeros at both ends of all rows of the ring.
    if (ctid < 96)
      *reinterpret_cast<uint4*>(shared + RING + (ctid >> 1) * PLANE_ROW + (ctid & 1) * 129 * 16) = make_uint4(0, 0, 0, 0);
    // hi and lo of the sums of weights, times a power of two for each filter: 4 threads a filter, 4 channels each.
    {
      const int f = ctid >> 2, cq = ctid & 3;
      float most = 0.0f;
#pragma unroll 1
      for (int ci = 0; ci < 4; ++ci) {
        const float* from = w + (cq * 4 + ci) * 1728 + f * 27;
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
          const float w0 = __ldg(from + 8 - tap), w1 = __ldg(from + 17 - tap), w2 = __ldg(from + 26 - tap);
          const float a = fabsf(w1 + w0 + w2), b = fabsf(w1 + w2), c = fabsf(w1 + w0);
          const float inf = __int_as_float(0x7F800000);
          if (a < inf) most = fmaxf(most, a);
          if (b < inf) most = fmaxf(most, b);
          if (c < inf) most = fmaxf(most, c);
        }
      }
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 1));
      most = fmaxf(most, __shfl_xor_sync(0xFFFFFFFFu, most, 2));
      int field = 264 - (__float_as_int(most) >> 23);
      field = field < 1 ? 1 : field > 253 ? 253 : field;
      const float up = __int_as_float(field << 23);
#pragma unroll 1
      for (int ci = 0; ci < 4; ++ci) {
        const int c = cq * 4 + ci;
        const float* from = w + c * 1728 + f * 27;
        char* to = shared + (c >> 3) * 1024 + f * 16 + (c & 7) * 2;
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
          const float w0 = __ldg(from + 8 - tap), w1 = __ldg(from + 17 - tap), w2 = __ldg(from + 26 - tap);
          const float v[3] = {(w1 + w0 + w2) * up, (w1 + w2) * up, (w1 + w0) * up};
#pragma unroll
          for (int plane = 0; plane < 3; ++plane) {
            const __half hi = __float2half_rn(v[plane]);
            const __half lo = __float2half_rn(v[plane] - __half2float(hi));
            *reinterpret_cast<__half*>(to + (tap * 3 + plane) * 4096) = hi;
            *reinterpret_cast<__half*>(to + (tap * 3 + plane) * 4096 + 2048) = lo;
          }
        }
      }
      bar_sync(3, 256);
      if (cq == 0) {
        const float down = __int_as_float((254 - field) << 23) * 0.03125f;
        column[f] = down * __int_as_float((254 - scale_field(stat)) << 23);
        shift[f] = __ldg(own + f) + __ldg(bias + f);
      }
    }

    auto neighbour_row = [&](bool last) {
      // The row before the first, or behind the last, from the neighbour that has it; zeros outside the image.
      const int row = last ? 17 : 0;
      char* to = shared + RING + (row & 3) * SLOT;
      if (last || begins_inside) {
        const int partner = last ? (strip ^ 1) : (backwards ? strip + 1 : strip - 1);
        if (ctid == 0) {
          unsigned* flag = strip_flags + partner * 2 + (last ? 1 : 0);
          unsigned value;
          do {
            asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(flag) : "memory");
          } while (value == 0);
          asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(flag), "r"(0) : "memory");
          if (value > 1) bad[row] = 1;
          __threadfence();
        }
        bar_sync(3, 256);
        const uint4* from = reinterpret_cast<const uint4*>(exchange + (size_t)(partner * 2 + (last ? 1 : 0)) * EXCHANGE);
        uint4 v[6];
#pragma unroll
        for (int i = 0; i < 6; ++i) v[i] = __ldcg(from + ctid + i * 256);
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          const int e = ctid + i * 256;
          *reinterpret_cast<uint4*>(to + (e >> 7) * PLANE_ROW + ((e & 127) + 1) * 16) = v[i];
        }
      } else {
#pragma unroll
        for (int i = 0; i < 6; ++i) {
          const int e = ctid + i * 256;
          *reinterpret_cast<uint4*>(to + (e >> 7) * PLANE_ROW + ((e & 127) + 1) * 16) = make_uint4(0, 0, 0, 0);
        }
      }
      fence_async();
      bar_sync(3, 256);
    };
    neighbour_row(false);

    float acc[32], part[32];
    const int fl = 2 * (lane & 3);
#pragma unroll 1
    for (int t = 0; t < 16; ++t) {
#pragma unroll
      for (int i = 0; i < 32; ++i) acc[i] = 0.0f;
#pragma unroll 1
      for (int o = 0; o < 3; ++o) {
        const int row = t + o, slot = row & 3;
        if (row == 17)
          neighbour_row(true);
        else if (row > 0)
          mbar_wait(full + 8 * slot, ((row >> 2) - (slot == 0 ? 1 : 0)) & 1);
        const int o2 = backwards ? 2 - o : o;
        const uint64_t da = descriptor(shared_at + RING + slot * SLOT + half * 64 * 16, PLANE_ROW, 128);
        const uint64_t db = descriptor(shared_at + o2 * 18 * 2048, 1024, 128);
#pragma unroll
        for (int i = 0; i < 32; ++i) part[i] = 0.0f;
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
        // The small products first. Tensor cores truncate, so acc is added to outside of them.
#pragma unroll
        for (int j = 0; j < 3; ++j) {
#pragma unroll
          for (int plane = 0; plane < 3; ++plane) {
            const int a = plane * 4 * 130 + j, b = (j * 3 + plane) * 2 * 128;
            product(part, da + a + 2 * 130, db + b, j + plane > 0);
            product(part, da + a, db + b + 128, 1);
          }
        }
#pragma unroll
        for (int j = 0; j < 3; ++j) {
#pragma unroll
          for (int plane = 0; plane < 3; ++plane)
            product(part, da + plane * 4 * 130 + j, db + (j * 3 + plane) * 2 * 128, 1);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        products_done(part);
#pragma unroll
        for (int i = 0; i < 32; ++i) acc[i] += part[i];
      }
      __syncwarp();
      if (lane == 0) mbar_arrive(empty + 8 * (t & 3));

      // acc[4 n + 0, 1]: a pixel with two filters; acc[4 n + 2, 3]: the pixel 8 further on.
      float m0 = __int_as_float(0xFF800000), m1 = m0;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        const float2 c2 = *reinterpret_cast<const float2*>(column + n * 8 + fl);
        const float2 s2 = *reinterpret_cast<const float2*>(shift + n * 8 + fl);
        acc[4 * n + 0] = acc[4 * n + 0] * c2.x + s2.x;
        acc[4 * n + 1] = acc[4 * n + 1] * c2.y + s2.y;
        acc[4 * n + 2] = acc[4 * n + 2] * c2.x + s2.x;
        acc[4 * n + 3] = acc[4 * n + 3] * c2.y + s2.y;
        m0 = fmaxf(m0, fmaxf(acc[4 * n + 0], acc[4 * n + 1]));
        m1 = fmaxf(m1, fmaxf(acc[4 * n + 2], acc[4 * n + 3]));
      }
      m0 = fmaxf(m0, __shfl_xor_sync(0xFFFFFFFFu, m0, 1));
      m1 = fmaxf(m1, __shfl_xor_sync(0xFFFFFFFFu, m1, 1));
      m0 = fmaxf(m0, __shfl_xor_sync(0xFFFFFFFFu, m0, 2));
      m1 = fmaxf(m1, __shfl_xor_sync(0xFFFFFFFFu, m1, 2));
      float s0 = 0.0f, s1 = 0.0f;
#pragma unroll
      for (int n = 0; n < 8; ++n) {
        acc[4 * n + 0] = ex2((acc[4 * n + 0] - m0) * 1.4426950408889634f);
        acc[4 * n + 1] = ex2((acc[4 * n + 1] - m0) * 1.4426950408889634f);
        acc[4 * n + 2] = ex2((acc[4 * n + 2] - m1) * 1.4426950408889634f);
        acc[4 * n + 3] = ex2((acc[4 * n + 3] - m1) * 1.4426950408889634f);
        s0 += acc[4 * n + 0] + acc[4 * n + 1];
        s1 += acc[4 * n + 2] + acc[4 * n + 3];
      }
      s0 += __shfl_xor_sync(0xFFFFFFFFu, s0, 1);
      s1 += __shfl_xor_sync(0xFFFFFFFFu, s1, 1);
      s0 += __shfl_xor_sync(0xFFFFFFFFu, s0, 2);
      s1 += __shfl_xor_sync(0xFFFFFFFFu, s1, 2);
      const float r0 = 1.0f / s0, r1 = 1.0f / s1;
      const int h = backwards ? top + 15 - t : top + t;
      float* to = out + (size_t)sample * 1048576 + h * 128 + half * 64 + warp * 16 + (lane >> 2);
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        // tanh of a number between 0 and 1
        const float share = acc[i] * ((i & 2) ? r1 : r0);
        const float square = share * share;
        float small = square * (-0.05396825396825397f + square * 0.021869488536155203f);
        small = share + share * square * (-0.3333333333333333f + square * (0.13333333333333333f + small));
        const float large = 1.0f - __fdividef(2.0f, ex2(share * 2.8853900817779268f) + 1.0f);
        const float result = (share < 0.25f ? small : large) * factor;
        float* place = to + ((i >> 2) * 8 + fl + (i & 1)) * 16384 + ((i & 2) ? 8 : 0);
#if STREAM_OUT
        __stcs(place, result);
#else
        *place = result;
#endif
      }
    }
  }

  // Rows of outputs again, in fp32, if one of their three rows of inputs is flagged.
  __syncthreads();
#pragma unroll 1
  for (int t = 0; t < 16; ++t) {
    if ((bad[t] | bad[t + 1] | bad[t + 2]) == 0) continue;
    const int h = backwards ? top + 15 - t : top + t;
    float* sums = reinterpret_cast<float*>(shared + RING);  // [row][plane][channel][130 pixels]
    float* tops = sums + 144 * 130;
    float* totals = tops + 512;
    __syncthreads();
#pragma unroll 1
    for (int i = tid; i < 3 * 16 * 128; i += 512) {
      const int o = i >> 11, c = (i >> 7) & 15, px = i & 127, y = h + o - 1;
      float first = 0.0f, middle = 0.0f, last = 0.0f;
      if (y >= 0 && y < 128) {
        const float* p = xs + c * 524288 + y * 128 + px;
        first = __ldg(p);
#pragma unroll 6
        for (int d = 1; d < 31; ++d) middle += __ldg(p + d * 16384);
        last = __ldg(p + 31 * 16384);
      }
      sums[((o * 3 + 0) * 16 + c) * 130 + px + 1] = middle;
      sums[((o * 3 + 1) * 16 + c) * 130 + px + 1] = first;
      sums[((o * 3 + 2) * 16 + c) * 130 + px + 1] = last;
    }
    for (int i = tid; i < 288; i += 512) sums[(i >> 1) * 130 + (i & 1) * 129] = 0.0f;
    __syncthreads();
    const int px = tid & 127, group = tid >> 7;
    float z[16];
#pragma unroll
    for (int k = 0; k < 16; ++k) z[k] = 0.0f;
#pragma unroll 1
    for (int number = 0; number < 144; ++number) {
      const int c = number / 9, tap = number % 9, o = tap / 3, j = tap % 3;
      const float middle = sums[((o * 3 + 0) * 16 + c) * 130 + px + j];
      const float first = sums[((o * 3 + 1) * 16 + c) * 130 + px + j];
      const float last = sums[((o * 3 + 2) * 16 + c) * 130 + px + j];
      const float* from = w + c * 1728 + group * 16 * 27 + 8 - tap;
#pragma unroll
      for (int k = 0; k < 16; ++k) {
        const float w0 = __ldg(from + k * 27), w1 = __ldg(from + k * 27 + 9), w2 = __ldg(from + k * 27 + 18);
        z[k] += middle * (w0 + w1 + w2) + first * (w1 + w2) + last * (w0 + w1);
      }
    }
    float m = __int_as_float(0xFF800000);
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      z[k] = z[k] * 0.03125f + (__ldg(own + group * 16 + k) + __ldg(bias + group * 16 + k));
      m = fmaxf(m, z[k]);
    }
    tops[group * 128 + px] = m;
    __syncthreads();
    m = fmaxf(fmaxf(tops[px], tops[128 + px]), fmaxf(tops[256 + px], tops[384 + px]));
    float s = 0.0f;
#pragma unroll
    for (int k = 0; k < 16; ++k) {
      z[k] = expf(z[k] - m);
      s += z[k];
    }
    totals[group * 128 + px] = s;
    __syncthreads();
    s = (totals[px] + totals[128 + px]) + (totals[256 + px] + totals[384 + px]);
    float* to = out + (size_t)sample * 1048576 + (size_t)group * 16 * 16384 + h * 128 + px;
#pragma unroll
    for (int k = 0; k < 16; ++k) to[k * 16384] = tanhf(z[k] / s) * factor;
  }
}

extern "C" int strips(const float* x, const float* w, const float* own, const float* bias, char* exchange, float* out,
                      float factor, cudaStream_t stream) {
  cudaError_t status = cudaFuncSetAttribute(strip_kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED);
  if (status != cudaSuccess) return status;
  strip_kernel<<<128, 512, SHARED, stream>>>(x, w, own, bias, exchange, out, factor);
  return cudaGetLastError();
}
"""
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
LIBRARY.strips.argtypes = [ctypes.c_void_p] * 6 + [ctypes.c_float, ctypes.c_void_p]


class ModelNew(nn.Module):
    """
    Model that performs a series of operations:
    1. Transposed 3D convolution
    2. Mean pooling (across depth)
    3. Addition
    4. Softmax (across channels)
    5. Tanh activation
    6. Scaling
    """
    def __init__(self, in_channels, out_channels, kernel_size, stride, padding, scaling_factor):
        super(ModelNew, self).__init__()
        self.conv_transpose = nn.ConvTranspose3d(in_channels, out_channels, kernel_size, stride=stride, padding=padding)
        self.bias = nn.Parameter(torch.randn(1, out_channels, 1, 1, 1))  # Broadcastable bias over channels
        self.scaling_factor = scaling_factor

    @torch.no_grad()
    def forward(self, x):
        conv = self.conv_transpose
        if (tuple(x.shape) != (16, 16, 32, 128, 128) or tuple(conv.weight.shape) != (16, 64, 3, 3, 3)
                or tuple(conv.stride) != (1, 1, 1) or tuple(conv.padding) != (1, 1, 1) or x.dtype != torch.float32
                or conv.weight.dtype != torch.float32 or not x.is_cuda or conv.bias is None):
            raise ValueError("made for 16 x 16 x 32 x 128 x 128 numbers and 64 filters of 3 x 3 x 3, in fp32")
        x, weight, own, bias = (each.contiguous() for each in (x, conv.weight, conv.bias, self.bias))
        if x.data_ptr() % 16:
            x = x.clone()
        exchange = torch.empty(128 * 2 * 24576, device=x.device, dtype=torch.uint8)
        out = torch.empty((16, 64, 1, 128, 128), device=x.device, dtype=torch.float32)
        with torch.cuda.device(x.device):
            status = LIBRARY.strips(x.data_ptr(), weight.data_ptr(), own.data_ptr(), bias.data_ptr(),
                                    exchange.data_ptr(), out.data_ptr(), float(self.scaling_factor),
                                    torch.cuda.current_stream().cuda_stream)
        if status:
            raise RuntimeError(f"strips: CUDA error {status}")
        return out

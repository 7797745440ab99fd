#define STAGED_CHUNK 2  // tune: 1, 2, 3
#define STAGED_TURNS 1  // tune: 0, 1
#define STAGED_FP8 0  // tune: 0, 1

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

// Rows of x are split into pairs of fp16 (16 x = high + low / 2048) on their way into a ring in shared memory, where the
// padded filters lie already. A step of 16 multiplies has four groups: four columns of one row of one channel of a
// filter each. A warpgroup computes 64 places and BN filters at a time, three products for a step; with SMALL one, and
// one in fp8 that has both small ones. That needs steps of four columns, because four of fp8 are read at once.
CONSTANTS
constexpr int PLACES = OH * OW, TILES = (PLACES + 127) / 128, PLANES = IMAGES * OD;
constexpr int GW = (KW + 3) / 4, ROWS = KD * C, GROUPS = ROWS * GW * KH, TAPS = C * KD * KH * KW;
constexpr int QUADS = PITCH / 8, ITEMS = ROWS * QUADS, EACH = (ITEMS + 127) / 128, COPY = ROWS * PITCH;
constexpr int PART = STEPS * BN * 32, TABLE = 2 * PART, RING = TABLE + BN * 8, OFFSETS = RING + SLOTS * SLOT;
constexpr int BARS = OFFSETS + STEPS * 16, SMEM = BARS + 8 * (2 * SLOTS + 1), PACKED = RING;
constexpr int CHUNKS = (STEPS + STAGED_CHUNK - 1) / STAGED_CHUNK, NUMBERS = SW % 2 ? 5 : 4;
constexpr int AHEAD = EACH * NUMBERS < 9 ? 3 : EACH * NUMBERS < 16 ? 2 : 1;   // rows that are read at once
constexpr bool SMALL = STAGED_FP8 && SW % 4 == 0;
constexpr int64_t IMAGE = (int64_t)C * D * H * W;
// Two places of a thread lie side by side where their columns then share words, and rows of them the banks.
constexpr bool PAIRED = SW % 2 == 1;
// Four numbers are read at once; the fifth of an item is the first of the next, which the next thread has.
constexpr bool WIDE = W % 4 == 0 && PW == 0;
static_assert(SMEM <= 232448, "shared memory");

@convolution_parts.cu@
@staged_filters.cu@

// p (64 x BN) = or += 64 x 16 in registers times 16 x BN in shared memory
__device__ __forceinline__ void product(float (&p)[BN / 2], const uint32_t (&a)[4], uint64_t b, int add) {
  PRODUCT
}
// The same with 64 x 32 and 32 x BN in fp8
__device__ __forceinline__ void small_product(float (&p)[BN / 2], const uint32_t (&a)[4], uint64_t b, int add) {
  SMALL_PRODUCT
}
__device__ __forceinline__ int place_of(int quad, int r) { return PAIRED ? 2 * quad + r : quad + 8 * r; }
__device__ __forceinline__ uint32_t moved(uint32_t a, uint32_t zero) {
  uint32_t r;
  asm volatile("xor.b32 %0, %1, %2;" : "=r"(r) : "r"(a), "r"(zero));
  return r;
}

@staged_ring.cu@
__global__ void __launch_bounds__(384, 1)
convolve(const float* __restrict__ x, const float* __restrict__ w, const uint8_t* packed, const float* e0, const float* e1,
         const float* e2, const float* e3, float* out, uint32_t zero) {
  extern __shared__ __align__(1024) char raw[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(raw);
  const uint32_t ring = base + RING, full = base + BARS, empty = full + 8 * SLOTS, ready = empty + 8 * SLOTS;
  const int lane = threadIdx.x % 32, block = blockIdx.x % BLOCKS;
  if (threadIdx.x == 0) {
    for (int s = 0; s < SLOTS; s++) {
      bar_init(full + 8 * s, 4);    // a warp each
      bar_init(empty + 8 * s, 8);
    }
    bar_init(ready, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  for (int g = threadIdx.x; g < STEPS * 4; g += 384) {
    const int kh = g % KH, offset = kh * SLOT + g / KH / GW * PITCH + g / KH % GW * 8;
    reinterpret_cast<int*>(raw + OFFSETS)[g] = g < GROUPS ? kh << 24 | offset : 0;
  }
  __syncthreads();
  const int64_t all = (int64_t)PLANES * TILES;
  const int mine = blockIdx.x / BLOCKS, sharing = gridDim.x / BLOCKS;
  const int start = (int)(mine * all / sharing), stop = (int)((mine + 1) * all / sharing);

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 80;");
    if (start >= stop) return;
    Row next = {segment_of(start, stop), start, 0, true};
    next.row = next.g.first;
    float v[AHEAD][EACH][NUMBERS];
    int read = 0;
#pragma unroll
    for (int i = 0; i < AHEAD; i++) {
      if (!next.there) break;
      fetch(v[i], x, next.g.plane, next.row, threadIdx.x);
      next.advance(stop);
      read++;
    }
    if (threadIdx.x == 0) copy_filters(base, packed + (int64_t)block * PACKED, PACKED, ready);
    __syncwarp();
    for (int number = 0; number < read;) {
#pragma unroll
      for (int which = 0; which < AHEAD; which++) {
        if (number >= read) break;
        uint32_t high[EACH][NUMBERS - 2], low[EACH][NUMBERS - 2];
#pragma unroll
        for (int i = 0; i < EACH; i++) {
          if (SMALL) {
            split_small(v[which][i], high[i], low[i]);
            continue;
          }
          if (WIDE && NUMBERS == 5) {
            const float next_one = __shfl_down_sync(0xffffffffu, v[which][i][0], 1);
            if (lane != 31) v[which][i][NUMBERS - 1] = (threadIdx.x + 128 * i + 1) % QUADS ? next_one : 0.0f;
          }
          split(v[which][i][0], v[which][i][1], high[i][0], low[i][0]);
          split(v[which][i][2], v[which][i][3], high[i][1], low[i][1]);
          if (NUMBERS == 5) split(v[which][i][4], 0.0f, high[i][NUMBERS - 3], low[i][NUMBERS - 3]);
        }
        if (next.there) {
          fetch(v[which], x, next.g.plane, next.row, threadIdx.x);
          next.advance(stop);
          read++;
        }
        const int slot = number % SLOTS;
        bar_wait(empty + 8 * slot, ((number / SLOTS) & 1) ^ 1);
#pragma unroll
        for (int i = 0; i < EACH; i++) {
          const int item = threadIdx.x + 128 * i;
          if (item < ITEMS) {
            const uint32_t to = ring + slot * SLOT + item * 8;
            store_two(to, high[i][0], high[i][1]);
            store_two(to + SLOT_HALF, low[i][0], low[i][1]);
            if (NUMBERS == 5) {   // once more, a number further: a pair may begin anywhere
              store_two(to + COPY, __byte_perm(high[i][0], high[i][1], 0x5432),
                        __byte_perm(high[i][1], high[i][NUMBERS - 3], 0x5432));
              store_two(to + COPY + SLOT_HALF, __byte_perm(low[i][0], low[i][1], 0x5432),
                        __byte_perm(low[i][1], low[i][NUMBERS - 3], 0x5432));
            }
          }
        }
        __syncwarp();
        if (lane == 0) bar_arrive(full + 8 * slot);
        number++;
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 208;");
    if (start >= stop) return;
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, quad = lane / 4, q = lane % 4;
    const float2* table = reinterpret_cast<const float2*>(raw + TABLE);
    const uint32_t offsets = base + OFFSETS + 4 * q;
    // No swizzle: BN * 16 bytes from 8 columns of K to the next, 128 from 8 filters to the next.
    const uint64_t form = (uint64_t)8 << 32 | (uint64_t)BN << 16;
    const uint64_t b_high = form | base >> 4, b_low = form | (base + PART) >> 4;
    bar_wait(ready, 0);

    float sum[BN / 2], rest[BN / 2];
#pragma unroll
    for (int i = 0; i < BN / 2; i++) sum[i] = rest[i] = 0.0f;
    int known = 0, freed = 0, origin = 0;   // rows waited for, rows given back, number of a segment's first row
    for (int tile = start; tile < stop;) {
      const Segment g = segment_of(tile, stop);
      const int number = origin - g.first;   // of the plane's row 0
#pragma unroll 1
      for (int t = g.begin; t < g.end; t++, tile++) {
        const int m0 = t * 128 + group * 64;
        const int need = number + min(m0 + 63, PLACES - 1) / OW * SH + KH - 1;
        for (; known <= need; known++) bar_wait(full + 8 * (known % SLOTS), (known / SLOTS) & 1);
        __syncwarp();
        for (const int until = number + min(m0, PLACES - 1) / OW * SH; freed < until; freed++)
          if (lane == 0) bar_arrive(empty + 8 * (freed % SLOTS));
        uint32_t at[2];
        int wrap[2];
#pragma unroll
        for (int r = 0; r < 2; r++) {
          const int m = min(m0 + warp * 16 + place_of(quad, r), PLACES - 1), oh = m / OW, ow = m - oh * OW;
          const int slot = (number + oh * SH) % SLOTS, column = ow * SW;
          at[r] = ring + slot * SLOT + (column & ~1) * 2 + (SW % 2 && column % 2 ? COPY : 0);
          wrap[r] = SLOTS - slot;
        }
        uint32_t rh[STAGED_CHUNK][4], rl[STAGED_CHUNK][4], ah[STAGED_CHUNK][4], al[STAGED_CHUNK][4];
        take(rh, rl, at, wrap, offsets, 0);
        if (STAGED_TURNS) {   // half a tile behind the other warpgroup
          if (group == 1) asm volatile("bar.sync 1, 256;" ::: "memory");
          else if (tile > start) asm volatile("bar.sync 2, 256;" ::: "memory");
        }
#pragma unroll
        for (int c = 0; c < CHUNKS; c++) {
#pragma unroll
          for (int i = 0; i < STAGED_CHUNK; i++) {   // nothing runs now
            if (c * STAGED_CHUNK + i < STEPS) {
#pragma unroll
              for (int k = 0; k < 4; k++) {
                ah[i][k] = moved(rh[i][k], zero);
                al[i][k] = moved(rl[i][k], zero);
              }
            }
          }
          asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
          for (int i = 0; i < STAGED_CHUNK; i++) {
            const int step = c * STAGED_CHUNK + i;
            if (step < STEPS) {
              product(sum, ah[i], b_high + step * (BN * 2), step > 0);
              if (SMALL) {
                small_product(rest, al[i], b_low + step * (BN * 2), step > 0);
                continue;
              }
              product(rest, ah[i], b_low + step * (BN * 2), step > 0);
              product(rest, al[i], b_high + step * (BN * 2), 1);
            }
          }
          asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
          if (c + 1 < CHUNKS) take(rh, rl, at, wrap, offsets, c + 1);
          asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
          if (STAGED_TURNS && c == CHUNKS / 2) {
            if (group == 0) asm volatile("bar.arrive 1, 256;" ::: "memory");
            else if (tile + 1 < stop) asm volatile("bar.arrive 2, 256;" ::: "memory");
          }
        }
#pragma unroll
        for (int k = 0; k < BN / 2; k++) asm volatile("" : "+f"(sum[k]), "+f"(rest[k])::"memory");

        // Give back the rows that the next tile does not need.
        const int until = number + (t + 1 == g.end ? g.last + 1 : min(m0 + 128, PLACES - 1) / OW * SH);
        for (; known < until; known++) bar_wait(full + 8 * (known % SLOTS), (known / SLOTS) & 1);
        __syncwarp();
        for (; freed < until; freed++)
          if (lane == 0) bar_arrive(empty + 8 * (freed % SLOTS));
        __syncwarp();

        const int image = g.plane / OD, od = g.plane % OD;
        const int64_t plane_at = (((int64_t)image * F + block * BN) * OD + od) * PLACES;
        float wrong[2] = {0.0f, 0.0f}, most[2] = {0.0f, 0.0f};
#pragma unroll
        for (int j = 0; j < BN / 8; j++) {
#pragma unroll
          for (int e = 0; e < 2; e++) {
            const int f = 8 * j + 2 * q + e;
            const float2 form_of = table[f];
            float total[2];
#pragma unroll
            for (int r = 0; r < 2; r++) {
              total[r] = fmaf(rest[4 * j + 2 * r + e], SMALL ? 0x1p-4f : 0x1p-11f, sum[4 * j + 2 * r + e]);
              wrong[r] = fmaf(total[r], 0.0f, wrong[r]);   // NaN where one is not finite
              most[r] = fmaxf(most[r], fabsf(total[r]));
              total[r] = fmaf(total[r], form_of.x, form_of.y);
            }
            const int place = m0 + warp * 16 + place_of(quad, 0), apart = place_of(quad, 1) - place_of(quad, 0);
            const int64_t at = plane_at + (int64_t)f * OD * PLACES + place;
            if (block * BN + f < F) {
              if (PAIRED && PLACES % 2 == 0) {
                if (place < PLACES)
                  *reinterpret_cast<float2*>(out + at) = make_float2(
                      followed(total[0], e0, e1, e2, e3, at, block * BN + f),
                      followed(total[1], e0, e1, e2, e3, at + 1, block * BN + f));
              } else {
#pragma unroll
                for (int r = 0; r < 2; r++)
                  if (place + r * apart < PLACES)
                    out[at + r * apart] = followed(total[r], e0, e1, e2, e3, at + r * apart, block * BN + f);
              }
            }
          }
        }
        // x may have been too large or too small for its parts: such places again, in fp32, by the whole warp.
#pragma unroll
        for (int r = 0; r < 2; r++) {
#pragma unroll
          for (int mask = 1; mask < 4; mask *= 2) {
            wrong[r] += __shfl_xor_sync(0xffffffffu, wrong[r], mask);
            most[r] = fmaxf(most[r], __shfl_xor_sync(0xffffffffu, most[r], mask));
          }
          const int place = m0 + warp * 16 + place_of(quad, r);
          unsigned todo = __ballot_sync(0xffffffffu, place < PLACES && q == 0 && (!(wrong[r] == 0.0f) || most[r] < 8.0f));
          if (!todo) continue;
          __syncwarp();
          const int d0 = od * SD - PD;
#pragma unroll 1
          for (; todo; todo &= todo - 1) {
            const int m = __shfl_sync(0xffffffffu, place, __ffs(todo) - 1), h0 = m / OW * SH - PH, w0 = m % OW * SW - PW;
#pragma unroll 1
            for (int f = lane; f < BN && block * BN + f < F; f += 32) {
              const float* weight = w + (int64_t)(block * BN + f) * TAPS;
              float total = 0.0f;
#pragma unroll 1
              for (int k = 0; k < TAPS; k++) {
                const int d = d0 + k / (KH * KW) % KD, h = h0 + k / KW % KH, column = w0 + k % KW;
                if (d >= 0 && d < D && h >= 0 && h < H && column >= 0 && column < W)
                  total = fmaf(x[image * IMAGE + ((int64_t)(k / (KD * KH * KW) * D + d) * H + h) * W + column], weight[k],
                               total);
              }
              const int64_t at = plane_at + (int64_t)f * OD * PLACES + m;
              out[at] = followed(total + table[f].y, e0, e1, e2, e3, at, block * BN + f);
            }
          }
          __syncwarp();
        }
      }
      origin += g.last - g.first + 1;
    }
  }
}

extern "C" int staged(const float* x, const float* w, const float* bias, uint8_t* packed, const float* e0,
                      const float* e1, const float* e2, const float* e3, float* out, int blocks, cudaStream_t stream) {
  return launch_both(BLOCKS * BN, w, bias, packed, convolve, blocks / BLOCKS * BLOCKS, SMEM, stream, x, w,
                     (const uint8_t*)packed, e0, e1, e2, e3, out, (uint32_t)0);
}

#define WINDOW_READ 3  // tune: 2, 3, 4

#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

// Rows of x are split into pairs of fp16 (16 x = high + low / 2048) on their way into shared memory, where eight channels
// of a pixel lie side by side. What a tap of the filters sees of 128 pixels is then an operand of the tensor cores as it
// lies there, a tap further 16 bytes further: nothing is copied. A buffer has what LINES rows of COLUMNS results need, and
// pixels are counted along its rows: some lie behind the results of a row, and what is computed of them is not written.
CONSTANTS
constexpr int PIXELS = 128;
constexpr int UNITS = KD * KH * KW * G, STEPS = (UNITS + 1) / 2, TAPS = C * KD * KH * KW;
constexpr int ROWS = LINES + (KH - 1) * AH, PLANE = ROWS * PITCH, ITEMS = KD * G * PLANE, HALF = ITEMS * 16;
constexpr int BLOCK = 2 * HALF;   // bytes of a buffer
constexpr int PART = STEPS * FB * 32, PACKED = 2 * PART + 64 * 8;   // filters above FB are read and not written
constexpr int FILTERS = 2 * BLOCK, BARS = FILTERS + BLOCKS * PACKED;
constexpr int64_t IMAGE = (int64_t)C * D * H * W;

@convolution_parts.cu@
// Stores two numbers in shared memory, or does not, without a branch.
__device__ __forceinline__ void store_if(bool there, float* to, float2 two) {
  asm volatile("{ .reg .pred p; setp.ne.b32 p, %0, 0; @p st.shared.v2.f32 [%1], {%2, %3}; }"
               ::"r"((int)there), "r"((uint32_t)__cvta_generic_to_shared(to)), "f"(two.x), "f"(two.y) : "memory");
}
@window_results.cu@
constexpr int SMEM = BARS + 64 + KEPT;
static_assert(SMEM <= 232448, "shared memory");

// Where a tap of eight channels lies, from the pixel's first, in units of 16 bytes. Each lies behind the one before, as
// those of an operand must.
__host__ __device__ constexpr int unit_at(int unit) {
  const int kw = unit % KW, kh = unit / KW % KH, g = unit / KW / KH % G, kd = unit / KW / KH / G;
  return (kd * G + g) * PLANE + kh * AH * PITCH + kw * AW;
}
constexpr bool in_order(int unit) {
  return unit >= UNITS || (unit_at(unit - 1) < unit_at(unit) && in_order(unit + 1));
}
static_assert(in_order(1), "a tap lies before the last one");
// Where a filter has a number; TURNED filters are those of a transposed convolution.
__device__ __forceinline__ int64_t weight_at(int f, int c, int kd, int kh, int kw) {
  return TURNED ? ((((int64_t)c * F + f) * KD + KD - 1 - kd) * KH + KH - 1 - kh) * KW + KW - 1 - kw
                : ((((int64_t)f * C + c) * KD + kd) * KH + kh) * KW + kw;
}
// Filters: each split into two parts, in the order of an operand of the tensor cores.
__global__ void __launch_bounds__(256) pack_filters(const float* w, const float* bias, uint8_t* packed) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int f = blockIdx.x, row = f % FB;
  uint8_t* to = packed + (int64_t)(f / FB) * PACKED;
  const int power = power_of(w, f < F ? TAPS : 0, [=](int i) {
    return weight_at(f, i / (KD * KH * KW), i / (KH * KW) % KD, i / KW % KH, i % KW);
  });
  const float scale = __uint_as_float((unsigned)power << 23);
  bool strange = false;
  for (int i = threadIdx.x; i < STEPS * 16; i += 256) {
    const int unit = i / 8, kw = unit % KW, kh = unit / KW % KH, kd = unit / KW / KH / G;
    const int c = unit / KW / KH % G * 8 + i % 8;
    float v = 0.0f;
    if (f < F && unit < UNITS && c < C) v = w[weight_at(f, c, kd, kh, kw)] * scale;
    const __half high = __float2half_rn(v);
    const int at = unit * FB * 16 + row * 16 + i % 8 * 2;
    *reinterpret_cast<__half*>(to + at) = high;
    *reinterpret_cast<__half*>(to + PART + at) = __float2half_rn((v - __half2float(high)) * 2048.0f);
    strange |= !isfinite(v);
  }
  strange = __syncthreads_or(strange);
  if (threadIdx.x == 0) {
    float* table = reinterpret_cast<float*>(to + 2 * PART) + 2 * row;
    table[0] = strange ? NAN : __uint_as_float((unsigned)(254 - power) << 23) * 0.0625f;
    table[1] = f < F && bias != nullptr ? bias[f] : 0.0f;
  }
}

// p (64 x PIXELS) = or += 64 x 16 times 16 x PIXELS, both in shared memory
__device__ __forceinline__ void product(float (&p)[PIXELS / 2], uint64_t a, uint64_t b, int add) {
  PRODUCT
}

// Eight channels of some pixels of padded x.
__device__ __forceinline__ void fetch(float (&v)[WINDOW_READ][8], const float* x, const Strip& s, int start) {
#pragma unroll
  for (int i = 0; i < WINDOW_READ; i++) {
    const int item = start + 128 * i, part = item / PLANE, rest = item - part * PLANE, row = rest / PITCH;
    const int d = s.od * SD - PD + part / G * AD, h = s.first - PH + row, column = s.side - PW + rest - row * PITCH;
    const bool inside = item < ITEMS && d >= 0 && d < D && h >= 0 && h < H && column >= 0 && column < W;
    const float* from = x + s.image * IMAGE + ((int64_t)(part % G * 8 * D + d) * H + h) * W + column;
#pragma unroll
    for (int c = 0; c < 8; c++)
      v[i][c] = inside && part % G * 8 + c < C ? __ldg(from + (int64_t)c * D * H * W) : 0.0f;
  }
}

// Splits and stores them; whether one of them is too large or too small for its parts.
__device__ __forceinline__ bool store(const float (&v)[WINDOW_READ][8], char* to, int start) {
  bool odd = false;
#pragma unroll
  for (int i = 0; i < WINDOW_READ; i++) {
    const int item = start + 128 * i;
    uint32_t high[4], low[4];
    float most = 0.0f;
#pragma unroll
    for (int c = 0; c < 4; c++) {
      const float a = v[i][2 * c] * 16.0f, b = v[i][2 * c + 1] * 16.0f;
      split(v[i][2 * c], v[i][2 * c + 1], high[c], low[c]);
      most = fmaxf(most, fmaxf(fabsf(a), fabsf(b)));
      odd |= !(fabsf(a) < 65504.0f) || !(fabsf(b) < 65504.0f);
    }
    odd |= most > 0.0f && most < 0x1p-16f;
    if (item < ITEMS) {
      *reinterpret_cast<uint4*>(to + item * 16) = make_uint4(high[0], high[1], high[2], high[3]);
      *reinterpret_cast<uint4*>(to + HALF + item * 16) = make_uint4(low[0], low[1], low[2], low[3]);
    }
  }
  return odd;
}

__global__ void __launch_bounds__(384, 1)
convolve(const float* __restrict__ x, const float* __restrict__ w, const uint8_t* packed, const float* e0, const float* e1,
         const float* e2, const float* e3, float* out) {
  extern __shared__ __align__(1024) char raw[];
  const uint32_t base = (uint32_t)__cvta_generic_to_shared(raw);
  const uint32_t full = base + BARS, empty = full + 16, ready = empty + 16;
  volatile int* odd = reinterpret_cast<volatile int*>(raw + BARS + 48);   // of each buffer the last strip that is
  if (threadIdx.x == 0) {
    for (int s = 0; s < 2; s++) {
      bar_init(full + 8 * s, 4);    // a warp each
      bar_init(empty + 8 * s, 8);
      odd[s] = 0;
    }
    bar_init(ready, 1);
    asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
  }
  __syncthreads();

  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 96;");
    if (threadIdx.x == 0) copy_filters(base + FILTERS, packed, BLOCKS * PACKED, ready);
    __syncwarp();
    int number = 0;
    for (int work = blockIdx.x; work < WORK; work += gridDim.x, number++) {
      const Strip s = strip_of(work);
      const int buffer = number % 2;
      float v[WINDOW_READ][8];
      fetch(v, x, s, threadIdx.x);
      bar_wait(empty + 8 * buffer, (number / 2 & 1) ^ 1);
      bool found = false;
#pragma unroll 1
      for (int start = threadIdx.x; start < ITEMS; start += 128 * WINDOW_READ) {
        found |= store(v, raw + buffer * BLOCK, start);
        if (start + 128 * WINDOW_READ < ITEMS) fetch(v, x, s, start + 128 * WINDOW_READ);
      }
      if (found) odd[buffer] = number + 1;
      asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
      __syncwarp();
      if (threadIdx.x % 32 == 0) bar_arrive(full + 8 * buffer);
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 200;");
    const int group = threadIdx.x / 128 - 1, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
    const int quad = lane / 4;
    Writer writer = {reinterpret_cast<float*>(raw + BARS + 64) + (4 * group + warp) * 16 * APART, out, e0, e1, e2, e3, 0};
    // No swizzle: 128 bytes from 8 pixels, or filters, to the next; 16 FB from 8 columns of filters to the next.
    const uint64_t form = (uint64_t)8 << 32;
    bar_wait(ready, 0);
    bool strange = false;   // a filter has what pairs do not
    for (int f = lane; f < BLOCKS * FB; f += 32)
      strange |= isnan(*reinterpret_cast<const float*>(raw + FILTERS + f / FB * PACKED + 2 * PART + f % FB * 8));
    strange = __any_sync(0xffffffffu, strange);
    int number = 0;
    for (int work = blockIdx.x; work < WORK; work += gridDim.x, number++) {
      const Strip s = strip_of(work);
      const int buffer = number % 2;
      const Turns turns = turns_of(s, group, number);
      bar_wait(full + 8 * buffer, number / 2 & 1);
      const bool again = strange || odd[buffer] == number + 1;
#pragma unroll 1
      for (int turn = turns.from; turn < turns.until; turn++) {
        const int block = turns.block(turn), first = turns.tile(turn) * PIXELS;
        const int64_t plane_at = (((int64_t)s.image * F + block * 64) * OD + s.od) * (OH * OW);
        const float2* table = reinterpret_cast<const float2*>(raw + FILTERS + block * PACKED + 2 * PART);
        if (again) {   // in fp32, as x lies in memory
#pragma unroll 1
          for (int i = threadIdx.x % 128; i < 64 * PIXELS; i += 128) {
            const int f = i / PIXELS, p = first + i % PIXELS, row = p / PITCH, column = p % PITCH;
            if (block * 64 + f >= F || row >= s.lines || column >= s.columns) continue;
            float total = 0.0f;
#pragma unroll 1
            for (int k = 0; k < TAPS; k++) {
              const int c = k / (KD * KH * KW), kd = k / (KH * KW) % KD, kh = k / KW % KH, kw = k % KW;
              const int d = s.od * SD - PD + kd * AD, h = s.first + row - PH + kh * AH, at = s.side + column - PW + kw * AW;
              if (d >= 0 && d < D && h >= 0 && h < H && at >= 0 && at < W)
                total = fmaf(x[s.image * IMAGE + ((int64_t)(c * D + d) * H + h) * W + at],
                             w[weight_at(block * 64 + f, c, kd, kh, kw)], total);
            }
            const int64_t at = plane_at + f * RESULTS + (s.first + row) * OW + s.side + column;
            out[at] = followed(total + table[f].y, e0, e1, e2, e3, at, block * 64 + f);
          }
          continue;
        }
        const uint32_t pixels = (base + buffer * BLOCK >> 4) + first, filters = base + FILTERS + block * PACKED >> 4;
        float sum[PIXELS / 2], rest[PIXELS / 2];
        __syncwarp();
        asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
#pragma unroll
        for (int step = 0; step < STEPS; step++) {
          const int at = unit_at(2 * step), apart = 2 * step + 1 < UNITS ? unit_at(2 * step + 1) - at : 0;
          const uint64_t b = form | (uint64_t)apart << 16 | pixels + at, a = form | (uint64_t)FB << 16 | filters + step * 2 * FB;
          product(sum, a, b, step > 0);
          product(rest, a + (PART >> 4), b, step > 0);
          product(rest, a, b + (HALF >> 4), 1);
        }
        asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
#pragma unroll
        for (int k = 0; k < PIXELS / 2; k++) asm volatile("" : "+f"(sum[k]), "+f"(rest[k])::"memory");
        const float2 forms[2] = {table[warp * 16 + quad], table[warp * 16 + quad + 8]};
        if (F % 64 != 0 && block * 64 + warp * 16 >= F) continue;
        const int64_t origin = plane_at + warp * 16 * RESULTS + s.first * OW + s.side;
        writer.write(s, first, origin, block * 64 + warp * 16, turns.begins(turn), turns.ends(turn), [&](int k, int r) {
          return make_float2(fmaf(fmaf(rest[k], 0x1p-11f, sum[k]), forms[r].x, forms[r].y),
                             fmaf(fmaf(rest[k + 1], 0x1p-11f, sum[k + 1]), forms[r].x, forms[r].y));
        });
      }
      __syncwarp();
      if (lane == 0) bar_arrive(empty + 8 * buffer);
    }
  }
}

extern "C" int windows(const float* x, const float* w, const float* bias, uint8_t* packed, const float* e0,
                       const float* e1, const float* e2, const float* e3, float* out, int blocks, cudaStream_t stream) {
  return launch_both(BLOCKS * FB, w, bias, packed, convolve, blocks < WORK ? blocks : WORK, SMEM, stream, x, w,
                     (const uint8_t*)packed, e0, e1, e2, e3, out);
}

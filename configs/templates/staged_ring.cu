// Rows of x: which ones a block needs, on their way into the ring, and out of it.
// The tiles of one plane of outputs that a block has, and the rows of padded x that they need.
struct Segment {
  int plane, begin, end, first, last;
};
__device__ __forceinline__ Segment segment_of(int tile, int stop) {
  Segment g;
  g.plane = tile / TILES;
  g.begin = tile - g.plane * TILES;
  g.end = min(TILES, g.begin + stop - tile);
  g.first = g.begin * 128 / OW * SH;
  g.last = (min(g.end * 128, PLACES) - 1) / OW * SH + KH - 1;
  return g;
}

// The next row of x for the ring.
struct Row {
  Segment g;
  int tile, row;
  bool there;
  __device__ __forceinline__ void advance(int stop) {
    if (++row <= g.last) return;
    tile += g.end - g.begin;
    there = tile < stop;
    if (there) {
      g = segment_of(tile, stop);
      row = g.first;
    }
  }
};

// One row of all channels and depths of a filter: a thread has four numbers of each of its items, and the next one.
__device__ __forceinline__ void fetch(float (&v)[EACH][NUMBERS], const float* x, int plane, int row, int thread) {
  const int image = plane / OD, d0 = plane % OD * SD - PD, h = row - PH;
#pragma unroll
  for (int i = 0; i < EACH; i++) {
    const int item = thread + 128 * i, line = item / QUADS, w = item % QUADS * 4 - PW, d = d0 + line / C;
    const bool inside = item < ITEMS && h >= 0 && h < H && d >= 0 && d < D;
    const float* from = x + image * IMAGE + ((int64_t)(line % C * D + d) * H + h) * W + w;
    if (WIDE) {
      const float4 four = inside && w < W ? __ldg(reinterpret_cast<const float4*>(from)) : make_float4(0, 0, 0, 0);
      v[i][0] = four.x, v[i][1] = four.y, v[i][2] = four.z, v[i][3] = four.w;
      if (NUMBERS == 5) v[i][NUMBERS - 1] = thread % 32 == 31 && inside && w + 4 < W ? __ldg(from + 4) : 0.0f;
      continue;
    }
#pragma unroll
    for (int e = 0; e < NUMBERS; e++) v[i][e] = inside && w + e >= 0 && w + e < W ? __ldg(from + e) : 0.0f;
  }
}

__device__ __forceinline__ void store_two(uint32_t to, uint32_t a, uint32_t b) {
  asm volatile("st.shared.v2.b32 [%0], {%1, %2};" ::"r"(to), "r"(a), "r"(b) : "memory");
}

// Four numbers in fp8, which has the range of fp16: high, and then low.
__device__ __forceinline__ void split_small(const float (&v)[NUMBERS], uint32_t (&high)[NUMBERS - 2], uint32_t (&small)[NUMBERS - 2]) {
  small[0] = small[1] = 0;
#pragma unroll
  for (int i = 0; i < 2; i++) {
    const float a = v[2 * i] * 16.0f, b = v[2 * i + 1] * 16.0f;
    const __half2 pair = __floats2half2_rn(a, b);
    const float2 back = __half22float2(pair), low = {(a - back.x) * 2048.0f, (b - back.y) * 2048.0f};
    high[i] = bits_of(pair);
    small[0] |= (uint32_t)__nv_cvt_halfraw2_to_fp8x2(pair, __NV_SATFINITE, __NV_E5M2) << 16 * i;
    small[1] |= (uint32_t)__nv_cvt_float2_to_fp8x2(low, __NV_SATFINITE, __NV_E5M2) << 16 * i;
  }
}

__device__ __forceinline__ void take_two(uint32_t& a, uint32_t& b, uint32_t from) {
  if (SW % 4 == 0) {
    asm volatile("ld.shared.v2.b32 {%0, %1}, [%2];" : "=r"(a), "=r"(b) : "r"(from));
  } else {
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(a) : "r"(from));
    asm volatile("ld.shared.b32 %0, [%1];" : "=r"(b) : "r"(from + 4));
  }
}
__device__ __forceinline__ void take(uint32_t (&high)[STAGED_CHUNK][4], uint32_t (&low)[STAGED_CHUNK][4], const uint32_t (&at)[2],
                                     const int (&wrap)[2], uint32_t offsets, int chunk) {
#pragma unroll
  for (int i = 0; i < STAGED_CHUNK; i++) {
    if (chunk * STAGED_CHUNK + i < STEPS) {
      uint32_t offset;
      asm volatile("ld.shared.b32 %0, [%1];" : "=r"(offset) : "r"(offsets + 16 * (chunk * STAGED_CHUNK + i)));
#pragma unroll
      for (int r = 0; r < 2; r++) {
        const bool over = (int)(offset >> 24) >= wrap[r];
        const uint32_t from = at[r] + (offset & 0xffffffu) - (over ? SLOTS * SLOT : 0);
        take_two(high[i][r], high[i][2 + r], from);
        take_two(low[i][r], low[i][2 + r], from + SLOT_HALF);
      }
    }
  }
}

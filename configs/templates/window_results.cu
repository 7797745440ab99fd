// The results that belong to a buffer: at most LINES x COLUMNS of one plane, from a row and a column on. Rows that are not
// divided are one run in memory, of which each warpgroup has a part; of others each is one.
constexpr bool WHOLE = COLUMNS >= OW;
constexpr int STRIPS = (OH + LINES - 1) / LINES, SIDES = (OW + COLUMNS - 1) / COLUMNS, WORK = IMAGES * OD * STRIPS * SIDES;
constexpr int64_t RESULTS = (int64_t)OD * OH * OW;   // of a filter
struct Strip {
  int image, od, first, side, lines, columns;
};
__device__ __forceinline__ Strip strip_of(int work) {
  const int all = work / SIDES, side = (work - all * SIDES) * COLUMNS;
  const int plane = all / STRIPS, first = (all - plane * STRIPS) * LINES;
  return {plane / OD, plane % OD, first, side, min(LINES, OH - first), min(COLUMNS, OW - side)};
}
// The turns of a warpgroup: tiles of 128 pixels for one block of 64 filters, then those for the next.
struct Turns {
  int tiles, from, until;
  __device__ __forceinline__ int block(int turn) const { return turn / tiles; }
  __device__ __forceinline__ int tile(int turn) const { return turn - block(turn) * tiles; }
  __device__ __forceinline__ bool begins(int turn) const { return turn == from || tile(turn) == 0; }
  __device__ __forceinline__ bool ends(int turn) const { return turn + 1 == until || tile(turn) + 1 == tiles; }
};
__device__ __forceinline__ Turns turns_of(const Strip& s, int group, int number) {
  const int tiles = ((s.lines - 1) * PITCH + s.columns + PIXELS - 1) / PIXELS, middle = (tiles * BLOCKS + number % 2) / 2;
  return {tiles, group == 0 ? 0 : middle, group == 0 ? middle : tiles * BLOCKS};
}
// Of 64 pixels, those with results: from the first up to `stop`, and from `next` up to `end`, in the row behind it. They lie
// side by side, and `at` is where the first belongs, from the strip's first result on. Of divided rows it is one, `run`.
// Where more rows may be among 64 pixels, each pixel's place is computed.
struct Span {
  int at, count, stop, next, end, gap, pixel, lines;
  // Which of the results a pixel has, if it has one.
  __device__ __forceinline__ int index(int i) const {
    if (WHOLE && PITCH < 64) return (pixel + i) / PITCH * OW + (pixel + i) % PITCH - at;
    return i - (i >= next ? gap : 0);
  }
  __device__ __forceinline__ bool has(int i) const {
    if (WHOLE && PITCH < 64) return (pixel + i) / PITCH < lines & (pixel + i) % PITCH < OW;
    return WHOLE & i < stop | i >= next & i < end;
  }
};
__device__ __forceinline__ Span span_of(const Strip& s, int pixel, int run) {
  Span span = {};
  span.pixel = pixel, span.lines = s.lines;
  const int row = WHOLE ? min(pixel / PITCH, s.lines - 1) : run, column = pixel - row * PITCH;
  span.at = row * OW + max(0, min(column, s.columns));
  if (WHOLE && PITCH < 64) {
    const int last = min((pixel + 64) / PITCH, s.lines - 1);
    span.count = last * OW + min(pixel + 64 - last * PITCH, OW) - span.at;
    return span;
  }
  span.stop = WHOLE ? OW - column : 0;
  span.next = !WHOLE ? max(-column, 0) : row + 1 < s.lines ? PITCH - column : 64;
  span.end = !WHOLE ? s.columns - column : span.next + OW;
  span.gap = span.next - max(span.stop, 0);
  span.count = max(0, min(span.stop, 64)) + max(0, min(span.end, 64) - span.next);
  return span;
}

// L2 takes several times as long for a part of a sector, which is 32 bytes, as for a whole one. So a warp has a row of
// shared memory for each of 16 filters, and keeps what does not fill a sector until the results behind it are there.
constexpr int APART = 72, KEPT = 8 * 16 * APART * 4;   // numbers of a row, bytes of all
constexpr int TOGETHER = OW % 2 == 0 ? 2 : 1;           // numbers that a thread writes at once
struct Writer {
  float* kept;
  float* out;
  const float *e0, *e1, *e2, *e3;
  int begin;   // the place of the run's first result

  __device__ __forceinline__ void put(int64_t at, const float* from, int filter) const {
    if (TOGETHER == 2) {
      const float2 two = *reinterpret_cast<const float2*>(from);
      *reinterpret_cast<float2*>(out + at) = make_float2(followed(two.x, e0, e1, e2, e3, at, filter),
                                                         followed(two.y, e0, e1, e2, e3, at + 1, filter));
    } else {
      out[at] = followed(*from, e0, e1, e2, e3, at, filter);
    }
  }

  // Results of 16 filters for 128 pixels from `first` on. `origin` is where the first filter's results of the strip begin,
  // `result(k, r)` has the k-th pair of this thread as the tensor cores leave them, of row quad + 8 r. Whether this warp
  // writes what lies before, or behind, says that nothing of it is kept yet, or to keep.
  template <typename Result>
  __device__ __forceinline__ void write(const Strip& s, int first, int64_t origin, int filter, bool begins, bool ends,
                                        Result result) {
#pragma unroll
    for (int half = 0; half < 2; half++) {
      const int pixel = first + 64 * half;
#pragma unroll 1
      for (int run = WHOLE ? 0 : pixel / PITCH; run < (WHOLE ? 1 : s.lines) && run * PITCH < pixel + 64; run++) {
        const int stop = run * PITCH + s.columns;   // of a row
        if (!WHOLE && stop <= pixel) continue;
        write_run(s, pixel, run, origin, filter, half == 0 && begins || !WHOLE && run * PITCH >= pixel,
                  half == 1 && ends || !WHOLE && stop <= pixel + 64,
                  [&](int k, int r) { return result(32 * half + 2 * k, r); });
      }
    }
  }

  // Those of 64 pixels that belong to a run; nothing is kept where it ends.
  template <typename Result>
  __device__ __forceinline__ void write_run(const Strip& s, int pixel, int run, int64_t origin, int filter, bool begins,
                                            bool ends, Result result) {
    const int lane = threadIdx.x % 32, quad = lane / 4, q = lane % 4;
    const Span span = span_of(s, pixel, run);
    const int count = span.count;
    if (begins) begin = span.at;
    const int64_t next = origin + span.at;
    const int kept_before = span.at - begin;
    const auto offset = [&](int k) { return (int)next + k * (int)(RESULTS & 7) & 7; };   // numbers of a sector before the next
    __syncwarp();
    float* row = kept + quad * APART + offset(quad);   // offset(quad + 8) is the same
#pragma unroll
    for (int j = 0; j < 8; j++) {
      const float2 two[2] = {result(2 * j, 0), result(2 * j + 1, 1)};
      const int i = 8 * j + 2 * q;
      float* to = row + span.index(i);
#pragma unroll
      for (int r = 0; r < 2; r++) {
        if (TOGETHER == 2) {
          store_if(span.has(i), to + 8 * r * APART, two[r]);
        } else {
          if (span.has(i)) to[8 * r * APART] = two[r].x;
          if (span.has(i + 1)) to[8 * r * APART + 1] = two[r].y;
        }
      }
    }
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 2 / TOGETHER; i++) {
      const int number = TOGETHER * (32 * i + lane);
#pragma unroll
      for (int k = 0; k < 16; k++) {
        if (F % 16 != 0 && filter + k >= F) break;
        const int before = offset(k), whole = before + count & ~7;
        if (number < whole && number + kept_before >= before)
          put(next + k * RESULTS - before + number, kept + k * APART + number, filter + k);
      }
    }
    // What is left, at most 7 numbers of a filter.
    float2 two[4 / TOGETHER];
#pragma unroll
    for (int i = 0; i < 4 / TOGETHER; i++) {
      const int k = (32 * i + lane) * TOGETHER / 8, before = offset(k), whole = before + count & ~7;
      const int number = whole + (32 * i + lane) * TOGETHER % 8;
      const float* from = kept + k * APART + number;
      if (!ends)
        two[i] = TOGETHER == 2 ? *reinterpret_cast<const float2*>(from) : make_float2(*from, 0.0f);
      else if (number < before + count && number + kept_before >= before && (F % 16 == 0 || filter + k < F))
        put(next + k * RESULTS - before + number, from, filter + k);
    }
    if (ends) return;
    __syncwarp();
#pragma unroll
    for (int i = 0; i < 4 / TOGETHER; i++) {
      float* to = kept + (32 * i + lane) * TOGETHER / 8 * APART + (32 * i + lane) * TOGETHER % 8;
      to[0] = two[i].x;
      if (TOGETHER == 2) to[1] = two[i].y;
    }
  }
};

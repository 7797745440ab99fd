// A convolution is a product: its left operand are weights, its right one has a row for each channel and tap, with the
// number that each place of the output meets there. A struct P of constants says which number that is: along axis D, H
// or W, place x meets number x * STEP + TAP[t] of the input.

// Places j .. j + n of the output, n <= WIDTH, with the numbers that they meet at each channel and tap, WIDTH apart.
template <class P>
static inline void gather(const float* planes, long channels, long j, long n, float* to) {
  struct {
    long at, places, z, y, x;
  } runs[WIDTH];  // places of one row of the output
  int count = 0;
  for (long done = 0; done < n;) {
    const long place = j + done, x = place % P::OUT_W, run = least(n - done, P::OUT_W - x);
    const long y = place / P::OUT_W % P::OUT_H * P::STEP_H, z = place / (P::OUT_W * P::OUT_H) * P::STEP_D;
    runs[count++] = {done, run, z, y, x * P::STEP_W};
    done += run;
  }
  for (long channel = 0; channel < channels; channel++, planes += P::IN_D * P::IN_H * P::IN_W)
    for (const long d : P::TAP_D)
      for (const long h : P::TAP_H)
        for (const long w : P::TAP_W) {
          for (int r = 0; r < count; r++) {
            const long slice = runs[r].z + d, row = runs[r].y + h, first = runs[r].x + w, places = runs[r].places;
            const float* from = planes + (slice * P::IN_H + row) * P::IN_W + first;
            float* out = to + runs[r].at;
            const bool inside = slice >= 0 && slice < P::IN_D && row >= 0 && row < P::IN_H;
            // Places begin .. end meet numbers of the row, the others its borders.
            const long begin = first < 0 ? least(places, (-first + P::STEP_W - 1) / P::STEP_W) : 0;
            const long end = inside ? least(places, (P::IN_W - first + P::STEP_W - 1) / P::STEP_W) : 0;
            if (begin == 0 && end == WIDTH) {
              for (long l = 0; l < WIDTH; l++) out[l] = from[l * P::STEP_W];
              continue;
            }
            for (long l = 0; l < begin; l++) out[l] = 0;
            for (long l = begin; l < end; l++) out[l] = from[l * P::STEP_W];
            for (long l = most(begin, end); l < places; l++) out[l] = 0;
          }
          to += WIDTH;
        }
}

// Which number of a transposed kernel of planes and rows of these sizes is tap k.
template <class P>
static inline INLINE long tap(long k, long plane, long row) {
  const long w = k % P::TAPS_W, h = k / P::TAPS_W % P::TAPS_H, d = k / (P::TAPS_W * P::TAPS_H);
  return P::WEIGHT_D[d] * plane + P::WEIGHT_H[h] * row + P::WEIGHT_W[w];
}

// Where places j, j + 1, … lie in the whole output, of which they are every EVERY-th from FIRST on.
template <class P>
static inline INLINE void find(long j, int lanes, long* places) {
  for (int l = 0; l < lanes; l++, j++) {
    const long x = j % P::OUT_W * P::EVERY_W + P::FIRST_W, y = j / P::OUT_W % P::OUT_H * P::EVERY_H + P::FIRST_H;
    const long z = j / (P::OUT_W * P::OUT_H) * P::EVERY_D + P::FIRST_D;
    places[l] = (z * P::WHOLE_H + y) * P::WHOLE_W + x;
  }
}

template <long STRIDE>
static inline vec load_at(const float* from, const long* places, int lanes) {
  if (STRIDE == 0) return every(*from);
  vec value = {};
  for (int l = 0; l < lanes; l++) value[l] = from[places[l]];
  return value;
}

static inline void save_at(float* to, const long* places, vec value, int lanes) {
  for (int l = 0; l < lanes; l++) to[places[l]] = value[l];
}

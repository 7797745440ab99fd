// Windows of planes. A struct P of constants says which numbers a window reads, as for a convolution.

template <class P>
static inline constexpr long least_tap() {
  long least = 0;
  for (const long tap : P::TAP_W) least = tap < least ? tap : least;
  return least;
}

template <class P>
static inline constexpr long padded() {
  long last = P::IN_W - 1;
  for (const long tap : P::TAP_W) {
    const long at = (P::OUT_W - 1) * P::STEP_W + tap;
    last = at > last ? at : last;
  }
  return last + 1 - least_tap<P>();
}

// Every window of `planes` planes as one number: finish(plane, place, value, lanes). The rows of a window are combined
// side by side, then neighbours of the row that results.
template <class P, Reduction R, class Finish>
static inline INLINE void pools(const float* from, long planes, int threads, Finish finish) {
  constexpr long before = -least_tap<P>();
  const long grain = most(1, GRAIN / (P::OUT_W * P::TAPS_D * P::TAPS_H));
  spread(planes * P::OUT_D * P::OUT_H, 1, grain, threads, [=](long row, long, long) INLINE {
    alignas(64) float line[padded<P>()];
    for (float& one : line) one = neutral<R>();
    const long y = row % P::OUT_H * P::STEP_H, z = row / P::OUT_H % P::OUT_D * P::STEP_D;
    const long plane = row / (P::OUT_H * P::OUT_D);
    for (const long d : P::TAP_D)
      for (const long h : P::TAP_H) {
        if (z + d < 0 || z + d >= P::IN_D || y + h < 0 || y + h >= P::IN_H) continue;
        const float* in = from + ((plane * P::IN_D + z + d) * P::IN_H + y + h) * P::IN_W;
        sweep(0, P::IN_W, [&](long x, int lanes) INLINE {
          float* to = line + before + x;
          store(to, combined<R>(load<1>(to, lanes), load<1>(in + x, lanes)), lanes);
        });
      }
    sweep(0, P::OUT_W, [&](long x, int lanes) INLINE {
      vec value = every(neutral<R>());
      for (const long w : P::TAP_W) value = combined<R>(value, load<P::STEP_W>(line + before + x * P::STEP_W + w, lanes));
      finish(plane, row % (P::OUT_D * P::OUT_H) * P::OUT_W + x, value, lanes);
    });
  });
}

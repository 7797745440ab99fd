// A convolution in groups of few channels: each tap is added where it lies, since tiles of products would be empty.
// The planes are numbered by sample, group and channel that is made: finish(plane, place, sum, lanes).
template <class P, class Finish>
static inline INLINE void direct(const float* from, const float* weights, long samples, long groups, long channels,
                                 long made, int threads, Finish finish) {
  constexpr long TAPS = P::TAPS_D * P::TAPS_H * P::TAPS_W;
  const long grain = most(1, GRAIN / (P::OUT_W * TAPS));
  spread(samples * groups * made * P::OUT_D * P::OUT_H, 1, grain, threads, [=](long row, long, long) INLINE {
    alignas(64) float sums[P::OUT_W] = {};
    const long y = row % P::OUT_H * P::STEP_H, z = row / P::OUT_H % P::OUT_D * P::STEP_D;
    const long plane = row / (P::OUT_H * P::OUT_D), group = plane / made;
    const float* weight = weights + plane % (groups * made) * (channels * TAPS);
    for (long channel = 0; channel < channels; channel++)
      for (const long d : P::TAP_D)
        for (const long h : P::TAP_H) {
          const float* in = from + (((group * channels + channel) * P::IN_D + z + d) * P::IN_H + y + h) * P::IN_W;
          const bool inside = z + d >= 0 && z + d < P::IN_D && y + h >= 0 && y + h < P::IN_H;
          for (const long w : P::TAP_W) {
            const float factor = *weight++;
            // Places whose number is within the row.
            const long begin = w < 0 ? (-w + P::STEP_W - 1) / P::STEP_W : 0;
            const long end = inside && P::IN_W > w ? least(P::OUT_W, (P::IN_W - w + P::STEP_W - 1) / P::STEP_W) : 0;
            sweep(begin, end, [&](long x, int lanes) INLINE {
              const vec number = load<P::STEP_W>(in + x * P::STEP_W + w, lanes);
              store(sums + x, load<1>(sums + x, lanes) + factor * number, lanes);
            });
          }
        }
    sweep(0, P::OUT_W, [&](long x, int lanes) INLINE {
      finish(plane, row % (P::OUT_D * P::OUT_H) * P::OUT_W + x, load<1>(sums + x, lanes), lanes);
    });
  });
}

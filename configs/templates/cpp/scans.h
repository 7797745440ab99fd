// Prefix sums and products: each number of a row combined with all before it.

// The sum of each lane and all lanes before it, in as many steps as a power of two has.
static inline INLINE vec prefix_sums(vec x) {
#pragma GCC unroll 4
  for (int step = 1; step < LANES; step *= 2) {
    ivec from;
    for (int l = 0; l < LANES; l++) from[l] = l < step ? LANES : l - step;
    x += __builtin_shuffle(x, vec{}, from);
  }
  return x;
}

// A row of neighbours: value(j, lanes), finish(j, result, lanes). What is carried along is of fp64. So is each step of a
// product: that of a few numbers may leave the range of fp32 although the result does not.
template <Reduction R, class Value, class Finish>
static inline INLINE void scan(long n, Value value, Finish finish) {
  double carry = neutral<R>();
  sweep(0, n, [&](long j, int lanes) INLINE {
    vec result = value(j, lanes);
    if (R == SUM) {
      const vec sums = prefix_sums(result);
      result = sums + (float)carry;
      carry += sums[LANES - 1];
    } else {
#pragma GCC unroll 16
      for (int l = 0; l < LANES; l++) result[l] = carry *= result[l];
    }
    finish(j, result, lanes);
  });
}

// Columns begin .. end of `depth` rows, each summed up from the first row on: value(k, j, lanes), finish(k, j, result,
// lanes). What rounding takes from a sum is added to the next number (Kahan), as long as the sum is finite.
template <class Value, class Finish>
static inline INLINE void scan_down(long depth, long begin, long end, Value value, Finish finish) {
  alignas(64) float sums[COLUMNS] = {}, lost[COLUMNS] = {};
  for (long k = 0; k < depth; k++)
    sweep(begin, end, [&](long j, int lanes) INLINE {
      float *const sum_at = sums + j - begin, *const lost_at = lost + j - begin;
      const vec sum = load<1>(sum_at, LANES), y = value(k, j, lanes) + load<1>(lost_at, LANES), next = sum + y;
      store(lost_at, next - next == 0.0f ? y - (next - sum) : vec{}, LANES);
      store(sum_at, next, LANES);
      finish(k, j, next, lanes);
    });
}

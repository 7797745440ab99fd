#define KEEP 1        // tune: 0, 1
#define COLUMNS 1024  // tune: 256, 1024, 4096; that are reduced side by side

enum Reduction { SUM, PRODUCT, MAXIMUM, MINIMUM };

constexpr long PIECE = 4096;  // elements that one chain of sums adds up

template <Reduction R>
static inline float neutral() {
  return R == SUM ? 0.0f : R == PRODUCT ? 1.0f : R == MAXIMUM ? -__builtin_inff() : __builtin_inff();
}

template <Reduction R>
static inline vec combined(vec x, vec y) {
  return R == SUM ? x + y : R == PRODUCT ? x * y : R == MAXIMUM ? larger(x, y) : smaller(x, y);
}

template <Reduction R>
static inline double combined(double x, double y) {
  if (R == SUM || R == PRODUCT) return R == SUM ? x + y : x * y;
  return x != x || (R == MAXIMUM ? x > y : x < y) ? x : y;
}

// The lanes of a vector as one number.
template <Reduction R>
static inline float folded(vec all) {
#pragma GCC unroll 4
  for (int half = LANES / 2; half > 0; half /= 2) {
    ivec from;
    for (int l = 0; l < LANES; l++) from[l] = l ^ half;
    all = combined<R>(all, __builtin_shuffle(all, from));
  }
  return all[0];
}

// value(j, lanes) for begin <= j < end as one number.
template <Reduction R, class Value>
static inline INLINE double piece(long begin, long end, Value value) {
  vec part[4] = {every(neutral<R>()), every(neutral<R>()), every(neutral<R>()), every(neutral<R>())};
  long j = begin;
  for (; j + 4 * LANES <= end; j += 4 * LANES)
#pragma GCC unroll 4
    for (int u = 0; u < 4; u++) part[u] = combined<R>(part[u], value(j + u * LANES, LANES));
  for (; j + LANES <= end; j += LANES) part[0] = combined<R>(part[0], value(j, LANES));
  if (j < end) {
    vec rest = value(j, (int)(end - j));
    for (int l = (int)(end - j); l < LANES; l++) rest[l] = neutral<R>();
    part[1] = combined<R>(part[1], rest);
  }
  return folded<R>(combined<R>(combined<R>(part[0], part[1]), combined<R>(part[2], part[3])));
}

// A row as one number, by `team` threads. Pieces are combined in fp64, so that long rows lose nothing.
template <Reduction R, class Value>
static inline INLINE double across(long n, int team, Value value) {
  double result = neutral<R>();
  if (n <= PIECE) return piece<R>(0, n, value);
  if (team > 1) {
#pragma omp parallel num_threads(team)
    {
      double mine = neutral<R>();
#pragma omp for schedule(static) nowait
      for (long j = 0; j < n; j += PIECE) mine = combined<R>(mine, piece<R>(j, least(j + PIECE, n), value));
#pragma omp critical
      result = combined<R>(result, mine);
    }
  } else {
    for (long j = 0; j < n; j += PIECE) result = combined<R>(result, piece<R>(j, least(j + PIECE, n), value));
  }
  return result;
}

// Mean and variance of a row in one pass. Differences from the mean of its first piece are summed up, so that little is
// lost where the mean is large.
struct Moments {
  float mean, variance;
};

template <class Value>
static inline INLINE Moments moments(long n, int team, Value value) {
  const float centre = piece<SUM>(0, least(n, PIECE), value) / least(n, PIECE);
  double sum = 0, squares = 0;
#pragma omp parallel for num_threads(team) if (team > 1) reduction(+ : sum, squares) schedule(static)
  for (long begin = 0; begin < n; begin += PIECE) {
    vec part[2] = {}, square[2] = {};
    const auto add = [&](int u, vec difference) INLINE {
      part[u] += difference;
      square[u] += difference * difference;
    };
    const long end = least(begin + PIECE, n);
    long j = begin;
    for (; j + 2 * LANES <= end; j += 2 * LANES)
#pragma GCC unroll 2
      for (int u = 0; u < 2; u++) add(u, value(j + u * LANES, LANES) - centre);
    for (; j < end; j += LANES) {
      const int lanes = (int)least(LANES, end - j);
      vec difference = value(j, lanes) - centre;
      for (int l = lanes; l < LANES; l++) difference[l] = 0;
      add(0, difference);
    }
    sum += folded<SUM>(part[0] + part[1]);
    squares += folded<SUM>(square[0] + square[1]);
  }
  const double away = sum / n;
  return {(float)(centre + away), (float)(squares / n - away * away)};
}

// Visit the elements of a row, by `team` threads.
template <class Visit>
static inline INLINE void along(long n, int team, Visit visit) {
  if (team == 1) return sweep(0, n, visit);
  spread(1, n, most(PIECE, up(n / team, 16)), team, [&](long, long begin, long end) INLINE {
    sweep(begin, end, visit);
  });
}

// Share rows out to threads, or where there are too few of them, each row: visit(row, team).
template <class Visit>
static inline INLINE void by_rows(long rows, long n, int threads, Visit visit) {
  if (rows < threads && n >= 4 * PIECE) {
    for (long row = 0; row < rows; row++) visit(row, threads);
    return;
  }
  spread(rows, 1, most(1, GRAIN / n), threads, [&](long row, long, long) INLINE { visit(row, 1); });
}

// Columns begin .. end of `depth` rows, each as one number: value(k, j, lanes). Sums begin anew every 256 rows.
template <Reduction R, class Value>
static inline INLINE void down(long depth, long begin, long end, float* results, Value value) {
  for (long j = begin; j < end; j += LANES) store(results + j - begin, every(neutral<R>()), LANES);
  for (long top = 0; top < depth; top += 256) {
    alignas(64) float part[COLUMNS];
    for (long j = 0; j < COLUMNS; j += LANES) store(part + j, every(neutral<R>()), LANES);
    for (long k = top; k < least(top + 256, depth); k++)
      sweep(begin, end, [&](long j, int lanes) INLINE {
        float* to = part + j - begin;
        store(to, combined<R>(load<1>(to, LANES), value(k, j, lanes)), LANES);
      });
    for (long j = 0; j < end - begin; j += LANES)
      store(results + j, combined<R>(load<1>(results + j, LANES), load<1>(part + j, LANES)), LANES);
  }
}

// Share blocks of at most COLUMNS columns out to threads: visit(row, begin, end).
template <class Visit>
static inline INLINE void by_columns(long rows, long n, int threads, Visit visit) {
  const long blocks = (n + COLUMNS - 1) / COLUMNS;
#pragma omp parallel num_threads(threads) if (rows * blocks > 1)
  {
#pragma omp for schedule(static)
    for (long task = 0; task < rows * blocks; task++) {
      const long begin = task % blocks * COLUMNS;
      visit(task / blocks, begin, least(begin + COLUMNS, n));
    }
    finish_streaming();
  }
}

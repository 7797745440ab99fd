#define PACK 0        // tune: 0, 1
#define MR 12         // tune: 4, 6, 8, 12
#define NR 2          // tune: 1, 2, 3, 4
#define BLOCK_M 96    // tune: 48, 96, 192
#define BLOCK_N 1024  // tune: 256, 1024, 4096
#define BLOCK_K 256   // tune: 128, 256, 512
// tune if: MR * NR <= 28

constexpr long WIDTH = NR * LANES;                   // columns of a register tile
constexpr long ROWS = (BLOCK_M + MR - 1) / MR * MR;  // rows of a block

static inline float* buffer(long floats) { return (float*)aligned_alloc(64, up(floats * 4 + 64, 64)); }

// A left operand that lies in memory: rows ROW apart, neighbours of a row STEP apart.
template <long ROW, long STEP>
struct Strided {
  const float* from;
  float operator()(long i, long k) const { return from[i * ROW + k * STEP]; }
};

// Where rows of a left operand can be read as they are, and how far apart they lie: nowhere but in such a one.
template <class Left>
struct Plain {
  static constexpr long ROW = 0;
  static const float* rows(const Left&, long, long) { return nullptr; }
};
template <long OWN>
struct Plain<Strided<OWN, 1>> {
  static constexpr long ROW = PACK ? 0 : OWN;
  static const float* rows(const Strided<OWN, 1>& left, long i, long k) { return left.from + i * OWN + k; }
};

// sums (MR x WIDTH) += left (MR x k) right (k x WIDTH); entry (r, p) of left is left[r * ROW + p * STEP].
template <long ROW, long STEP>
static inline void tile(const float* left, const float* right, float* sums, long k) {
  vec sum[MR][NR] = {};
  for (long p = 0; p < k; p++) {
    vec factor[NR];
#pragma GCC unroll 8
    for (int v = 0; v < NR; v++) factor[v] = *(const memory_vec*)(right + p * WIDTH + v * LANES);
#pragma GCC unroll 16
    for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
      for (int v = 0; v < NR; v++) sum[r][v] += left[r * ROW + p * STEP] * factor[v];
  }
#pragma GCC unroll 16
  for (int r = 0; r < MR; r++)
#pragma GCC unroll 8
    for (int v = 0; v < NR; v++) *(memory_vec*)(sums + r * WIDTH + v * LANES) += sum[r][v];
}

// out[i, j] = sum over k of left[i, k] right[k, j], for one matrix, by all threads of the team that calls it.
//
// left(i, k) is one number. right(j, n, to) writes columns j .. j + n of all rows, WIDTH apart. What finish(i, j, sum,
// lanes) does with the sums is the caller's. The blocking and the register tile follow K. Goto and R. van de Geijn,
// "Anatomy of High-Performance Matrix Multiplication", ACM TOMS 34(3), 2008; sums begin anew every BLOCK_K products.
template <class Left, class Right, class Finish>
static inline INLINE void product(long M, long N, long K, float* packed_left, float* packed_right, Left left,
                                  Right right, Finish finish) {
  constexpr long ROW = Plain<Left>::ROW;
  const long plain = ROW ? M / MR * MR : 0;  // so many rows are read as they are
#pragma omp for schedule(static)
  for (long i = plain; i < M; i += MR)
    for (long p = 0; p < K; p++)
      for (int r = 0; r < MR; r++) packed_left[(i - plain) * K + p * MR + r] = i + r < M ? left(i + r, p) : 0;
  for (long first = 0; first < N; first += BLOCK_N) {
    const long columns = least(BLOCK_N, N - first), strips = (columns + WIDTH - 1) / WIDTH;
#pragma omp for schedule(static)
    for (long strip = 0; strip < strips; strip++) {
      const long j = strip * WIDTH, n = least(WIDTH, columns - j);
      float* to = packed_right + j * K;
      if (n < WIDTH) memset(to, 0, K * WIDTH * sizeof(float));
      right(first + j, n, to);
    }
    const long blocks = (M + ROWS - 1) / ROWS;
#pragma omp for schedule(dynamic)
    for (long task = 0; task < blocks * strips; task++) {
      alignas(64) float sums[ROWS * WIDTH] = {};
      const long top = task / strips * ROWS, rows = least(ROWS, M - top), j = task % strips * WIDTH;
      for (long p = 0; p < K; p += BLOCK_K)
        for (long i = 0; i < rows; i += MR) {
          const float* to_the_right = packed_right + j * K + p * WIDTH;
          if (top + i < plain)
            tile<ROW, 1>(Plain<Left>::rows(left, top + i, p), to_the_right, sums + i * WIDTH, least(BLOCK_K, K - p));
          else
            tile<1, MR>(packed_left + (top + i - plain) * K + p * MR, to_the_right, sums + i * WIDTH,
                        least(BLOCK_K, K - p));
        }
      for (long i = 0; i < rows; i++)
        for (long l = 0; l < least(WIDTH, columns - j); l += LANES)
          finish(top + i, first + j + l, *(const memory_vec*)(sums + i * WIDTH + l),
                 (int)least(LANES, columns - j - l));
    }
  }
}

// `matrices` products of the same size, each by all threads, or where there are enough of them each by one:
// left(b) for what `product` calls left, right(b, j, n, to), finish(b, i, j, sum, lanes). Teams are not nested but for
// those of one thread: libgomp makes new threads for a nested team each time.
template <class Left, class Right, class Finish>
static inline INLINE void products(long matrices, long M, long N, long K, int threads, Left left, Right right,
                                   Finish finish) {
  const long left_size = up(M, MR) * K, right_size = up(least(BLOCK_N, N), WIDTH) * K;
  const auto one = [&](long b, int team, float* packed_left, float* packed_right) INLINE {
    const auto own = left(b);
#pragma omp parallel num_threads(team)
    {
      product(
          M, N, K, packed_left, packed_right, own, [&](long j, long n, float* to) INLINE { right(b, j, n, to); },
          [&](long i, long j, vec sum, int lanes) INLINE { finish(b, i, j, sum, lanes); });
      finish_streaming();
    }
  };
  if (threads > 1 && matrices >= 2 * threads) {
#pragma omp parallel num_threads(threads)
    {
      float *packed_left = buffer(left_size), *packed_right = buffer(right_size);
#pragma omp for schedule(dynamic)
      for (long b = 0; b < matrices; b++) one(b, 1, packed_left, packed_right);
      free(packed_left);
      free(packed_right);
    }
  } else {
    float *packed_left = buffer(left_size), *packed_right = buffer(right_size);
    for (long b = 0; b < matrices; b++) one(b, threads, packed_left, packed_right);
    free(packed_left);
    free(packed_right);
  }
}

// A right operand that lies in memory: columns j .. j + n of k rows ROW apart, neighbours of a row STEP apart.
template <long ROW, long STEP>
static inline void pack(const float* from, long k, long n, float* to) {
  if (STEP != 1) {
    for (long l = 0; l < n; l++)
      for (long p = 0; p < k; p++) to[p * WIDTH + l] = from[p * ROW + l * STEP];
    return;
  }
  for (long p = 0; p < k; p++, from += ROW, to += WIDTH)
    if (n == WIDTH)
      memcpy(to, from, WIDTH * sizeof(float));
    else
      memcpy(to, from, n * sizeof(float));
}

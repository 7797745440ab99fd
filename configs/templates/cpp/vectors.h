#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define LANES 16     // tune: 4, 8, 16
#define GRAIN 16384  // tune: 2048, 16384, 131072
#define STREAM 0     // tune: 0, 1

// GCC lowers a vector to what the machine has; rows may start anywhere, so memory is read unaligned.
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t ivec __attribute__((vector_size(4 * LANES)));
typedef vec memory_vec __attribute__((aligned(4), may_alias));

#define INLINE __attribute__((always_inline))

static inline long least(long x, long y) { return x < y ? x : y; }
static inline long most(long x, long y) { return x > y ? x : y; }
static inline long up(long x, long step) { return (x + step - 1) / step * step; }

template <class To, class From>
static inline To bits(const From& value) {
  To same;
  memcpy(&same, &value, sizeof same);
  return same;
}

static inline vec every(float value) { return vec{} + value; }

// The first `lanes` of LANES numbers that lie STRIDE apart; the others are 0. STRIDE 0: one number, in all lanes.
template <long STRIDE>
static inline vec load(const float* from, int lanes) {
  if (STRIDE == 0) return every(*from);
  if (STRIDE == 1 && lanes == LANES) return *(const memory_vec*)from;
  vec value = {};
  if (lanes == LANES)
    for (int l = 0; l < LANES; l++) value[l] = from[l * STRIDE];
  else
    for (int l = 0; l < lanes; l++) value[l] = from[l * STRIDE];
  return value;
}

static inline void store(float* to, vec value, int lanes) {
  if (lanes == LANES)
    *(memory_vec*)to = value;
  else
    memcpy(to, &value, lanes * sizeof(float));
}

// Past the caches, where that is asked for, the machine can and the address is aligned; else as usual.
template <bool LAST>
static inline void save(float* to, vec value, int lanes) {
  if (LAST && STREAM && lanes == LANES && (uintptr_t)to % sizeof(vec) == 0) {
#if LANES == 16 && defined(__AVX512F__)
    return __builtin_ia32_movntps512(to, value);
#elif LANES == 8 && defined(__AVX__)
    return __builtin_ia32_movntps256(to, value);
#elif LANES == 4 && defined(__SSE__)
    return __builtin_ia32_movntps(to, value);
#endif
  }
  store(to, value, lanes);
}

static inline void finish_streaming() {
#ifdef __SSE__
  if (STREAM) __builtin_ia32_sfence();
#endif
}

// Visit begin .. end in steps of LANES: visit(index, lanes); `lanes` is short for the last step only.
template <class Visit>
static inline INLINE void sweep(long begin, long end, Visit visit) {
  long j = begin;
#pragma GCC unroll 4
  for (; j + LANES <= end; j += LANES) visit(j, LANES);
  if (j < end) visit(j, (int)(end - j));
}

// Share rows of n elements out to threads, in pieces of about `grain` elements: visit(row, begin, end).
template <class Visit>
static inline INLINE void spread(long rows, long n, long grain, int threads, Visit visit) {
  const long together = n < grain ? most(1, grain / n) : 1;    // rows to a piece
  const long parts = n < grain ? 1 : (n + grain - 1) / grain;  // pieces to a row
  const long part = up((n + parts - 1) / parts, 16);
  const long pieces = (rows + together - 1) / together * parts;
  const int team = (int)least(threads, pieces);
#pragma omp parallel num_threads(team) if (team > 1)
  {
#pragma omp for schedule(static)
    for (long piece = 0; piece < pieces; piece++) {
      const long first = piece / parts * together, begin = piece % parts * part;
      for (long row = first; row < least(first + together, rows); row++) visit(row, begin, least(begin + part, n));
    }
    finish_streaming();
  }
}

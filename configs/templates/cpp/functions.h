// Functions of vectors to the last digits of fp32, at any argument; NaN and infinities as the C library treats them.

static inline vec larger(vec x, vec y) { return x != x || x > y ? x : y; }  // a NaN wins, as in torch
static inline vec smaller(vec x, vec y) { return x != x || x < y ? x : y; }
template <class Above, class Below>
static inline auto quotient(Above above, Below below) { return above / below; }
static inline vec magnitude(vec x) { return bits<vec>(bits<ivec>(x) & 0x7fffffff); }
static inline vec with_sign(vec x, vec sign) {
  return bits<vec>((bits<ivec>(x) & 0x7fffffff) | (bits<ivec>(sign) & (int32_t)0x80000000));
}

template <class Function>
static inline INLINE vec lanewise(vec x, Function function) {
  vec y;
  for (int l = 0; l < LANES; l++) y[l] = function(x[l]);
  return y;
}

static inline vec root(vec x) {
  return lanewise(x, [](float one) INLINE { return __builtin_sqrtf(one); });
}

// exp(r) - 1 - r for |r| <= ln(2) / 2: our own minimax fit.
static inline vec exponential_rest(vec r) {
  vec p = r * 1.38144667e-3f + 8.36878043e-3f;
  p = p * r + 4.16683942e-2f;
  p = p * r + 1.66665201e-1f;
  p = p * r + 4.99999934e-1f;
  return p * r * r;
}

// p 2^n for whole n, in two halves, so that results may be subnormal or infinite.
static inline vec scaled(vec p, vec n) {
#if LANES == 16 && defined(__AVX512F__)
  return __builtin_ia32_scalefps512_mask(p, n, p, (short)-1, 4);
#else
  const ivec power = __builtin_convertvector(n, ivec), half = power >> 1;
  return p * bits<vec>((half + 127) << 23) * bits<vec>((power - half + 127) << 23);
#endif
}

// exp(x) = 2^n exp(r). Adding 1.5 * 2^23 rounds to a whole number; ln(2) is split into 355/512 and the rest, so that
// n * ln(2) is subtracted without loss (Cody and Waite).
static inline vec exponential(vec x) {
  x = x > 89.0f ? every(89.0f) : x;
  x = x < -104.0f ? every(-104.0f) : x;
  const vec n = (x * 1.44269504f + 12582912.0f) - 12582912.0f;
  const vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  return scaled(exponential_rest(r) + r + 1.0f, n);
}

// exp(x) - 1
static inline vec exponential_less_one(vec x) {
  return magnitude(x) < 0.34f ? exponential_rest(x) + x : exponential(x) - 1.0f;
}

// log(x) = e ln(2) + 2 artanh((m - 1) / (m + 1)) with sqrt(1/2) <= m < sqrt(2).
static inline vec logarithm(vec x) {
  const ivec tiny = x < 1.17549435e-38f;  // subnormal numbers become normal ones
  const vec y = tiny ? x * 33554432.0f : x;
  const ivec shift = bits<ivec>(y) - 0x3f3504f3, exponent = shift >> 23;
  const vec m = bits<vec>(bits<ivec>(y) - (exponent << 23));
  const vec e = __builtin_convertvector(exponent, vec) - (tiny ? every(25.0f) : vec{});
  const vec s = (m - 1.0f) / (m + 1.0f), u = s * s;
  const vec p = (((u * 0.222222222f + 0.285714286f) * u + 0.4f) * u + 0.666666667f) * u * s + 2.0f * s;
  vec result = e * 0.693359375f + (p - e * 2.12194440e-4f);
  result = x == __builtin_inff() ? x : result;
  result = x == 0.0f ? every(-__builtin_inff()) : result;
  return x < 0.0f || x != x ? every(__builtin_nanf("")) : result;
}

// log(1 + x) (Kahan): the rounding of 1 + x is taken back.
static inline vec logarithm_of_one_plus(vec x) {
  const vec u = 1.0f + x, r = logarithm(u) * (x / (u - 1.0f));
  return u == 1.0f || x == __builtin_inff() ? x : r;
}

static inline vec sigmoid(vec x) { return 1.0f / (1.0f + exponential(-x)); }

// A continued fraction where 1 - 2 / (exp(2x) + 1) would lose digits.
static inline vec tangent(vec x) {
  const vec a = magnitude(x), u = x * x;
  const vec near = x * (10395.0f + u * (1260.0f + u * 21.0f)) / (10395.0f + u * (4725.0f + u * (210.0f + u)));
  return a < 0.6f ? near : with_sign(1.0f - 2.0f / (exponential(2.0f * a) + 1.0f), x);
}

// erfc(x) for x >= 0 as exp(-x^2) p(t), t = 1 / (1 + 0.4 x) - 1/2: our own minimax fit of p.
static inline vec error_rest(vec x) {
  static const float c[] = {0.210806364f,  0.743473460f,  1.006852655f,  1.000265450f,   0.638769708f,  0.127755158f,
                            -0.169338560f, -0.111233774f, 0.0605790811f, 0.0569163174f, -0.0386723467f};
  const vec t = 1.0f / (1.0f + 0.4f * x) - 0.5f;
  vec p = every(c[10]);
#pragma GCC unroll 10
  for (int k = 9; k >= 0; k--) p = p * t + c[k];
  const vec square = x * x;
  return x > 10.5f ? vec{} : p * exponential(-square) * (1.0f + (square - x * x));  // what rounding took, by one FMA
}

static inline vec error_function(vec x) {
  const vec a = magnitude(x), u = x * x;
  vec p = u * 7.85385768e-5f - 8.01019251e-4f;
  p = p * u + 5.18832756e-3f;
  p = p * u - 2.68538119e-2f;
  p = p * u + 1.12835851e-1f;
  p = p * u - 3.76126258e-1f;
  p = p * u + 1.12837917f;
  return a < 1.0f ? x * p : with_sign(1.0f - error_rest(a), x);
}

// x Phi(x). The polynomial is our own minimax fit of (Phi(x) - 1/2) / x in 2 x^2 / 25 - 1: off by 3e-8 at most, and
// beyond |x| = 5 Phi is 0 or 1 to 3e-7.
static inline vec gelu(vec x) {
  static const float c[] = {0.141363814f,      -0.0702967867f,   0.0515184402f,    -0.0404270627f,  0.0314699598f,
                            -0.0234041624f,    0.0162687264f,    -0.0106614809f,   0.00669658929f,  -0.00358744315f,
                            0.00144298247f,    -0.00084074738f,  0.000710507913f,  -0.000253398728f};
  const vec u = x * x * 0.08f - 1.0f;
  vec p = every(c[13]);
#pragma GCC unroll 13
  for (int k = 12; k >= 0; k--) p = p * u + c[k];
  return x * (x * x < 25.0f ? x * p + 0.5f : x > 0.0f ? every(1.0f) : x != x ? x : vec{});
}

static inline vec gelu_by_tangent(vec x) {
  return 0.5f * x * (1.0f + tangent(0.797884561f * (x + 0.044715f * x * x * x)));
}

static inline vec silu(vec x) { return x / (1.0f + exponential(-x)); }

static inline vec softplus(vec x, float beta, float threshold) {
  return x * beta > threshold ? x : logarithm_of_one_plus(exponential(x * beta)) / beta;
}

// x tanh(log(1 + e)) with e = exp(x)
static inline vec mish(vec x) {
  const vec e = exponential(x), w = e * (e + 2.0f);
  return x > 20.0f ? x : x * w / (w + 2.0f);
}

// As `functions.py` has them.
#define FUNCTION __device__ __forceinline__ float
FUNCTION epilogue_quotient(float x, float y) {  // by at most 2 ulp off, as in Triton: an exact one has a branch for each
  float r;
  asm("div.full.f32 %0, %1, %2;" : "=f"(r) : "f"(x), "f"(y));
  return r;
}
FUNCTION epilogue_larger(float x, float y) { return x != x || x > y ? x : y; }  // a NaN wins, as in torch
FUNCTION epilogue_smaller(float x, float y) { return x != x || x < y ? x : y; }
FUNCTION epilogue_magnitude(float x) { return fabsf(x); }
FUNCTION epilogue_root(float x) { return sqrtf(x); }
FUNCTION epilogue_exponential(float x) { return expf(x); }
FUNCTION epilogue_exponential_less_one(float x) { return expm1f(x); }
FUNCTION epilogue_logarithm(float x) { return logf(x); }
FUNCTION epilogue_logarithm_of_one_plus(float x) { return log1pf(x); }
FUNCTION epilogue_error_function(float x) { return erff(x); }
FUNCTION epilogue_tangent(float x) { return tanhf(x); }
FUNCTION epilogue_sigmoid(float x) { return epilogue_quotient(1.0f, 1.0f + expf(-x)); }
FUNCTION epilogue_silu(float x) { return epilogue_quotient(x, 1.0f + expf(-x)); }
FUNCTION epilogue_gelu(float x) { return 0.5f * x * (1.0f + erff(x * 0.70710678f)); }
FUNCTION epilogue_gelu_by_tangent(float x) {
  return 0.5f * x * (1.0f + tanhf(0.79788456f * (x + 0.044715f * x * x * x)));
}
FUNCTION epilogue_softplus(float x, float beta, float threshold) {
  return x * beta > threshold ? x : epilogue_quotient(log1pf(expf(x * beta)), beta);
}
FUNCTION epilogue_mish(float x) {  // x tanh(log(1 + e)) with e = exp(x)
  const float e = expf(x), w = e * (e + 2.0f);
  return x > 20.0f ? x : epilogue_quotient(x * w, w + 2.0f);
}

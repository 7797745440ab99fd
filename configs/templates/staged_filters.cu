// Filters: each split into two parts, in the order of an operand of the tensor cores.
__global__ void __launch_bounds__(256) pack_filters(const float* w, const float* bias, uint8_t* packed) {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
  const int f = blockIdx.x, column = f % BN;
  uint8_t* to = packed + (int64_t)(f / BN) * PACKED;
  const int power = power_of(w + (int64_t)f * TAPS, f < F ? TAPS : 0, [](int i) { return i; });
  const float scale = __uint_as_float((unsigned)power << 23);
  for (int i = threadIdx.x; i < STEPS * 16; i += 256) {
    const int g = i / 4, e = i % 4, kh = g % KH, j = g / KH % GW, row = g / KH / GW, kw = 4 * j + e;
    float v = 0.0f;
    if (f < F && g < GROUPS && kw < KW)
      v = w[(int64_t)f * TAPS + ((row % C * KD + row / C) * KH + kh) * KW + kw] * scale;
    const __half high = __float2half_rn(v);
    const int at = i / 16 * (BN * 32) + (e >> 1) * (BN * 16) + column * 16 + (2 * (g % 4) + (e & 1)) * 2;
    *reinterpret_cast<__half*>(to + at) = high;
    const float low = (v - __half2float(high)) * 2048.0f;
    if (SMALL) {
      // Four of low, for high of x, and behind the 16 of a step four of high, for low of x.
      uint8_t* small = to + PART + i / 16 * (BN * 32) + column * 16 + 4 * (g % 4) + e;
      small[0] = __nv_cvt_float_to_fp8(low * 0x1p-7f, __NV_SATFINITE, __NV_E4M3);
      small[BN * 16] = __nv_cvt_float_to_fp8(__half2float(high) * 0x1p-7f, __NV_SATFINITE, __NV_E4M3);
    } else {
      *reinterpret_cast<__half*>(to + PART + at) = __float2half_rn(low);
    }
  }
  if (threadIdx.x == 0) {
    float* table = reinterpret_cast<float*>(to + TABLE) + 2 * column;
    table[0] = __uint_as_float((unsigned)(254 - power) << 23) * 0.0625f;
    table[1] = f < F && bias != nullptr ? bias[f] : 0.0f;
  }
}

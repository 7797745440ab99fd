// What convolutions of warpgroups share, whose numbers are pairs of fp16 in shared memory.
@functions.cu@
// What follows: at is the place in the result, column its filter.
FUNCTION followed(float value, const float* e0, const float* e1, const float* e2, const float* e3, int64_t at, int column) {
  EPILOGUE
  return value;
}

__device__ __forceinline__ void bar_init(uint32_t bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(count));
}
__device__ __forceinline__ void bar_arrive(uint32_t bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory");
}
__device__ __forceinline__ void bar_wait(uint32_t bar, uint32_t parity) {
  uint32_t done;
  do {
    asm volatile("{ .reg .pred P; mbarrier.try_wait.parity.shared::cta.b64 P, [%1], %2; selp.u32 %0, 1, 0, P; }"
                 : "=r"(done) : "r"(bar), "r"(parity) : "memory");
  } while (!done);
}

// By one thread: waits for the kernel that packs filters, and begins to copy them to shared memory.
__device__ __forceinline__ void copy_filters(uint32_t to, const uint8_t* packed, int bytes, uint32_t ready) {
  asm volatile("griddepcontrol.wait;" ::: "memory");
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(ready), "r"(bytes) : "memory");
  for (int i = 0; i < bytes; i += 16384)
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];"
                 ::"r"(to + i), "l"(packed + i), "r"(min(16384, bytes - i)), "r"(ready) : "memory");
}

__device__ __forceinline__ uint32_t bits_of(__half2 a) { return *reinterpret_cast<uint32_t*>(&a); }
// Two numbers as a pair of fp16 each: 16 x = high + low / 2048.
__device__ __forceinline__ void split(float a, float b, uint32_t& high, uint32_t& low) {
  a *= 16.0f, b *= 16.0f;
  const __half2 pair = __floats2half2_rn(a, b);
  const float2 back = __half22float2(pair);
  high = bits_of(pair);
  low = bits_of(__floats2half2_rn((a - back.x) * 2048.0f, (b - back.y) * 2048.0f));
}

// By a block of 256: the exponent, as a float has it, of the power of two that brings the largest finite magnitude of a
// filter of so many numbers to [2^14, 2^15).
template <typename Place>
__device__ __forceinline__ int power_of(const float* w, int numbers, Place place) {
  __shared__ unsigned top;
  if (threadIdx.x == 0) top = 0;
  __syncthreads();
  unsigned most = 0;
  for (int i = threadIdx.x; i < numbers; i += 256) {
    const unsigned u = __float_as_uint(w[place(i)]) & 0x7fffffffu;
    if (u < 0x7f800000u) most = max(most, u);
  }
  most = __reduce_max_sync(0xffffffffu, most);
  if (threadIdx.x % 32 == 0) atomicMax(&top, most);
  __syncthreads();
  return min(268 - (int)(top >> 23), 253);
}

__global__ void pack_filters(const float* w, const float* bias, uint8_t* packed);
// Packs filters and convolves, which may begin meanwhile, and waits for the filters itself.
template <typename... Types, typename... Given>
int launch_both(int filters, const float* w, const float* bias, uint8_t* packed, void (*convolve)(Types...), int blocks,
                int shared, cudaStream_t stream, Given... given) {
  pack_filters<<<filters, 256, 0, stream>>>(w, bias, packed);
  cudaError_t status = cudaGetLastError();
  if (status != cudaSuccess) return status;
  status = cudaFuncSetAttribute(convolve, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute attribute[1];
  attribute[0].id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute[0].val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(blocks);
  config.blockDim = dim3(384);
  config.dynamicSmemBytes = shared;
  config.stream = stream;
  config.attrs = attribute;
  config.numAttrs = 1;
  status = cudaLaunchKernelEx(&config, convolve, given...);
  if (status != cudaSuccess) return status;
  return cudaGetLastError();
}

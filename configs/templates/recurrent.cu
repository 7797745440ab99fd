// GRU or LSTM layers in one launch. A cell (one layer, one direction, some sequences) is a cluster of 16 blocks, which keep
// its weights in registers and exchange the new state through each other's shared memory. Layers follow each other as a
// wave: a layer works on step t while the next one works on an earlier step.
#include <cstdint>
#include <cuda_runtime.h>

CONSTANTS
// GATES: 3 (GRU: r, z, n) or 4 (LSTM: i, f, g, o); H: numbers of a state; B: most sequences; SLOTS: inputs fetched ahead;
// MOST: cells of a launch.
constexpr int RANKS = 16, UNITS = H / RANKS, CHUNKS = H / 64;  // units of a block; float4 of a row of weights for a lane
constexpr int COMPUTE = UNITS / 2;                             // warps that compute: a half warp for each unit
constexpr int PART = B * UNITS;                                // numbers that a block sends: [batch][unit]
constexpr int PITCH = PART + (PART % 32 == 0 ? 16 : 0);        // four parts that are read at once are in two sets of banks
constexpr int STATE = RANKS * PITCH;

struct Cell {
  const float *w_ih, *w_hh, *b_ih, *b_hh, *h0, *c0;
  const float* projected;  // [step][batch][gate][unit] of the first layer, with b_ih in it; null for others
  float* sequence;         // [step][rank][batch][unit], for the next layer; null of a last layer
  float* out;              // null but of a last layer
  float *hn, *cn;
  const unsigned* before;  // [rank]: steps that the layer before has written; null of a first layer
  unsigned* done;          // the same of this one; null of a last layer
  const float* source;     // its sequence
  long long projected_step, projected_batch, out_step, out_batch, reverse, batch;   // batch: its sequences, at most B
};
struct Cells { Cell cell[MOST]; };

struct Shared {
  alignas(16) float state[2][STATE];
  alignas(16) float input[SLOTS][STATE];
  alignas(16) float part[2][PART];
  float4 weights[UNITS * GATES * CHUNKS * 16];
  alignas(8) uint64_t full[2], staged[2], filled[SLOTS], empty[SLOTS];
};

__device__ __forceinline__ uint32_t at(const void* p) { return static_cast<uint32_t>(__cvta_generic_to_shared(p)); }
__device__ __forceinline__ void init(uint64_t* bar, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at(bar)), "r"(count) : "memory");
}
__device__ __forceinline__ void expect(uint64_t* bar, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at(bar)), "r"(bytes) : "memory");
}
__device__ __forceinline__ void arrive(uint64_t* bar) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at(bar)) : "memory");
}
__device__ __forceinline__ void wait(uint64_t* bar, int parity) {
  asm volatile(
      "{ .reg .pred p; again: mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%0], %1; @!p bra again; }" ::"r"(at(bar)), "r"(parity)
      : "memory");
}
__device__ __forceinline__ unsigned rank() {
  unsigned r;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(r));
  return r;
}
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// Copies to a block of the cluster, and reports the bytes to a barrier there.
__device__ __forceinline__ void send(void* to, const void* from, int bytes, uint64_t* bar, unsigned target) {
  uint32_t there, bar_there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(at(to)), "r"(target));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(bar_there) : "r"(at(bar)), "r"(target));
  asm volatile("cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(there), "r"(at(from)),
               "r"(bytes), "r"(bar_there)
               : "memory");
}
__device__ __forceinline__ void fetch(void* to, const void* from, int bytes, uint64_t* bar) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(at(to)), "l"(from), "r"(bytes),
               "r"(at(bar))
               : "memory");
}

// A lane's share of a row of weights: numbers 4 lane + 64 j to 4 lane + 64 j + 3.
__device__ __forceinline__ float4 weights(const float* from, int gate, int unit, int j, int lane) {
  return *reinterpret_cast<const float4*>(from + (gate * H + unit) * H + 4 * lane + 64 * j);
}

// Each step halves the batch elements of a lane: it sends those that it does not keep.
template <int HALF>
__device__ __forceinline__ void add_lanes(float (&p)[16], int lane) {
  const bool upper = lane & HALF;
#pragma unroll
  for (int b = 0; b < (HALF < B ? HALF : B); b++) {  // the others are zeros
    const float kept = upper ? p[b + HALF] : p[b], sent = upper ? p[b] : p[b + HALF];
    p[b] = kept + __shfl_xor_sync(0xffffffff, sent, HALF);
  }
  if constexpr (HALF > 1) add_lanes<HALF / 2>(p, lane);
}

// sums[gate]: weights times a state or an input in shared memory, of the batch element with this lane's number.
template <class Weights>
__device__ __forceinline__ void multiply(float (&sums)[GATES], const Weights& weights, const float* x, int lane) {
  float p[GATES][16];
#pragma unroll
  for (int gate = 0; gate < GATES; gate++)
#pragma unroll
    for (int b = 0; b < 16; b++) p[gate][b] = 0.0f;
#pragma unroll
  for (int j = 0; j < CHUNKS; j++) {
    const int k = 4 * lane + 64 * j;
    float4 w[GATES];
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) w[gate] = weights(gate, j);
#pragma unroll
    for (int b = 0; b < B; b++) {
      const float4 v = *reinterpret_cast<const float4*>(x + k / UNITS * PITCH + b * UNITS + k % UNITS);
#pragma unroll
      for (int gate = 0; gate < GATES; gate++) {
        p[gate][b] = fmaf(w[gate].x, v.x, p[gate][b]);
        p[gate][b] = fmaf(w[gate].y, v.y, p[gate][b]);
        p[gate][b] = fmaf(w[gate].z, v.z, p[gate][b]);
        p[gate][b] = fmaf(w[gate].w, v.w, p[gate][b]);
      }
    }
  }
#pragma unroll
  for (int gate = 0; gate < GATES; gate++) {
    add_lanes<8>(p[gate], lane);
    sums[gate] = p[gate][0];
  }
}

__device__ __forceinline__ float sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }

// The new state of a unit, from what its gates get of the input and of the state before.
__device__ __forceinline__ void step_of(const float* in, const float* hidden, float& h, float& c) {
  const float one = sigmoid(in[0] + hidden[0]), two = sigmoid(in[1] + hidden[1]);
  if (GATES == 3) {
    const float n = tanhf(in[2] + one * hidden[2]);
    h = n + two * (h - n);
  } else {
    const float o = sigmoid(in[GATES - 1] + hidden[GATES - 1]);
    c = two * c + one * tanhf(in[2] + hidden[2]);
    h = o * tanhf(c);
  }
}

__device__ void compute(const Cell& cell, Shared& s, int steps) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 16, own = 2 * warp + threadIdx.x % 32 / 16;
  const int unit = rank() * UNITS + own, b = lane;
  const bool real = b < cell.batch, first = cell.projected != nullptr;
  // Those of the state are in registers; those of the input, which nothing waits for, in shared memory.
  float4 kept[GATES][CHUNKS], *own_weights = s.weights + own * GATES * CHUNKS * 16 + lane;
#pragma unroll
  for (int gate = 0; gate < GATES; gate++)
#pragma unroll
    for (int j = 0; j < CHUNKS; j++) {
      kept[gate][j] = weights(cell.w_hh, gate, unit, j, lane);
      if (!first) own_weights[(gate * CHUNKS + j) * 16] = weights(cell.w_ih, gate, unit, j, lane);
    }
  float b_ih[GATES], b_hh[GATES];
#pragma unroll
  for (int gate = 0; gate < GATES; gate++) {
    b_ih[gate] = first || !cell.b_ih ? 0.0f : cell.b_ih[gate * H + unit];
    b_hh[gate] = cell.b_hh ? cell.b_hh[gate * H + unit] : 0.0f;
  }
  float h = real ? cell.h0[b * H + unit] : 0.0f, c = real && cell.c0 ? cell.c0[b * H + unit] : 0.0f;
  float ahead[GATES];
  auto project = [&](int step) {  // of the first layer: from global memory, a step ahead
    const int there = cell.reverse ? steps - 1 - step : step;
#pragma unroll
    for (int gate = 0; gate < GATES; gate++)
      ahead[gate] = real && step < steps
                        ? __ldg(cell.projected + there * cell.projected_step + b * cell.projected_batch + gate * H + unit) : 0.0f;
  };
  if (first) project(0);
  for (int step = 0; step < steps; step++) {
    float in[GATES], hidden[GATES];
    if (first) {
#pragma unroll
      for (int gate = 0; gate < GATES; gate++) in[gate] = ahead[gate];
      project(step + 1);
    } else {
      const int slot = step % SLOTS;
      wait(&s.filled[slot], step / SLOTS & 1);
      multiply(in, [&](int gate, int j) { return own_weights[(gate * CHUNKS + j) * 16]; }, s.input[slot], lane);
      __syncwarp();
      if (threadIdx.x % 32 == 0) arrive(&s.empty[slot]);
    }
    const int old = (step + 1) & 1;  // where the state before lies; the first one was put there
    if (step > 0) wait(&s.full[old], (step - 1) / 2 & 1);
    multiply(hidden, [&](int gate, int j) { return kept[gate][j]; }, s.state[old], lane);
#pragma unroll
    for (int gate = 0; gate < GATES; gate++) {
      in[gate] += b_ih[gate];
      hidden[gate] += b_hh[gate];
    }
    step_of(in, hidden, h, c);
    if (b < B) s.part[step & 1][b * UNITS + own] = h;
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (threadIdx.x % 32 == 0) arrive(&s.staged[step & 1]);
  }
  wait(&s.full[(steps - 1) & 1], (steps - 1) / 2 & 1);  // none ends while another one sends to it
  if (real) cell.hn[b * H + unit] = h;
  if (real && GATES == 4) cell.cn[b * H + unit] = c;
}

// Sends each new part to all blocks of the cluster, then writes it for the next layer or as the result.
__device__ void give(const Cell& cell, Shared& s, int steps) {
  const int lane = threadIdx.x % 32;
  for (int step = 0; step < steps; step++) {
    const int turn = step & 1;
    wait(&s.staged[turn], step / 2 & 1);
    if (lane == 0) expect(&s.full[turn], RANKS * PART * 4);
    __syncwarp();
    if (lane < RANKS) send(s.state[turn] + rank() * PITCH, s.part[turn], PART * 4, &s.full[turn], lane);
    const int there = cell.reverse ? steps - 1 - step : step;
    for (int i = lane; i < PART / 4; i += 32) {
      const float4 v = *reinterpret_cast<const float4*>(s.part[turn] + 4 * i);
      const int b = 4 * i / UNITS, u = 4 * i % UNITS;
      if (cell.sequence) *reinterpret_cast<float4*>(cell.sequence + (static_cast<long long>(step) * RANKS + rank()) * PART + 4 * i) = v;
      if (cell.out && b < cell.batch)
        *reinterpret_cast<float4*>(cell.out + there * cell.out_step + b * cell.out_batch + rank() * UNITS + u) = v;
    }
    if (cell.done) {
      __threadfence();
      __syncwarp();
      if (lane == 0) asm volatile("st.release.gpu.global.u32 [%0], %1;" ::"l"(cell.done + rank()), "r"(step + 1) : "memory");
    }
  }
}

// Fetches what the layer before has made: a lane waits for a block there, and fetches its part.
__device__ void take(const Cell& cell, Shared& s, int steps) {
  if (cell.projected) return;
  const int lane = threadIdx.x % 32;
  for (int step = 0; step < steps; step++) {
    const int slot = step % SLOTS;
    if (step >= SLOTS) wait(&s.empty[slot], (step / SLOTS - 1) & 1);
    if (lane == 0) expect(&s.filled[slot], RANKS * PART * 4);
    __syncwarp();
    if (lane < RANKS) {
      unsigned made;
      do asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(made) : "l"(cell.before + lane) : "memory");
      while (made <= step);
      asm volatile("fence.proxy.async;" ::: "memory");  // another block wrote it by ordinary stores
      const float* part = cell.source + (static_cast<long long>(step) * RANKS + lane) * PART;
      fetch(s.input[slot] + lane * PITCH, part, PART * 4, &s.filled[slot]);
    }
    __syncwarp();
  }
}

__global__ void __cluster_dims__(RANKS, 1, 1) __launch_bounds__(32 * (COMPUTE + 2), 1)
    recur(const __grid_constant__ Cells cells, int steps) {
  extern __shared__ __align__(16) unsigned char memory[];
  Shared& s = *reinterpret_cast<Shared*>(memory);
  const Cell& cell = cells.cell[blockIdx.x / RANKS];
  if (threadIdx.x == 0) {
    for (int i = 0; i < 2; i++) init(&s.full[i], 1), init(&s.staged[i], COMPUTE);
    for (int i = 0; i < SLOTS; i++) init(&s.filled[i], 1), init(&s.empty[i], COMPUTE);
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  for (int i = threadIdx.x; i < B * H; i += blockDim.x) {
    const int b = i / H, k = i % H;
    s.state[1][k / UNITS * PITCH + b * UNITS + k % UNITS] = b < cell.batch ? cell.h0[i] : 0.0f;
  }
  cluster_sync();
  const int warp = threadIdx.x / 32;
  if (warp < COMPUTE) compute(cell, s, steps);
  else if (warp == COMPUTE) give(cell, s, steps);
  else take(cell, s, steps);
  __syncwarp();
  cluster_sync();
}

static cudaLaunchConfig_t launch(int count, cudaStream_t stream) {
  cudaLaunchConfig_t launch = {};
  launch.gridDim = dim3(count * RANKS);
  launch.blockDim = dim3(32 * (COMPUTE + 2));
  launch.dynamicSmemBytes = sizeof(Shared);
  launch.stream = stream;
  return launch;
}

// Cells that the present device computes at the same time, at most MOST; 0 where there can be none. To be called before
// `recurrent` on each device.
extern "C" int recurrent_cells() {
  static int known[64];  // of each device, plus one
  int device = 0;
  if (cudaGetDevice(&device) || device >= 64) return 0;
  if (known[device]) return known[device] - 1;
  int clusters = 0;
  cudaLaunchConfig_t one = launch(1, 0);
  const bool usable = !cudaFuncSetAttribute(recur, cudaFuncAttributeMaxDynamicSharedMemorySize, sizeof(Shared)) &&
                      !cudaFuncSetAttribute(recur, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) &&
                      !cudaOccupancyMaxActiveClusters(&clusters, recur, &one);
  if (!usable) cudaGetLastError();  // or torch reports it at its next launch
  const int fitting = !usable ? 0 : clusters < MOST ? clusters : MOST;
  known[device] = fitting + 1;
  return fitting;
}

extern "C" int recurrent(const Cells* cells, int count, int steps, cudaStream_t stream) {
  cudaLaunchConfig_t all = launch(count, stream);
  return cudaLaunchKernelEx(&all, recur, *cells, steps);
}

// What writing parts of sectors costs: 8.6 GB as rows of 1022 numbers, whose ends lie within sectors of 32 bytes.
//
//     nvcc -O3 -arch=sm_90a -run benchmarks/sectors.cu
//
// "in order" writes 256 bytes a warp, from a sector's beginning or 8 bytes behind it. The others write as a convolution
// of 16 images with 128 filters does: a block has some rows and columns of an image at a time, each of its eight warps 16
// filters, which it writes for 64 pixels at a time, or for 128 in pieces that begin with a sector.
#include <cstdint>
#include <cstdio>
#include <cuda_runtime.h>

constexpr int IMAGES = 16, F = 128, OH = 1022, OW = 1022;

__global__ void __launch_bounds__(256) in_order(float2* out, int64_t count) {
  for (int64_t i = blockIdx.x * 256 + threadIdx.x; i < count; i += gridDim.x * 256) out[i] = make_float2(i, 1);
}

// LINES x COLUMNS at a time, PITCH pixels from a row's first to the next one's.
template <int LINES, int COLUMNS, int PITCH>
__global__ void __launch_bounds__(256) of_64_pixels(float* out) {
  constexpr int STRIPS = (OH + LINES - 1) / LINES, SIDES = (OW + COLUMNS - 1) / COLUMNS;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  for (int work = blockIdx.x; work < IMAGES * STRIPS * SIDES; work += gridDim.x) {
    const int side = work % SIDES * COLUMNS, image = work / SIDES / STRIPS, first = work / SIDES % STRIPS * LINES;
    const int lines = min(LINES, OH - first), columns = min(COLUMNS, OW - side);
    for (int piece = 0; piece < ((lines - 1) * PITCH + columns + 63) / 64; piece++) {
      const int pixel = piece * 64 + 2 * lane, row = pixel / PITCH, column = pixel % PITCH;
      if (row >= lines || column >= columns) continue;
      float* to = out + (int64_t)(image * F + group * 64 + warp * 16) * (OH * OW) + (first + row) * OW + side + column;
#pragma unroll
      for (int k = 0; k < 16; k++) *reinterpret_cast<float2*>(to + (int64_t)k * (OH * OW)) = make_float2(k, lane);
    }
  }
}

// A row's COLUMNS at a time.
template <int COLUMNS>
__global__ void __launch_bounds__(256) by_sectors(float* out) {
  constexpr int SIDES = (OW + COLUMNS - 1) / COLUMNS;
  const int group = threadIdx.x / 128, warp = threadIdx.x / 32 % 4, lane = threadIdx.x % 32;
  for (int work = blockIdx.x; work < IMAGES * OH * SIDES; work += gridDim.x) {
    const int side = work % SIDES * COLUMNS, image = work / SIDES / OH, row = work / SIDES % OH;
    const int columns = min(COLUMNS, OW - side);
    for (int begin = 0; begin < columns; begin += 128) {
#pragma unroll
      for (int k = 0; k < 16; k++) {
        const int64_t at = (int64_t)(image * F + group * 64 + warp * 16 + k) * (OH * OW) + row * OW + side + begin;
#pragma unroll
        for (int i = 0; i < 3; i++) {
          const int pixel = 64 * i + 2 * lane - (at & 7);
          if (pixel >= 0 && pixel < min(128, columns - begin))
            *reinterpret_cast<float2*>(out + at + pixel) = make_float2(k, lane);
        }
      }
    }
  }
}

template <typename Launch>
void timed(const char* name, Launch launch) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin), cudaEventCreate(&end);
  launch();
  cudaEventRecord(begin);
  for (int i = 0; i < 5; i++) launch();
  cudaEventRecord(end);
  cudaEventSynchronize(end);
  float ms;
  cudaEventElapsedTime(&ms, begin, end);
  printf("%-28s %6.3f ms  %s\n", name, ms / 5, cudaGetErrorString(cudaGetLastError()));
}

int main() {
  const int64_t count = (int64_t)IMAGES * F * OH * OW;
  float* out;
  if (cudaMalloc(&out, count * 4 + 256) != cudaSuccess) return printf("%.1f GB of memory are needed\n", count * 4e-9), 1;
  timed("in order", [=] { in_order<<<1056, 256>>>((float2*)out, count / 2); });
  timed("in order, 8 bytes on", [=] { in_order<<<1056, 256>>>((float2*)out + 1, count / 2); });
  timed("6 x 104 of 64 pixels", [=] { of_64_pixels<6, 104, 106><<<132, 256>>>(out); });
  timed("1 x 256 of 64 pixels", [=] { of_64_pixels<1, 256, 258><<<132, 256>>>(out); });
  timed("1 x 1022 of 64 pixels", [=] { of_64_pixels<1, 1022, 1024><<<132, 256>>>(out); });
  timed("1 x 256 by sectors", [=] { by_sectors<256><<<132, 256>>>(out); });
  timed("1 x 1022 by sectors", [=] { by_sectors<1022><<<132, 256>>>(out); });
  return 0;
}

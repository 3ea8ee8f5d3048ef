// What a training step needs around its GEMMs. Row-major matrices, sides multiples of 64.
#pragma once
#include "common/step.h"

namespace {

constexpr int TILE = 64;  // of the kernels that also write a transpose
constexpr int PAD = 2;    // halves: columns of a tile then lie in different banks, two by two
constexpr int NUM_THREADS = 256;

struct Tile {
  half at[TILE][TILE + PAD];

  // The tile at (row, col) of the original goes to (col, row) of `out`, whose rows are `ld` long.
  __device__ void store_transposed(half* out, int64_t row, int64_t col, int64_t ld) const {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    for (int c = warp; c < TILE; c += NUM_THREADS / 32) {
      const half2 pair = __halves2half2(at[2 * lane][c], at[2 * lane + 1][c]);
      reinterpret_cast<half2*>(out + (col + c) * ld + row)[lane] = pair;
    }
  }
};

// x = max(y, 0) and its transpose: [rows][cols] and [cols][rows].
__global__ void activate_kernel(const half* y, half* x, half* x_t, int rows, int cols) {
  __shared__ Tile tile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.y) * TILE, col = int64_t(blockIdx.x) * TILE;
  for (int r = warp; r < TILE; r += NUM_THREADS / 32) {
    const int64_t at = (row + r) * cols + col;
    const half2 value = __hmax2(reinterpret_cast<const half2*>(y + at)[lane], half2());
    reinterpret_cast<half2*>(x + at)[lane] = value;
    reinterpret_cast<half2*>(tile.at[r])[lane] = value;
  }
  __syncthreads();
  tile.store_transposed(x_t, row, col, rows);
}

// master -= rate * grad; FP16 copies of it, plain and transposed. [size][size].
__global__ void update_kernel(const half* grad, float* master, half* w, half* w_t, int size,
                              float rate) {
  __shared__ Tile tile;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int64_t row = int64_t(blockIdx.y) * TILE, col = int64_t(blockIdx.x) * TILE;
  for (int r = warp; r < TILE; r += NUM_THREADS / 32) {
    const int64_t at = (row + r) * size + col;
    const float2 g = __half22float2(reinterpret_cast<const half2*>(grad + at)[lane]);
    float2 m = reinterpret_cast<float2*>(master + at)[lane];
    m.x -= rate * g.x, m.y -= rate * g.y;
    reinterpret_cast<float2*>(master + at)[lane] = m;
    const half2 value = __float22half2_rn(m);
    reinterpret_cast<half2*>(w + at)[lane] = value;
    reinterpret_cast<half2*>(tile.at[r])[lane] = value;
  }
  __syncthreads();
  tile.store_transposed(w_t, row, col, size);
}

// dy = dx where the activation let something through. `pairs` of halves.
__global__ void activation_grad_kernel(const half2* dx, const half2* x, half2* dy, int64_t pairs) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= pairs) return;
  dy[i] = __hmul2(dx[i], __hgt2(x[i], half2()));
}

// Gradient of a squared loss, scaled so that sums over all ranks stay far from FP16's end.
__global__ void loss_grad_kernel(const half2* out, const half2* target, half2* dy, int64_t pairs) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < pairs) dy[i] = __hmul2(__hsub2(out[i], target[i]), __float2half2_rn(0.0625f));
}

__device__ inline uint32_t mixed(uint64_t x) {  // SplitMix64
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ x >> 27) * 0x94d049bb133111ebull;
  return uint32_t(x >> 32);
}

// Normal numbers, the same on every GPU for the same seed.
template <class T>
__global__ void normal_kernel(T* out, int64_t count, float scale, uint64_t seed) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const uint64_t key = (seed << 40) + uint64_t(i) * 2;
  const float u = (mixed(key * 0x9e3779b97f4a7c15ull) + 0.5f) * 2.3283064e-10f;
  const float v = mixed((key + 1) * 0x9e3779b97f4a7c15ull) * 2.3283064e-10f;
  out[i] = T(scale * sqrtf(-2.0f * logf(u)) * cosf(6.2831853f * v));
}

__global__ void magnitude_kernel(half* x, int64_t count) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) x[i] = __habs(x[i]);
}

__global__ void column_kernel(const half* in, half* out, int64_t rows, int64_t ld) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < rows) out[i] = in[i * ld];
}

// Elements further apart than `relative` of `scale`, which may be null: then every bit counts, and
// NaN is never right.
__global__ void differences_kernel(const half* a, const half* b, const half* scale, float relative,
                                   int64_t count, unsigned long long* wrong) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i >= count) return;
  const float x = __half2float(a[i]), y = __half2float(b[i]);
  const float bound = scale ? relative * __half2float(scale[i]) + 1e-6f : 0;
  if (!(fabsf(x - y) <= bound)) atomicAdd(wrong, 1ull);
}

}  // namespace

// The kernels of one token's way through a block that has a cache of keys and values: products of a
// matrix and a vector, and attention of one query. Dependent launch as in kernels.h.
#pragma once
#include "kernels.h"

namespace block {

constexpr int ENTRY = 2 * D;  // a token's keys and values in the cache, which is [T][ENTRY]

__device__ inline float dot(const Half8& a, const Half8& b) {
  float sum = 0;
  for (int j = 0; j < 4; ++j) {
    const float2 x = __half22float2(a.pair[j]), y = __half22float2(b.pair[j]);
    sum += x.x * y.x + x.y * y.y;
  }
  return sum;
}

/// y = W x. A warp has a row of W [N][K], and all of it is on its way at once: nothing is left to
/// overlap but the latency.
template <int K>
__global__ void __launch_bounds__(32 * ROWS)
    matrix_vector(const half* W, const half* x, half* y, Stamp* at) {
  ptx::griddepcontrol_launch_dependents();
  constexpr int EIGHTS = K / 8 / 32;  // of a lane
  const int row = blockIdx.x * ROWS + threadIdx.x / 32, lane_id = threadIdx.x % 32;
  Half8 w[EIGHTS];  // weights come while the kernel before still runs
  for (int i = 0; i < EIGHTS; ++i) w[i] = load(W + int64_t(row) * K, i * 32 + lane_id);
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  float sum = 0;
  for (int i = 0; i < EIGHTS; ++i) sum += dot(w[i], load(x, i * 32 + lane_id));
  sum = warp_sum(sum);
  if (lane_id == 0) y[row] = __float2half(sum);
}

/// This token's keys and values into the cache. Which token it is lies in memory: it is what
/// changes between two launches of a graph.
__global__ void __launch_bounds__(ENTRY / 8)
    append(const half* qkv, half* cache, const int* position, Stamp* at) {
  ptx::griddepcontrol_launch_dependents();
  const int entry = *position;
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  store(cache + entry * ENTRY, threadIdx.x, load(qkv + D, threadIdx.x));
}

/// scores[head][token], eight lanes each; of tokens that are still to come, -infinity.
constexpr int SCORES = ROWS * 4;  // of a CTA
__global__ void __launch_bounds__(32 * ROWS)
    query_keys(const half* qkv, const half* cache, const int* position, half* scores, Stamp* at) {
  ptx::griddepcontrol_launch_dependents();
  static_assert(HEAD == 64, "eight lanes have eight elements each");
  const int i = blockIdx.x * SCORES + threadIdx.x / 8, part = threadIdx.x % 8;
  const int head = i / T, token = i % T;
  const bool known = token <= *position;
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  const half* key = cache + token * ENTRY + head * HEAD;
  float sum = dot(load(qkv + head * HEAD, part), load(key, part));
  for (int lanes = 4; lanes > 0; lanes /= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (part == 0) scores[i] = __float2half(known ? sum : -INFINITY);
}

/// out[head] = sum over tokens of weight * value; a CTA has a head, a warp every eighth token.
constexpr int VALUE_WARPS = 8;
__global__ void __launch_bounds__(32 * VALUE_WARPS)
    weigh_values(const half* weights, const half* cache, half* out, Stamp* at) {
  static_assert(HEAD == 64, "a lane has two elements of a value");
  ptx::griddepcontrol_launch_dependents();
  __shared__ float2 parts[VALUE_WARPS][32];
  const int head = blockIdx.x, warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  float2 sum = {0, 0};
  for (int i = 0; i < T / VALUE_WARPS; ++i) {
    const int token = i * VALUE_WARPS + warp_id;
    const float weight = __half2float(weights[head * T + token]);
    const half* value = cache + token * ENTRY + D + head * HEAD;
    const float2 v = __half22float2(reinterpret_cast<const half2*>(value)[lane_id]);
    sum.x += weight * v.x, sum.y += weight * v.y;
  }
  parts[warp_id][lane_id] = sum;
  __syncthreads();
  if (warp_id > 0) return;
  for (int warp = 1; warp < VALUE_WARPS; ++warp)
    sum.x += parts[warp][lane_id].x, sum.y += parts[warp][lane_id].y;
  reinterpret_cast<half2*>(out + head * HEAD)[lane_id] = __floats2half2_rn(sum.x, sum.y);
}

}  // namespace block

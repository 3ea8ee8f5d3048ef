// The kernels of a transformer block that are not GEMMs of the ladder, each a few lines: what a
// framework launches one by one. Rows are tokens; all matrices are FP16 and row-major.
//
// Programmatic dependent launch: every kernel here lets its successor start at once
// (griddepcontrol.launch_dependents) and touches nothing that a predecessor reads or writes before
// griddepcontrol.wait. That returns when the kernel before has completed, which has itself waited
// for the one before it. So all that came earlier is visible, and what is overwritten has been
// read. Launched the ordinary way, both do nothing.
#pragma once
#include "common/step.h"

namespace block {

// The base model of "Attention Is All You Need": 12 D^2 weights in a block.
constexpr int D = 512, HEADS = 8, HEAD = D / HEADS, MLP = 4 * D;
constexpr int T = 64;  // tokens of a sequence

__device__ uint64_t nanoseconds();  // one clock for all SMs; block.h has it

/// When a kernel began its work, after the wait, and ended it; for the picture. Zero before.
struct Stamp {
  unsigned long long begin, end;
};
/// Writes the stamp, if there is one, from its construction to its end. The first CTA begins, and
/// one of the last thousand ends: if all wrote, large grids would queue up for it.
class Stamped {
 public:
  __device__ explicit Stamped(Stamp* stamp) : stamp_(threadIdx.x ? nullptr : stamp) {
    if (stamp_ && linear() == 0) stamp_->begin = nanoseconds();
  }
  __device__ ~Stamped() {
    if (!stamp_ || linear() + 1024 < gridDim.x * gridDim.y * gridDim.z) return;
    atomicMax(&stamp_->end, static_cast<unsigned long long>(nanoseconds()));
  }

 private:
  __device__ static unsigned linear() {
    return (blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x;
  }
  Stamp* stamp_;
};

// ---- rows and elements --------------------------------------------------------------------------

constexpr int ROWS = 4;  // rows of a CTA, a warp each
constexpr int ELEMENT_THREADS = 256;

struct alignas(16) Half8 {
  half2 pair[4];
};
/// The eight at `index`, as one word: the compiler would load each half2 by itself.
__device__ inline Half8 load(const half* from, int64_t index) {
  const uint4 word = reinterpret_cast<const uint4*>(from)[index];
  Half8 eight;
  memcpy(&eight, &word, sizeof(eight));
  return eight;
}
__device__ inline void store(half* to, int64_t index, const Half8& eight) {
  uint4 word;
  memcpy(&word, &eight, sizeof(word));
  reinterpret_cast<uint4*>(to)[index] = word;
}

__device__ inline float warp_sum(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x += __shfl_xor_sync(~0u, x, lanes);
  return x;
}
__device__ inline float warp_max(float x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = fmaxf(x, __shfl_xor_sync(~0u, x, lanes));
  return x;
}

/// out = (x - mean) / sqrt(variance + 1e-5) * gain + shift, along rows of D.
__global__ void __launch_bounds__(32 * ROWS)
    layer_norm(const half* x, const half* gain, const half* shift, half* out, int rows, Stamp* at) {
  ptx::griddepcontrol_launch_dependents();
  constexpr int EIGHTS = D / 8 / 32;  // of a lane
  const int row = blockIdx.x * ROWS + threadIdx.x / 32, lane_id = threadIdx.x % 32;
  Half8 g[EIGHTS], s[EIGHTS];  // weights: nobody writes them, so they come before the wait
  for (int i = 0; i < EIGHTS; ++i) {
    g[i] = load(gain, i * 32 + lane_id);
    s[i] = load(shift, i * 32 + lane_id);
  }
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  if (row >= rows) return;
  float2 v[EIGHTS][4];
  float sum = 0, squares = 0;
  for (int i = 0; i < EIGHTS; ++i) {
    const Half8 loaded = load(x + int64_t(row) * D, i * 32 + lane_id);
    for (int j = 0; j < 4; ++j) {
      v[i][j] = __half22float2(loaded.pair[j]);
      sum += v[i][j].x + v[i][j].y;
    }
  }
  const float mean = warp_sum(sum) / D;
  for (auto& eight : v)
    for (float2& p : eight) {
      p.x -= mean, p.y -= mean;
      squares += p.x * p.x + p.y * p.y;
    }
  const float scale = 1.0f / sqrtf(warp_sum(squares) / D + 1e-5f);
  for (int i = 0; i < EIGHTS; ++i) {
    Half8 result;
    for (int j = 0; j < 4; ++j) {
      const float2 a = __half22float2(g[i].pair[j]), b = __half22float2(s[i].pair[j]), p = v[i][j];
      result.pair[j] = __floats2half2_rn(p.x * scale * a.x + b.x, p.y * scale * a.y + b.y);
    }
    store(out + int64_t(row) * D, i * 32 + lane_id, result);
  }
}

/// Softmax of rows of T scores, scaled by 1 / sqrt(HEAD), in place. Where there are many, a warp
/// takes several: one of 128 bytes would leave it waiting.
template <int WARP_ROWS>
__global__ void __launch_bounds__(32 * ROWS) softmax(half* scores, Stamp* at) {
  static_assert(T == 64, "a lane holds two scores");
  static_assert(T * HEADS % (ROWS * WARP_ROWS) == 0 && HEADS % ROWS == 0, "no row is left over");
  ptx::griddepcontrol_launch_dependents();
  const int row = (blockIdx.x * ROWS + threadIdx.x / 32) * WARP_ROWS, lane_id = threadIdx.x % 32;
  half2* two = reinterpret_cast<half2*>(scores + int64_t(row) * T) + lane_id;
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  const float scale = 1.0f / sqrtf(float(HEAD));
  float2 s[WARP_ROWS];
  for (int i = 0; i < WARP_ROWS; ++i) s[i] = __half22float2(two[i * T / 2]);
  for (int i = 0; i < WARP_ROWS; ++i) {
    const float largest = warp_max(fmaxf(s[i].x, s[i].y));
    s[i].x = __expf((s[i].x - largest) * scale), s[i].y = __expf((s[i].y - largest) * scale);
    const float sum = warp_sum(s[i].x + s[i].y);
    two[i * T / 2] = __floats2half2_rn(s[i].x / sum, s[i].y / sum);
  }
}

/// out = x + y, where y may lie in parts to be added up.
__global__ void __launch_bounds__(ELEMENT_THREADS)
    add(const half* x, const half* y, int parts, half* out, int eights, Stamp* at) {
  ptx::griddepcontrol_launch_dependents();
  const int i = blockIdx.x * ELEMENT_THREADS + threadIdx.x;
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  if (i >= eights) return;
  float2 sum[4] = {};
  for (int part = 0; part < parts; ++part) {
    const Half8 b = load(y, int64_t(part) * eights + i);
    for (int j = 0; j < 4; ++j) {
      const float2 two = __half22float2(b.pair[j]);
      sum[j].x += two.x, sum[j].y += two.y;
    }
  }
  Half8 a = load(x, i);
  for (int j = 0; j < 4; ++j) {
    const float2 two = __half22float2(a.pair[j]);
    a.pair[j] = __floats2half2_rn(two.x + sum[j].x, two.y + sum[j].y);
  }
  store(out, i, a);
}

/// x = x * Phi(x), in place.
__global__ void __launch_bounds__(ELEMENT_THREADS) gelu(half* x, int eights, Stamp* at) {
  ptx::griddepcontrol_launch_dependents();
  const int i = blockIdx.x * ELEMENT_THREADS + threadIdx.x;
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
  if (i >= eights) return;
  const auto f = [](float v) { return 0.5f * v * (1.0f + erff(v * 0.70710678f)); };
  Half8 a = load(x, i);
  for (half2& pair : a.pair) {
    const float2 v = __half22float2(pair);
    pair = __floats2half2_rn(f(v.x), f(v.y));
  }
  store(x, i, a);
}

// ---- small products -----------------------------------------------------------------------------

/// A matrix for each head of each sequence: the first of them, and elements from row to row, head
/// to head, sequence to sequence.
struct Matrices {
  half* data;
  int ld;
  int64_t head = 0, sequence = 0;

  __device__ half* of(int z) const { return data + z % HEADS * head + z / HEADS * sequence; }
};

constexpr int BLOCK_K = 64;
constexpr int NUM_THREADS = 128;  // 2x2 warps

/// What B is: weights and values are [K][N], keys are [N][K]. Only weights are nobody's result.
enum class Right { weights, values, keys };

/// Stages of K: a small tile has few bytes, so more of them must be in flight.
template <int TILE>
struct Ring {
  static constexpr int STAGES = TILE == 32 ? 8 : 4;
  static constexpr int STAGE = 2 * TILE * BLOCK_K;  // halves: a tile of A, a tile of B
  static size_t bytes(int K) {
    return size_t(std::min(STAGES, K / BLOCK_K)) * STAGE * sizeof(half);
  }
};

/// Where element (row, col) of a tile with rows of COLS lies (step 12).
template <int COLS>
__device__ int place(int row, int col) {
  const int key = COLS == 32 ? row / 2 % 4 : row % 8;
  return row * COLS + (col / 8 ^ key) * 8 + col % 8;
}

/// This thread's part of copies of tiles whose rows are `ld` apart: where it begins.
template <int ROWS, int COLS>
struct Copy {
  static constexpr int AT_ONCE = NUM_THREADS / (COLS / 8);  // rows
  static_assert(AT_ONCE % 8 == 0, "a thread's rows must share a key");
  const half* from;
  int ld, to;  // 32-bit offsets: few instructions before the first copy starts

  __device__ Copy(const half* gmem, int ld) : ld(ld) {
    const int row = threadIdx.x / (COLS / 8), col = threadIdx.x % (COLS / 8) * 8;
    from = gmem + row * ld + col, to = place<COLS>(row, col);
  }
  __device__ void start(half* smem, int offset) const {
    for (int i = 0; i < ROWS; i += AT_ONCE)
      ptx::cp_async_cg_16(smem + to + i * COLS, from + (offset + i * ld));
  }
};

/// C = A B in tiles of TILE x TILE, all sizes multiples of 64. Step 12 for what would leave most
/// SMs idle with the ladder's tiles; blockIdx.z is a head of attention, or a part of K.
template <Right RIGHT, int TILE>
__global__ void __launch_bounds__(NUM_THREADS)
    small_gemm(Matrices a, Matrices b, Matrices c, int K, Stamp* at) {
  using Ring = Ring<TILE>;
  constexpr bool KEYS = RIGHT == Right::keys;
  constexpr int WARP_TILE = TILE / 2, MMA_ROWS = WARP_TILE / 16, MMA_COLS = WARP_TILE / 8;
  constexpr int B_COLS = KEYS ? BLOCK_K : TILE, K16 = BLOCK_K / 16;
  constexpr int CHAINS = TILE == 32 ? 2 : 1;  // a warp with two mma a k16 waits for its own results
  ptx::griddepcontrol_launch_dependents();
  auto* smem = static_cast<half*>(ptx::dynamic_smem());  // [stage][A: TILE x 64, B: 64 x TILE]
  const int block_m = blockIdx.y * TILE, block_n = blockIdx.x * TILE;
  const int warp_id = threadIdx.x / 32, lane_id = threadIdx.x % 32;
  const int warp_m = warp_id / 2 * WARP_TILE, warp_n = warp_id % 2 * WARP_TILE;
  const int num_k_tiles = K / BLOCK_K;
  const Copy<TILE, BLOCK_K> copy_a(a.of(blockIdx.z) + block_m * int64_t(a.ld), a.ld);
  const Copy<TILE * BLOCK_K / B_COLS, B_COLS> copy_b(
      b.of(blockIdx.z) + (KEYS ? block_n * b.ld : block_n), b.ld);
  const int next_b = KEYS ? BLOCK_K : BLOCK_K * b.ld;  // from one k tile to the next
  const auto load_a = [&](int k_tile) {
    half* smem_a = smem + k_tile % Ring::STAGES * Ring::STAGE;
    if (k_tile < num_k_tiles) copy_a.start(smem_a, k_tile * BLOCK_K);
  };
  const auto load_b = [&](int k_tile) {
    half* smem_b = smem + k_tile % Ring::STAGES * Ring::STAGE + TILE * BLOCK_K;
    if (k_tile < num_k_tiles) copy_b.start(smem_b, k_tile * next_b);
  };

  if (RIGHT == Right::weights)  // they can come while the kernel before still runs
#pragma unroll
    for (int k_tile = 0; k_tile < Ring::STAGES - 1; ++k_tile) load_b(k_tile);
  ptx::griddepcontrol_wait();
  const Stamped stamped(at);
#pragma unroll
  for (int k_tile = 0; k_tile < Ring::STAGES - 1; ++k_tile) {
    load_a(k_tile);
    if (RIGHT != Right::weights) load_b(k_tile);
    ptx::cp_async_commit_group();
  }
  float acc[CHAINS][MMA_ROWS][MMA_COLS][4] = {};
  for (int k_tile = 0; k_tile < num_k_tiles; ++k_tile) {
    ptx::cp_async_wait_group<Ring::STAGES - 2>();  // this tile has landed, and with the barrier
    __syncthreads();                               // everyone's part; all have read the one before
    const half* smem_a = smem + k_tile % Ring::STAGES * Ring::STAGE;
    const half* smem_b = smem_a + TILE * BLOCK_K;
    uint32_t frag_a[K16][MMA_ROWS][4], frag_b[K16][MMA_ROWS][4];  // 16x16 each, all on their way
#pragma unroll
    for (int k = 0; k < K16; ++k)
      for (int i = 0; i < MMA_ROWS; ++i) {
        const int m = warp_m + i * 16 + lane_id % 16, n = warp_n + i * 16;
        ptx::ldmatrix_x4(frag_a[k][i], smem_a + place<BLOCK_K>(m, k * 16 + lane_id / 16 * 8));
        if (KEYS)
          ptx::ldmatrix_x4(frag_b[k][i], smem_b + place<B_COLS>(n + lane_id / 16 * 8 + lane_id % 8,
                                                                k * 16 + lane_id / 8 % 2 * 8));
        else
          ptx::ldmatrix_x4_trans(frag_b[k][i], smem_b + place<B_COLS>(k * 16 + lane_id % 16,
                                                                      n + lane_id / 16 * 8));
      }
    load_a(k_tile + Ring::STAGES - 1);
    load_b(k_tile + Ring::STAGES - 1);
    ptx::cp_async_commit_group();
#pragma unroll
    for (int k = 0; k < K16; ++k)
      for (int i = 0; i < MMA_ROWS; ++i)
        for (int j = 0; j < MMA_COLS; ++j) {
          const uint32_t(&of_16)[4] = frag_b[k][j / 2];
          const uint32_t of_8[2] = {of_16[j % 2 * 2], of_16[j % 2 * 2 + 1]};
          ptx::mma_m16n8k16_f16(acc[k % CHAINS][i][j], frag_a[k][i], of_8);
        }
  }
  half* C = c.of(blockIdx.z);
  const int row = block_m + warp_m + lane_id / 4, col = block_n + warp_n + lane_id % 4 * 2;
  for (int i = 0; i < MMA_ROWS; ++i)
    for (int j = 0; j < MMA_COLS; ++j)
      for (int r = 0; r < 4; r += 2) {
        const auto sum = [&](int of) {
          return CHAINS == 1 ? acc[0][i][j][of] : acc[0][i][j][of] + acc[CHAINS - 1][i][j][of];
        };
        *reinterpret_cast<half2*>(&C[int64_t(row + i * 16 + r * 4) * c.ld + col + j * 8]) =
            __floats2half2_rn(sum(r), sum(r + 1));
      }
}

// ---- beside the block ---------------------------------------------------------------------------

__global__ void scale_and_shift(half* data, int64_t count, float scale, float shift) {
  const int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  if (i < count) data[i] = __float2half(__half2float(data[i]) * scale + shift);
}

/// Does nothing for so many nanoseconds, on every SM: a kernel of a known length.
__global__ void spin(int duration) {
  const uint64_t begin = nanoseconds();
  while (nanoseconds() - begin < uint64_t(duration)) {
  }
}

/// y = 2 x, for whoever comes next.
__global__ void __launch_bounds__(ELEMENT_THREADS)
    produce(const float4* x, float4* y, int64_t fours, Stamp* at) {
  const Stamped stamped(at);
  const int64_t stride = int64_t(gridDim.x) * ELEMENT_THREADS;
#pragma unroll 4
  for (int64_t i = int64_t(blockIdx.x) * ELEMENT_THREADS + threadIdx.x; i < fours; i += stride) {
    const float4 v = x[i];
    y[i] = make_float4(2 * v.x, 2 * v.y, 2 * v.z, 2 * v.w);
  }
}

/// The sum of each thread's part of FACTOR * y: what `produce` left (1), or both at once (2).
template <int FACTOR>
__global__ void __launch_bounds__(ELEMENT_THREADS)
    consume(const float4* y, float* sums, int64_t fours, Stamp* at) {
  const Stamped stamped(at);
  const int64_t first = int64_t(blockIdx.x) * ELEMENT_THREADS + threadIdx.x;
  const int64_t stride = int64_t(gridDim.x) * ELEMENT_THREADS;
  float sum = 0;
#pragma unroll 4
  for (int64_t i = first; i < fours; i += stride) {
    const float4 v = y[i];
    sum += FACTOR * v.x + FACTOR * v.y + FACTOR * v.z + FACTOR * v.w;
  }
  sums[first] = sum;
}

}  // namespace block

// The GPU's half of reference.h: fill, and the tiled reference that compares on the fly.
#include <cmath>

#include "common/harness/device.h"
#include "common/harness/reference.h"
#include "common/step.h"

namespace harness {

const double kHostLimit = 1 << 20;  // about a millisecond

namespace {

constexpr int TILE = 64;     // rows and columns of C per block
constexpr int DEPTH = 16;    // k per round through shared memory
constexpr int THREADS = 256; // a thread computes 4 x 4 elements
static_assert(TILE * DEPTH == 4 * THREADS, "a thread loads 4 elements of either tile");

/// Element number i of those that the matrix holds becomes value(...) or old_value(...).
__global__ void fill_kernel(Storage s, void* data, bool old, Inputs inputs, uint64_t seed,
                            int64_t K) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  const int64_t per_matrix = s.outer * s.inner, count = (s.stride ? s.batch : 1) * per_matrix;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const int64_t batch = i / per_matrix, rest = i % per_matrix;
    store(s.type, data, batch * s.stride + rest / s.inner * s.ld + rest % s.inner,
          old ? old_value(seed, uint64_t(i)) : value(inputs, seed, uint64_t(i), K));
  }
}

__device__ bool poisoned(const Storage& s, const void* data, int64_t position) {
  if (s.type == Type::f32) return static_cast<const uint32_t*>(data)[position] == ~0u;
  return static_cast<const uint16_t*>(data)[position] == 0xffff;
}

struct Places {
  unsigned long long before, after, gap;  // the lowest, or all bits set
};

__global__ void damage_kernel(Storage s, const void* data, int64_t band, Places* places) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x, count = s.count();
  const int64_t first = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;
  for (int64_t i = first; i < band; i += stride) {
    if (!poisoned(s, data, count + i)) atomicMin(&places->after, i + 1ull);
    if (!poisoned(s, data, -1 - i)) atomicMin(&places->before, i + 1ull);
  }
  if (!s.has_gaps()) return;
  for (int64_t i = first; i < count; i += stride)
    if (!s.holds(i) && !poisoned(s, data, i)) atomicMin(&places->gap, uint64_t{0} + i);
}

struct Report {
  unsigned long long wrong, first;  // how many elements, and the lowest index row * N + col
};

/// By the hardware's conversion: through double it would be slow where FP64 is.
__device__ float fetch(Type type, const void* data, int64_t index) {
  if (type == Type::f16) return __half2float(static_cast<const __half*>(data)[index]);
  return __uint_as_float(uint32_t(static_cast<const uint16_t*>(data)[index]) << 16);
}

/// DEPTH k by TILE rows of A or columns of B, read in the order in which they lie.
template <class Acc>
__device__ void load_tile(Acc (*tile)[TILE + 1], const Storage& s, const void* data, bool is_a,
                          int64_t batch, int64_t first, int64_t others, int64_t k0, int64_t K) {
  const int tid = threadIdx.x;
  const bool k_contiguous = s.row_major == is_a;
  for (int i = 0; i < 4; ++i) {
    const int other = k_contiguous ? tid / 4 : tid % 16 * 4 + i;
    const int k = k_contiguous ? tid % 4 * 4 + i : tid / 16;
    const bool inside = first + other < others && k0 + k < K;
    const int64_t row = is_a ? first + other : k0 + k, col = is_a ? k0 + k : first + other;
    tile[k][other] = inside ? Acc(fetch(s.type, data, s.index(batch, row, col))) : Acc(0);
  }
}

template <class Acc>
__global__ __launch_bounds__(THREADS) void compare_kernel(Problem p, Data data, int64_t batch,
                                                          int64_t first_row, Report* report) {
  __shared__ Acc a[DEPTH][TILE + 1], b[DEPTH][TILE + 1];
  const Storage storage_of_a = storage_a(p), storage_of_b = storage_b(p), c = storage_c(p);
  const int64_t row0 = first_row + int64_t(blockIdx.y) * TILE, col0 = int64_t(blockIdx.x) * TILE;
  const int tid = threadIdx.x, ty = tid / 16 * 4, tx = tid % 16 * 4;
  Acc acc[4][4] = {};
  for (int64_t k0 = 0; k0 < p.K; k0 += DEPTH) {
    load_tile(a, storage_of_a, p.A, true, batch, row0, p.M, k0, p.K);
    load_tile(b, storage_of_b, p.B, false, batch, col0, p.N, k0, p.K);
    __syncthreads();
    for (int k = 0; k < DEPTH; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) acc[i][j] += a[k][ty + i] * b[k][tx + j];
    __syncthreads();
  }
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll  // an index known only at run time would put `acc` into memory
    for (int j = 0; j < 4; ++j) {
      const int64_t row = row0 + ty + i, col = col0 + tx + j;
      if (row >= p.M || col >= p.N) continue;
      const Want want = wanted(p, data, double(acc[i][j]), batch, row, col);
      if (is_right(p, data, load(c.type, p.C, c.index(batch, row, col)), want)) continue;
      atomicAdd(&report->wrong, 1ull);
      atomicMin(&report->first, static_cast<unsigned long long>((batch * p.M + row) * p.N + col));
    }
}

/// `count` elements, `apart` elements from each other, on the host.
std::vector<double> strided(Type type, const void* data, int64_t first, int64_t apart,
                            int64_t count) {
  const size_t size = size_t(bytes_of(type));
  std::vector<char> raw(size_t(count) * size);
  GPU_CHECK(cudaMemcpy2D(raw.data(), size, static_cast<const char*>(data) + size_t(first) * size,
                         size_t(apart) * size, size, size_t(count), cudaMemcpyDeviceToHost));
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i) values.push_back(load(type, raw.data(), i));
  return values;
}

/// One exact sum: the row and the column multiplied on the host.
double exact_sum(const Problem& p, int64_t batch, int64_t row, int64_t col) {
  const Storage a = storage_a(p), b = storage_b(p);
  const auto row_of_a = strided(a.type, p.A, a.index(batch, row, 0), a.row_major ? 1 : a.ld, p.K);
  const auto col_of_b = strided(b.type, p.B, b.index(batch, 0, col), b.row_major ? b.ld : 1, p.K);
  double sum = 0;
  for (size_t k = 0; k < row_of_a.size(); ++k) sum += row_of_a[k] * col_of_b[k];
  return sum;
}

}  // namespace

void fill(void* data, int64_t count, Inputs inputs, uint64_t seed, int64_t K, Type type) {
  fill({type, true, 1, count, count, 1, 0}, data, inputs, seed, K);
}

namespace {
gpu::LaunchConfig everywhere() {
  static const unsigned blocks = unsigned(gpu::num_sms() * 8);
  return {dim3(blocks), dim3(256)};
}
}  // namespace

void fill(const Storage& matrix, void* data, Inputs inputs, uint64_t seed, int64_t K) {
  gpu::launch(nullptr, everywhere(), fill_kernel, matrix, data, false, inputs, seed, K);
}

void fill_old(const Storage& matrix, void* data, uint64_t seed) {
  gpu::launch(nullptr, everywhere(), fill_kernel, matrix, data, true, Inputs::integers, seed,
              int64_t{1});
}

Damage find_damage(const Storage& matrix, const void* data, size_t guard) {
  if (guard == 0 && !matrix.has_gaps()) return {};
  const auto buffer = take_buffer(sizeof(Places), "places");
  gpu::fill(buffer->get(), 0xff, sizeof(Places));
  gpu::launch(nullptr, everywhere(), damage_kernel, matrix, data,
              int64_t(guard) / bytes_of(matrix.type), buffer->get<Places>());
  Places places;
  gpu::copy_to_host(&places, buffer->get(), sizeof places);
  const auto place = [](unsigned long long found) { return found == ~0ull ? 0 : int64_t(found); };
  return {place(places.before), place(places.after), int64_t(places.gap)};
}

Verdict compare_on_device(const Problem& p, const Data& data, Sum sum) {
  const auto report = take_buffer(sizeof(Report), "report");
  gpu::fill(report->get(), 0xff, sizeof(Report));
  gpu::fill(report->get(), 0, sizeof(unsigned long long));  // wrong = 0, first = the largest
  // 10^11 operations a launch: 5 ms on an H200, half a second where FP64 runs at 0.2 TFLOPS.
  const double flop_per_tile_row = 2.0 * TILE * double(p.N) * double(p.K);
  const int64_t tile_rows = std::min(65535.0, std::max(1.0, 1e11 / flop_per_tile_row));
  for (int64_t batch = 0; batch < p.batch; ++batch)
    for (int64_t row = 0; row < p.M; row += tile_rows * TILE) {
      const int64_t rows = std::min(tile_rows, ceil_div(p.M - row, int64_t{TILE}));
      const dim3 grid(unsigned(ceil_div(p.N, int64_t{TILE})), unsigned(rows));
      gpu::launch(nullptr, {grid, dim3(THREADS)},
                  sum == Sum::fp64 ? compare_kernel<double> : compare_kernel<float>, p, data,
                  batch, row, report->get<Report>());
    }
  Report found;
  gpu::copy_to_host(&found, report->get(), sizeof found);
  Verdict v;
  v.wrong = int64_t(found.wrong);
  if (v.wrong) {
    const int64_t first = int64_t(found.first);
    v.batch = first / (p.M * p.N), v.row = first / p.N % p.M, v.col = first % p.N;
    const int64_t place = storage_c(p).index(v.batch, v.row, v.col);
    v.got = strided(p.type_c, p.C, place, 1, 1)[0];
    const Want want = wanted(p, data, exact_sum(p, v.batch, v.row, v.col), v.batch, v.row, v.col);
    v.want = want.value, v.allowed = 0;
    if (std::isfinite(want.value)) v.allowed = bound(p, data, want);
  }
  return v;
}

}  // namespace harness

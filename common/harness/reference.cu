// The GPU's half of reference.h: fill, and the tiled reference that compares on the fly.
#include "common/harness/reference.h"
#include "common/harness/text.h"
#include "common/step.h"

namespace harness {

const double kHostLimit = 1 << 22;  // some milliseconds

namespace {

constexpr int TILE = 64;     // rows and columns of C per block
constexpr int DEPTH = 16;    // k per round through shared memory
constexpr int THREADS = 256; // a thread computes 4 x 4 elements
static_assert(TILE * DEPTH == 4 * THREADS, "a thread loads 4 elements of either tile");

__global__ void fill_kernel(uint16_t* data, int64_t count, Inputs inputs, uint64_t seed,
                            int64_t K) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    data[i] = element(inputs, seed, uint64_t(i), K);
}

struct Report {
  unsigned long long wrong, first;  // how many elements, and the lowest index row * N + col
};

template <class Acc>
__global__ __launch_bounds__(THREADS) void compare_kernel(Problem p, int64_t first_row,
                                                          Inputs inputs, Report* report) {
  __shared__ Acc a[DEPTH][TILE + 1], b[DEPTH][TILE];
  const __half* A = static_cast<const __half*>(p.A);
  const __half* B = static_cast<const __half*>(p.B);
  const int64_t row0 = first_row + int64_t(blockIdx.y) * TILE, col0 = int64_t(blockIdx.x) * TILE;
  const int tid = threadIdx.x, ty = tid / 16 * 4, tx = tid % 16 * 4;
  Acc acc[4][4] = {};
  for (int64_t k0 = 0; k0 < p.K; k0 += DEPTH) {
    for (int i = 0; i < 4; ++i) {
      const int a_row = tid / 4, a_k = tid % 4 * 4 + i;
      const int64_t row = row0 + a_row, ka = k0 + a_k;
      a[a_k][a_row] = row < p.M && ka < p.K ? Acc(__half2float(A[row * p.lda + ka])) : Acc(0);
      const int64_t kb = k0 + tid / 16, col = col0 + tx + i;
      b[tid / 16][tx + i] = kb < p.K && col < p.N ? Acc(__half2float(B[kb * p.ldb + col])) : Acc(0);
    }
    __syncthreads();
    for (int k = 0; k < DEPTH; ++k)
      for (int i = 0; i < 4; ++i)
        for (int j = 0; j < 4; ++j) acc[i][j] += a[k][ty + i] * b[k][tx + j];
    __syncthreads();
  }
  const uint16_t* C = static_cast<const uint16_t*>(p.C);
#pragma unroll
  for (int i = 0; i < 4; ++i)
#pragma unroll  // an index known only at run time would put `acc` into memory
    for (int j = 0; j < 4; ++j) {
      const int64_t row = row0 + ty + i, col = col0 + tx + j;
      if (row >= p.M || col >= p.N) continue;
      if (is_right(inputs, p.K, C[row * p.ldc + col], double(acc[i][j]))) continue;
      atomicAdd(&report->wrong, 1ull);
      atomicMin(&report->first, static_cast<unsigned long long>(row * p.N + col));
    }
}

/// One exact element of C: the row and the column summed on the host.
double exact_element(const Problem& p, int64_t row, int64_t col) {
  std::vector<uint16_t> a(size_t(p.K)), b(size_t(p.K));
  gpu::copy_to_host(a.data(), static_cast<const uint16_t*>(p.A) + row * p.lda, a.size() * 2);
  GPU_CHECK(cudaMemcpy2D(b.data(), 2, static_cast<const uint16_t*>(p.B) + col, size_t(p.ldb) * 2, 2,
                         size_t(p.K), cudaMemcpyDeviceToHost));
  double sum = 0;
  for (size_t k = 0; k < a.size(); ++k) sum += half_to_double(a[k]) * half_to_double(b[k]);
  return sum;
}

}  // namespace

void fill(uint16_t* data, int64_t count, Inputs inputs, uint64_t seed, int64_t K) {
  gpu::launch(nullptr, {dim3(unsigned(gpu::num_sms() * 8)), dim3(256)}, fill_kernel, data, count,
              inputs, seed, K);
}

Verdict compare_on_device(const Problem& p, Inputs inputs, Sum sum) {
  gpu::Buffer report(sizeof(Report), "report");
  gpu::fill(report.get(), 0xff, sizeof(Report));
  gpu::fill(report.get(), 0, sizeof(unsigned long long));  // wrong = 0, first = the largest
  // 10^11 operations a launch: 5 ms on an H200, half a second where FP64 runs at 0.2 TFLOPS.
  const double flop_per_tile_row = 2.0 * TILE * double(p.N) * double(p.K);
  const int64_t tile_rows = std::min(65535.0, std::max(1.0, 1e11 / flop_per_tile_row));
  for (int64_t row = 0; row < p.M; row += tile_rows * TILE) {
    const int64_t rows = std::min(tile_rows, ceil_div(p.M - row, int64_t{TILE}));
    const dim3 grid(unsigned(ceil_div(p.N, int64_t{TILE})), unsigned(rows));
    gpu::launch(nullptr, {grid, dim3(THREADS)},
                sum == Sum::fp64 ? compare_kernel<double> : compare_kernel<float>, p, row, inputs,
                report.get<Report>());
  }
  Report found;
  gpu::copy_to_host(&found, report.get(), sizeof found);
  Verdict v;
  v.wrong = int64_t(found.wrong);
  if (v.wrong) {
    v.row = int64_t(found.first) / p.N, v.col = int64_t(found.first) % p.N;
    uint16_t got;
    gpu::copy_to_host(&got, static_cast<const uint16_t*>(p.C) + v.row * p.ldc + v.col, 2);
    v.got = half_to_double(got), v.want = exact_element(p, v.row, v.col);
    v.allowed = bound(inputs, p.K, v.want);
  }
  return v;
}

}  // namespace harness

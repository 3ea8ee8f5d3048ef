// What the workloads of this experiment share: kernels to launch in a row, memory, cuBLAS, and the
// same mathematics in FP64.
#pragma once
#include <cublas_v2.h>

#include <map>
#include <vector>

#include "common/harness/experiment.h"
#include "common/harness/reference.h"
#include "kernels.h"

namespace block {

__device__ inline uint64_t nanoseconds() { return harness::globaltimer(); }

/// How a kernel is launched: may it begin before its predecessor has ended, and who takes the time.
struct How {
  gpu::Stream stream = nullptr;
  bool programmatic = false;
  Stamp* stamp = nullptr;
};

struct Node {
  std::string name;
  std::function<void(const How&)> launch;
  bool own;  // one of ours: can be stamped, and waits for its predecessor itself
};
using Nodes = std::vector<Node>;

/// `early` is all that programmatic dependent launch needs on the host. A kernel that does not wait
/// for its predecessor itself must not get it, since nothing else makes it wait.
template <class... Params, class... Args>
void launch(const How& how, dim3 grid, int threads, size_t dynamic_smem, void (*kernel)(Params...),
            Args... args) {
  gpu::LaunchConfig config;
  config.grid = grid, config.block = dim3(unsigned(threads));
  config.dynamic_smem = dynamic_smem;
  config.early = how.programmatic;
  gpu::launch(how.stream, config, kernel, args...);
}

/// Who multiplies by the weights.
enum class Gemm { ladder, cublas };

/// Layers of a model, each with weights, input and output of its own.
class Layers {
 public:
  virtual ~Layers() = default;

  /// The kernels of one layer, in order.
  virtual Nodes nodes(int layer, Gemm gemm) = 0;
  /// Of one layer.
  virtual double flop() const = 0;
  /// Everything that kernels write becomes NaN.
  virtual void poison() = 0;
  virtual std::vector<half> output(int layer) const = 0;
  /// "" if the output of this layer is right: within four units in the last place of FP16 of FP64
  /// sums that are rounded wherever the kernels round.
  virtual std::string compare(int layer, const std::vector<half>& got) = 0;

 protected:
  half* allocate(int64_t halves) {
    memory_.push_back(std::make_unique<gpu::Buffer>(size_t(halves) * sizeof(half), "block"));
    return memory_.back()->get<half>();
  }

  /// `halves` numbers of N(mean, deviation^2).
  half* random(int64_t halves, uint64_t seed, double deviation, double mean = 0) {
    half* data = allocate(halves);
    harness::fill(reinterpret_cast<uint16_t*>(data), halves, harness::Inputs::normal, seed, 1);
    if (deviation != 1 || mean != 0)
      launch({}, unsigned(ceil_div(halves, int64_t{256})), 256, 0, scale_and_shift, data, halves,
             float(deviation), float(mean));
    return data;
  }

  static void fill_nan(half* data, int64_t halves) {
    gpu::fill(data, 0xff, size_t(halves) * sizeof(half));
  }

  // ---- cuBLAS -----------------------------------------------------------------------------------

  /// A launch of C [M][N] = A [M][K] * B, where B is [K][N], or [N][K] if `turned`.
  std::function<void(const How&)> cublas(const half* A, const half* B, half* C, int M, int N, int K,
                                         bool turned = false) {
    if (!handle_) handle_ = {cublas_handle(), cublasDestroy};
    return [=](const How& how) {
      if (how.stream != stream_) {  // and a workspace that a graph may keep using
        check(cublasSetStream(handle_.get(), how.stream));
        check(cublasSetWorkspace(handle_.get(), workspace_.get(), workspace_.bytes()));
        stream_ = how.stream;
      }
      const float one = 1, zero = 0;  // column-major: C^T = B^T A^T
      check(cublasGemmEx(handle_.get(), turned ? CUBLAS_OP_T : CUBLAS_OP_N, CUBLAS_OP_N, N, M, K,
                         &one, B, CUDA_R_16F, turned ? K : N, A, CUDA_R_16F, K, &zero, C,
                         CUDA_R_16F, N, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT));
    };
  }

  static void check(cublasStatus_t status) {
    if (status) throw gpu::Error(std::string("cuBLAS: ") + cublasGetStatusString(status));
  }
  static cublasHandle_t cublas_handle() {
    cublasHandle_t handle;
    check(cublasCreate(&handle));
    return handle;
  }

  // ---- the same in FP64 -------------------------------------------------------------------------

  using Doubles = std::vector<double>;
  static Doubles doubles(const half* data, int64_t count) {
    const std::vector<half> host = read(data, count);
    return Doubles(host.begin(), host.end());
  }
  static double round(double x) { return double(__double2half(x)); }

  /// A [M][K] * B [K][N], rounded; rows of A, B and C are lda, ldb, N apart.
  static Doubles times(const double* A, int lda, const double* B, int ldb, int M, int N, int K,
                       bool transposed = false) {
    Doubles C(size_t(M) * N);
    for (int m = 0; m < M; ++m) {
      double* row = &C[size_t(m) * N];
      for (int k = 0; k < K; ++k) {
        const double a = A[int64_t(m) * lda + k];
        for (int n = 0; n < N; ++n)
          row[n] += a * (transposed ? B[int64_t(n) * ldb + k] : B[int64_t(k) * ldb + n]);
      }
      for (int n = 0; n < N; ++n) row[n] = round(row[n]);
    }
    return C;
  }
  static Doubles norm(const Doubles& x, const double* gain, const double* shift) {
    Doubles out(x.size());
    for (size_t row = 0; row < x.size(); row += D) {
      double mean = 0, variance = 0;
      for (int i = 0; i < D; ++i) mean += x[row + i] / D;
      for (int i = 0; i < D; ++i) variance += (x[row + i] - mean) * (x[row + i] - mean) / D;
      for (int i = 0; i < D; ++i)
        out[row + i] = round((x[row + i] - mean) / std::sqrt(variance + 1e-5) * gain[i] + shift[i]);
    }
    return out;
  }
  static Doubles sum(Doubles x, const Doubles& y) {
    for (size_t i = 0; i < x.size(); ++i) x[i] = round(x[i] + y[i]);
    return x;
  }
  /// x W^T for one row x of K numbers; W is [N][K].
  static Doubles apply(const half* W, const Doubles& x, int N) {
    const int K = int(x.size());
    return times(x.data(), K, doubles(W, int64_t(N) * K).data(), K, 1, N, K, true);
  }
  static Doubles gelu_of(Doubles x) {
    for (double& v : x) v = round(0.5 * v * (1 + std::erf(v / std::sqrt(2.0))));
    return x;
  }
  /// Softmax of `count` scores, scaled by 1 / sqrt(HEAD), in place.
  static void softmax_of(double* p, int count) {
    const double largest = *std::max_element(p, p + count), scale = 1 / std::sqrt(double(HEAD));
    double total = 0;
    for (int i = 0; i < count; ++i) total += p[i] = std::exp((p[i] - largest) * scale);
    for (int i = 0; i < count; ++i) p[i] = round(p[i] / total);
  }
  /// "" if these rows of D are what they should be.
  static std::string differ(const half* got, const Doubles& want, const std::string& where) {
    for (size_t i = 0; i < want.size(); ++i) {
      const double value = double(got[i]);
      if (!(std::fabs(value - want[i]) <= std::max(1.0, std::fabs(want[i])) * (4.0 / 1024)))
        return where + "token " + std::to_string(i / D) + ", element " + std::to_string(i % D) +
               " is " + std::to_string(value) + ", should be " + std::to_string(want[i]);
    }
    return "";
  }

  static std::vector<half> read(const half* data, int64_t count) {
    std::vector<half> host(static_cast<size_t>(count));
    gpu::copy_to_host(host.data(), data, host.size() * sizeof(half));
    return host;
  }

 private:
  std::vector<std::unique_ptr<gpu::Buffer>> memory_;
  gpu::Buffer workspace_{size_t{64} << 20, "cuBLAS workspace"};
  std::shared_ptr<cublasContext> handle_;
  gpu::Stream stream_ = nullptr;
};

}  // namespace block

// The transformer block as a list of kernels to launch in a row, and what it must compute.
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
  bool own;  // one of kernels.h: can be stamped, and waits for its predecessor itself
};

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

/// `sets` blocks with weights, input and output of their own, like the layers of a model; what lies
/// between the kernels of a block is shared.
class Block {
 public:
  Block(int sequences, int sets) : sequences_(sequences), tokens_(int64_t(sequences) * T) {
    between_ = allocate(tokens_ * (D + 3 * D + HEADS * T + D + PARTS * D + D + MLP));
    half* next = between_;
    for (half** part : {&normed_, &qkv_, &scores_, &attended_, &projected_, &residual_, &hidden_})
      *part = next, next += tokens_ * (part == &qkv_         ? 3 * D
                                       : part == &scores_    ? HEADS * T
                                       : part == &projected_ ? PARTS * D
                                       : part == &hidden_    ? MLP
                                                             : D);
    between_bytes_ = size_t(next - between_) * sizeof(half);
    for (int i = 0; i < sets; ++i) sets_.push_back(make_set(uint64_t(i)));
    gpu::allow_dynamic_smem(small_gemm<Right::weights, 32>, Ring<32>::bytes(MLP));
    gpu::synchronize();
  }

  /// The block's twelve kernels, in order.
  std::vector<Node> nodes(int set, Gemm gemm) {
    const Set s = sets_[size_t(set)];
    const int rows = int(tokens_);
    const int64_t head_scores = int64_t(T) * T, sequence_qkv = int64_t(T) * 3 * D;
    const auto part = [&](int i) { return Matrices{qkv_ + i * D, 3 * D, HEAD, sequence_qkv}; };
    const Matrices queries = part(0), keys = part(1), values = part(2);
    const Matrices scores = {scores_, T, head_scores, HEADS * head_scores};
    const Matrices attended = {attended_, D, HEAD, int64_t(T) * D};
    const auto norm = [rows](const half* x, const half* gain, const half* shift, half* out) {
      return [=](const How& how) {
        launch(how, ceil_div(rows, ROWS), 32 * ROWS, 0, layer_norm, x, gain, shift, out, rows,
               how.stamp);
      };
    };
    const auto sum = [rows](const half* x, const half* y, int parts, half* out) {
      const int eights = rows * (D / 8);
      return [=](const How& how) {
        launch(how, ceil_div(eights, ELEMENT_THREADS), ELEMENT_THREADS, 0, add, x, y, parts, out,
               eights, how.stamp);
      };
    };
    const auto attention = [this](auto* kernel, Matrices a, Matrices b, Matrices c, int N, int K) {
      const dim3 grid(unsigned(N / 64), T / 64, unsigned(sequences_ * HEADS));
      return [=](const How& how) {
        launch(how, grid, NUM_THREADS, Ring<64>::bytes(K), kernel, a, b, c, K, how.stamp);
      };
    };
    const int score_rows = rows * HEADS, eights = rows * (MLP / 8);
    half* scores_data = scores_;
    half* hidden = hidden_;
    return {
        {"norm", norm(s.x, s.gain, s.shift, normed_), true},
        product("QKV", gemm, normed_, s.qkv, qkv_, 3 * D, D),
        {"scores", attention(small_gemm<Right::keys, 64>, queries, keys, scores, T, HEAD), true},
        {"softmax",
         [=](const How& how) {
           launch(how, score_rows / (ROWS * WARP_ROWS), 32 * ROWS, 0, softmax, scores_data,
                  how.stamp);
         },
         true},
        {"values",
         attention(small_gemm<Right::values, 64>, scores, values, attended, HEAD, T), true},
        product("projection", gemm, attended_, s.projection, projected_, D, D),
        {"add", sum(s.x, projected_, parts_of(gemm, D, D), residual_), true},
        {"norm", norm(residual_, s.gain + D, s.shift + D, normed_), true},
        product("up", gemm, normed_, s.up, hidden_, MLP, D),
        {"GELU",
         [=](const How& how) {
           launch(how, ceil_div(eights, ELEMENT_THREADS), ELEMENT_THREADS, 0, gelu, hidden, eights,
                  how.stamp);
         },
         true},
        product("down", gemm, hidden_, s.down, projected_, D, MLP),
        {"add", sum(residual_, projected_, parts_of(gemm, D, MLP), s.out), true},
    };
  }

  double flop() const { return 2.0 * double(tokens_) * (12.0 * D * D + 2.0 * T * D); }

  /// Everything that kernels write becomes NaN.
  void poison() {
    gpu::fill(between_, 0xff, between_bytes_);
    for (const Set& s : sets_) gpu::fill(s.out, 0xff, size_t(tokens_ * D) * sizeof(half));
  }

  std::vector<half> output(int set) const { return read(sets_[size_t(set)].out, tokens_ * D); }

  /// "" if the output of this set is right in its first and last sequence: within four units in
  /// the last place of FP16 of FP64 sums that are rounded wherever the kernels round.
  std::string compare(int set, const std::vector<half>& got) {
    for (int sequence : {0, sequences_ - 1}) {
      auto& want = wanted_[{set, sequence}];
      if (want.empty()) want = reference(set, sequence);
      for (size_t i = 0; i < want.size(); ++i) {
        const double value = double(got[size_t(sequence) * T * D + i]);
        if (!(std::fabs(value - want[i]) <= std::max(1.0, std::fabs(want[i])) * (4.0 / 1024)))
          return "sequence " + std::to_string(sequence) + ", token " + std::to_string(i / D) +
                 ", element " + std::to_string(i % D) + " is " + std::to_string(value) +
                 ", should be " + std::to_string(want[i]);
      }
    }
    return "";
  }

 private:
  struct Set {
    half *x, *gain, *shift, *qkv, *projection, *up, *down, *out;  // gain, shift: of both norms
  };

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

  Set make_set(uint64_t i) {
    const uint64_t seed = i * 16;
    const double deviation = 1 / std::sqrt(double(D));  // so that all activations stay near N(0, 1)
    Set s;
    s.x = random(tokens_ * D, seed, 1);
    s.gain = random(2 * D, seed + 1, 0.1, 1);
    s.shift = random(2 * D, seed + 2, 0.1);
    s.qkv = random(3 * D * D, seed + 3, deviation);
    s.projection = random(D * D, seed + 4, deviation);
    s.up = random(D * MLP, seed + 5, deviation);
    s.down = random(MLP * D, seed + 6, deviation / 2);
    s.out = allocate(tokens_ * D);
    return s;
  }

  /// The step whose tiles are the largest that still are enough for the SMs, since large ones move
  /// the fewest bytes; nullptr where none are.
  const char* step_for(int N) const {
    const auto tiles = [&](int m, int n) { return ceil_div(int(tokens_), m) * ceil_div(N, n); };
    if (tiles(128, 256) >= gpu::num_sms()) return "23_tma_store";
    if (tiles(128, 128) * 6 >= gpu::num_sms()) return "18_wgmma_pipeline";
    return nullptr;
  }
  /// In how many parts of K the product is left, for `add`: more CTAs where tiles are few.
  int parts_of(Gemm gemm, int N, int K) const {
    const int tiles = int(tokens_) / 32 * (N / 32);
    if (gemm == Gemm::cublas || step_for(N)) return 1;
    return std::max(1, std::min({PARTS, gpu::num_sms() / tiles, K / 512}));
  }

  /// C [tokens][N] = A [tokens][K] * weights [K][N].
  Node product(const char* name, Gemm gemm, half* A, half* weights, half* C, int N, int K) {
    const int M = int(tokens_);
    if (gemm == Gemm::cublas) {
      if (!handle_) handle_ = {cublas_handle(), cublasDestroy};
      return {name, [=](const How& how) { cublas(how.stream, A, weights, C, M, N, K); }, false};
    }
    if (const char* step = step_for(N)) {
      const Problem problem = make_problem(M, N, K, A, weights, C);
      const Launch prepared = harness::find_step(step).prepare(problem);
      return {name, [=](const How& how) { prepared(how.stream); }, false};
    }
    const int parts = parts_of(gemm, N, K), part = K / parts;
    const dim3 grid(unsigned(N / 32), unsigned(M / 32), unsigned(parts));
    const Matrices a = {A, K, part}, b = {weights, N, int64_t(part) * N};
    const Matrices c = {C, N, tokens_ * N};
    return {name,
            [=](const How& how) {
              launch(how, grid, NUM_THREADS, Ring<32>::bytes(part), small_gemm<Right::weights, 32>,
                     a, b, c, part, how.stamp);
            },
            true};
  }

  static void check(cublasStatus_t status) {
    if (status) throw gpu::Error(std::string("cuBLAS: ") + cublasGetStatusString(status));
  }
  static cublasHandle_t cublas_handle() {
    cublasHandle_t handle;
    check(cublasCreate(&handle));
    return handle;
  }

  void cublas(gpu::Stream stream, const half* A, const half* B, half* C, int M, int N, int K) {
    if (stream != stream_) {  // and a workspace that a graph may keep using
      check(cublasSetStream(handle_.get(), stream));
      check(cublasSetWorkspace(handle_.get(), workspace_.get(), workspace_.bytes()));
      stream_ = stream;
    }
    const float one = 1, zero = 0;  // column-major: C^T = B^T A^T
    check(cublasGemmEx(handle_.get(), CUBLAS_OP_N, CUBLAS_OP_N, N, M, K, &one, B, CUDA_R_16F, N, A,
                       CUDA_R_16F, K, &zero, C, CUDA_R_16F, N, CUBLAS_COMPUTE_32F,
                       CUBLAS_GEMM_DEFAULT));
  }

  static std::vector<half> read(const half* data, int64_t count) {
    std::vector<half> host(static_cast<size_t>(count));
    gpu::copy_to_host(host.data(), data, host.size() * sizeof(half));
    return host;
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

  /// The output of one sequence, [T][D].
  Doubles reference(int set, int sequence) {
    const Set& s = sets_[size_t(set)];
    const Doubles x = doubles(s.x + int64_t(sequence) * T * D, T * D);
    const Doubles gain = doubles(s.gain, 2 * D), shift = doubles(s.shift, 2 * D);
    const auto product_with = [](const Doubles& A, const half* weights, int N, int K) {
      return times(A.data(), K, doubles(weights, int64_t(N) * K).data(), N, T, N, K);
    };
    const Doubles qkv = product_with(norm(x, gain.data(), shift.data()), s.qkv, 3 * D, D);
    Doubles attended(size_t(T) * D);
    for (int head = 0; head < HEADS; ++head) {
      const double* q = &qkv[size_t(head) * HEAD];
      Doubles scores = times(q, 3 * D, q + D, 3 * D, T, T, HEAD, true);
      for (int row = 0; row < T; ++row) {
        double* p = &scores[size_t(row) * T];
        const double largest = *std::max_element(p, p + T), scale = 1 / std::sqrt(double(HEAD));
        double total = 0;
        for (int i = 0; i < T; ++i) total += p[i] = std::exp((p[i] - largest) * scale);
        for (int i = 0; i < T; ++i) p[i] = round(p[i] / total);
      }
      const Doubles out = times(scores.data(), T, q + 2 * D, 3 * D, T, HEAD, T);
      for (int i = 0; i < T * HEAD; ++i)
        attended[size_t(i / HEAD) * D + head * HEAD + i % HEAD] = out[size_t(i)];
    }
    const Doubles residual = sum(x, product_with(attended, s.projection, D, D));
    Doubles hidden = product_with(norm(residual, &gain[D], &shift[D]), s.up, MLP, D);
    for (double& v : hidden) v = round(0.5 * v * (1 + std::erf(v / std::sqrt(2.0))));
    return sum(residual, product_with(hidden, s.down, D, MLP));
  }

  static constexpr int PARTS = 4;  // of K at most; no more than HEADS, see Matrices::of
  int sequences_;
  int64_t tokens_;
  std::vector<std::unique_ptr<gpu::Buffer>> memory_;
  std::vector<Set> sets_;
  half *between_, *normed_, *qkv_, *scores_, *attended_, *projected_, *residual_, *hidden_;
  size_t between_bytes_;
  std::map<std::pair<int, int>, Doubles> wanted_;
  gpu::Buffer workspace_{size_t{64} << 20, "cuBLAS workspace"};
  std::shared_ptr<cublasContext> handle_;
  gpu::Stream stream_ = nullptr;
};

}  // namespace block

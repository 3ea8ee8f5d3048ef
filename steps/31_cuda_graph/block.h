// The transformer block as a list of kernels to launch in a row, and what it must compute.
#pragma once
#include "work.h"

namespace block {

/// `sets` blocks with weights, input and output of their own, like the layers of a model; what lies
/// between the kernels of a block is shared.
class Block : public Layers {
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
  Nodes nodes(int set, Gemm gemm) override {
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
    const int warp_rows = score_rows / ROWS <= gpu::num_sms() ? 1 : 4;
    const auto softmax_kernel = warp_rows == 1 ? softmax<1> : softmax<4>;
    half* scores_data = scores_;
    half* hidden = hidden_;
    return {
        {"norm", norm(s.x, s.gain, s.shift, normed_), true},
        product("QKV", gemm, normed_, s.qkv, qkv_, 3 * D, D),
        {"scores", attention(small_gemm<Right::keys, 64>, queries, keys, scores, T, HEAD), true},
        {"softmax",
         [=](const How& how) {
           launch(how, score_rows / (ROWS * warp_rows), 32 * ROWS, 0, softmax_kernel, scores_data,
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

  double flop() const override { return 2.0 * double(tokens_) * (12.0 * D * D + 2.0 * T * D); }

  void poison() override {
    gpu::fill(between_, 0xff, between_bytes_);
    for (const Set& s : sets_) gpu::fill(s.out, 0xff, size_t(tokens_ * D) * sizeof(half));
  }

  std::vector<half> output(int set) const override {
    return read(sets_[size_t(set)].out, tokens_ * D);
  }

  /// Of its first and last sequence.
  std::string compare(int set, const std::vector<half>& got) override {
    for (int sequence : {0, sequences_ - 1}) {
      auto& want = wanted_[{set, sequence}];
      if (want.empty()) want = reference(set, sequence);
      const std::string where = "sequence " + std::to_string(sequence) + ", ";
      const std::string wrong = differ(&got[size_t(sequence) * T * D], want, where);
      if (!wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  struct Set {
    half *x, *gain, *shift, *qkv, *projection, *up, *down, *out;  // gain, shift: of both norms
  };

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
    if (gemm == Gemm::cublas) return {name, cublas(A, weights, C, M, N, K), false};
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
      for (int row = 0; row < T; ++row) softmax_of(&scores[size_t(row) * T], T);
      const Doubles out = times(scores.data(), T, q + 2 * D, 3 * D, T, HEAD, T);
      for (int i = 0; i < T * HEAD; ++i)
        attended[size_t(i / HEAD) * D + head * HEAD + i % HEAD] = out[size_t(i)];
    }
    const Doubles residual = sum(x, product_with(attended, s.projection, D, D));
    const Doubles hidden =
        gelu_of(product_with(norm(residual, &gain[D], &shift[D]), s.up, MLP, D));
    return sum(residual, product_with(hidden, s.down, D, MLP));
  }

  static constexpr int PARTS = 4;  // of K at most; no more than HEADS, see Matrices::of
  int sequences_;
  int64_t tokens_;
  std::vector<Set> sets_;
  half *between_, *normed_, *qkv_, *scores_, *attended_, *projected_, *residual_, *hidden_;
  size_t between_bytes_;
  std::map<std::pair<int, int>, Doubles> wanted_;
};

}  // namespace block

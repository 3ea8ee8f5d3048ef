// One token of one sequence through a block: what a model does for each word that it writes.
#pragma once
#include "decode_kernels.h"
#include "work.h"

namespace block {

/// The block of block.h as a decoder runs it: the tokens before this one are in a cache. Weights
/// lie as nn.Linear keeps them, [N][K], and have biases; every operation is a kernel.
class Decode : public Layers {
 public:
  explicit Decode(int layers) : position_memory_(sizeof(int), "position") {
    between_ = allocate(BETWEEN);
    half* next = between_;
    const auto take = [&next](int halves) { return std::exchange(next, next + halves); };
    normed_ = take(D), qkv_ = take(3 * D), scores_ = take(HEADS * T), attended_ = take(D);
    projected_ = take(D), residual_ = take(D), hidden_ = take(MLP);
    gpu::copy_to_device(position_memory_.get(), &POSITION, sizeof(int));
    for (int i = 0; i < layers; ++i) layers_.push_back(make_layer(uint64_t(i)));
    gpu::synchronize();
  }

  Nodes nodes(int layer, Gemm gemm) override {
    const Layer l = layers_[size_t(layer)];
    const auto norm = [](const half* x, const half* gain, const half* shift, half* out) {
      return node("norm", 1, 32 * ROWS, layer_norm, x, gain, shift, out, 1);
    };
    const auto sum = [](const char* name, const half* x, half* y, half* out, int count) {
      return node(name, ceil_div(count / 8, ELEMENT_THREADS), ELEMENT_THREADS, add, x,
                  static_cast<const half*>(y), 1, out, count / 8);
    };
    const int* position = position_memory_.get<const int>();
    return {
        norm(l.x, l.gain, l.shift, normed_),
        product("QKV", gemm, l.qkv, normed_, qkv_, 3 * D, D),
        sum("bias", l.bias, qkv_, qkv_, 3 * D),
        node("append", 1, ENTRY / 8, append, qkv_, l.cache, position),
        node("scores", HEADS * T / SCORES, 32 * ROWS, query_keys, qkv_, l.cache, position, scores_),
        node("softmax", HEADS / ROWS, 32 * ROWS, softmax<1>, scores_),
        node("values", HEADS, 32 * VALUE_WARPS, weigh_values, scores_, l.cache, attended_),
        product("projection", gemm, l.projection, attended_, projected_, D, D),
        sum("bias", l.bias + 3 * D, projected_, projected_, D),
        sum("add", l.x, projected_, residual_, D),
        norm(residual_, l.gain + D, l.shift + D, normed_),
        product("up", gemm, l.up, normed_, hidden_, MLP, D),
        sum("bias", l.bias + 4 * D, hidden_, hidden_, MLP),
        node("GELU", MLP / 8 / ELEMENT_THREADS, ELEMENT_THREADS, gelu, hidden_, MLP / 8),
        product("down", gemm, l.down, hidden_, projected_, D, MLP),
        sum("bias", l.bias + 4 * D + MLP, projected_, projected_, D),
        sum("add", residual_, projected_, l.out, D),
    };
  }

  double flop() const override { return 2.0 * (12.0 * D * D + 2.0 * T * D); }

  void poison() override {
    fill_nan(between_, BETWEEN);
    for (const Layer& l : layers_) {
      fill_nan(l.cache + POSITION * ENTRY, ENTRY);
      fill_nan(l.out, D);
    }
  }

  std::vector<half> output(int layer) const override {
    return read(layers_[size_t(layer)].out, D);
  }

  std::string compare(int layer, const std::vector<half>& got) override {
    Doubles& want = wanted_[layer];
    if (want.empty()) want = reference(layer);
    return differ(got.data(), want, "");
  }

 private:
  static constexpr int POSITION = 50;  // of this token; the cache has room for T
  static constexpr int BETWEEN = 7 * D + HEADS * T + MLP;

  struct Layer {
    half *x, *gain, *shift, *qkv, *projection, *up, *down, *out;
    half *bias;   // of QKV, projection, up and down
    half *cache;  // [T][ENTRY]
  };

  Layer make_layer(uint64_t i) {
    const uint64_t seed = (1000 + i) * 16;
    const double deviation = 1 / std::sqrt(double(D));
    Layer l;
    l.x = random(D, seed, 1);
    l.gain = random(2 * D, seed + 1, 0.1, 1), l.shift = random(2 * D, seed + 2, 0.1);
    l.qkv = random(3 * D * D, seed + 3, deviation);
    l.projection = random(D * D, seed + 4, deviation);
    l.up = random(MLP * D, seed + 5, deviation);
    l.down = random(D * MLP, seed + 6, deviation / 2);
    l.bias = random(5 * D + MLP, seed + 7, 0.1);
    l.cache = random(T * ENTRY, seed + 8, 1);
    l.out = allocate(D);
    return l;
  }

  template <class Grid, class... Params, class... Args>
  static Node node(const char* name, Grid grid, int threads, void (*kernel)(Params...),
                   Args... args) {
    return {name,
            [=](const How& how) {
              launch(how, dim3(unsigned(grid)), threads, 0, kernel, args..., how.stamp);
            },
            true};
  }

  /// y [N] = weights [N][K] * x [K].
  Node product(const char* name, Gemm gemm, half* weights, half* x, half* y, int N, int K) {
    if (gemm == Gemm::cublas) return {name, cublas(x, weights, y, 1, N, K, true), false};
    return node(name, N / ROWS, 32 * ROWS, K == D ? matrix_vector<D> : matrix_vector<MLP>, weights,
                x, y);
  }

  Doubles reference(int layer) const {
    const Layer& l = layers_[size_t(layer)];
    const Doubles x = doubles(l.x, D), gain = doubles(l.gain, 2 * D),
                  shift = doubles(l.shift, 2 * D);
    const auto linear = [](const half* W, const half* bias, const Doubles& in, int N) {
      return sum(apply(W, in, N), doubles(bias, N));
    };
    const Doubles qkv = linear(l.qkv, l.bias, norm(x, gain.data(), shift.data()), 3 * D);
    Doubles cache = doubles(l.cache, (POSITION + 1) * ENTRY);
    std::copy(qkv.begin() + D, qkv.end(), cache.end() - ENTRY);
    Doubles attended;
    for (int head = 0; head < HEADS; ++head) {
      const double* keys = &cache[size_t(head) * HEAD];
      Doubles scores =
          times(&qkv[size_t(head) * HEAD], HEAD, keys, ENTRY, 1, POSITION + 1, HEAD, true);
      softmax_of(scores.data(), POSITION + 1);
      const Doubles out = times(scores.data(), 1, keys + D, ENTRY, 1, HEAD, POSITION + 1);
      attended.insert(attended.end(), out.begin(), out.end());
    }
    const Doubles residual = sum(x, linear(l.projection, l.bias + 3 * D, attended, D));
    const Doubles hidden =
        gelu_of(linear(l.up, l.bias + 4 * D, norm(residual, &gain[D], &shift[D]), MLP));
    return sum(residual, linear(l.down, l.bias + 4 * D + MLP, hidden, D));
  }

  gpu::Buffer position_memory_;
  std::vector<Layer> layers_;
  half *between_, *normed_, *qkv_, *scores_, *attended_, *projected_, *residual_, *hidden_;
  std::map<int, Doubles> wanted_;
};

}  // namespace block

// Data-parallel training of a stack of square layers: y = x W, ReLU between them. One rank's share.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "common/harness/experiment.h"
#include "steps/33_allreduce_overlap/communicator.h"
#include "steps/33_allreduce_overlap/kernels.h"

namespace {

constexpr int HIDDEN = 8192;
constexpr int LAYERS = 8;
constexpr int64_t LAYER_SIZE = int64_t(HIDDEN) * HIDDEN;  // weights of a layer
constexpr int64_t TOTAL_SIZE = LAYERS * LAYER_SIZE;
// Of the optimizer, over the tokens: weights change in FP16 within a step. (All 8192 inputs of a
// unit pull the same way, in 8 layers: a much larger one diverges.)
constexpr float RATE = 1e-4f;

/// The GEMMs of all layers, by one of the ladder's kernels.
struct Gemms {
  std::vector<Launch> forward, weight, input;  // y = x W, dW = x^T dy, dx = dy W^T
};

/// How an iteration communicates.
struct Plan {
  bool overlapped = true;
  int64_t bucket = LAYER_SIZE;  // elements of a call
  const Communicator* communicator = nullptr;  // none: nothing is summed
  gpu::Stream stream = nullptr;                // of the communication, where it is overlapped
  const Gemms* backward = nullptr;
};

class Training {
 public:
  Training(int tokens, int rank) : tokens_(tokens), rank_(rank) {
    const size_t activation = size_t(tokens) * HIDDEN * sizeof(half);
    for (int layer = 0; layer < LAYERS; ++layer) {
      x_.push_back(make(activation)), x_t_.push_back(make(activation));
      w_.push_back(make(LAYER_SIZE * sizeof(half)));
      w_t_.push_back(make(LAYER_SIZE * sizeof(half)));
      master_.push_back(make(LAYER_SIZE * sizeof(float)));
    }
    for (int i = 0; i < 2; ++i) dy_.push_back(make(activation));
    for (int i = 0; i < 1024; ++i) events_.push_back(make_event());
    // The data of this rank, and its transpose. Normal data, so half of it is zero after the ReLU.
    fill(half_of(y_), int64_t(tokens) * HIDDEN, 1, 1000 + uint64_t(rank));
    activate(0, gpu::Stream(nullptr));
    fill(half_of(target_), int64_t(tokens) * HIDDEN, 1, 2000 + uint64_t(rank));
    reset();
  }
  ~Training() {
    for (cudaEvent_t event : events_) cudaEventDestroy(event);
  }
  Training(const Training&) = delete;

  Gemms gemms(const std::string& id, int spared_sms) const {
    const Step step = harness::find_step(id);
    const auto prepared = [&](int64_t M, int64_t N, int64_t K, const void* A, const void* B,
                              void* C) {
      const Problem p = make_problem(M, N, K, A, B, C);
      if (const std::string why = step.supports(p); !why.empty()) throw gpu::Error(id + " " + why);
      return step.prepare(p);
    };
    Gemms made;
    gpu::spared_sms() = spared_sms;
    for (int l = 0; l < LAYERS; ++l) {
      made.forward.push_back(
          prepared(tokens_, HIDDEN, HIDDEN, x_[l]->get(), w_[l]->get(), y_.get()));
      made.weight.push_back(
          prepared(HIDDEN, HIDDEN, tokens_, x_t_[l]->get(), dy_[l % 2]->get(), grad(l)));
      made.input.push_back(
          prepared(tokens_, HIDDEN, HIDDEN, dy_[l % 2]->get(), w_t_[l]->get(), dx_.get()));
    }
    gpu::spared_sms() = 0;
    return made;
  }

  /// Forward, backward, sum over all ranks, update.
  void iterate(const harness::Run& run, const Plan& plan, const Gemms& forward, int ranks) {
    ++iterations_;
    const gpu::Stream stream = run.stream;
    forward_pass(run, forward);
    std::vector<int64_t> sent;  // where each call of the communication ends
    for (int l = LAYERS - 1; l >= 0; --l) {
      const auto mark = run.mark(stream, "compute", "backward " + std::to_string(l));
      plan.backward->weight[l](stream);
      if (plan.communicator && plan.overlapped) send(run, plan, l, sent);
      if (l > 0) input_grad(l, *plan.backward, stream);
    }
    if (plan.communicator && !plan.overlapped) {
      const auto mark = run.mark(stream, "communication", "all gradients");
      plan.communicator->sum(grads(), size_t(TOTAL_SIZE), stream);
    }
    const auto mark = run.mark(stream, "compute", "update");
    for (int l = LAYERS - 1; l >= 0; --l) {  // the first gradients to arrive are the first used
      wait_for(sent, l, stream);
      gpu::launch(stream, tiles(HIDDEN, HIDDEN), update_kernel, grad(l),
                  master_[l]->get<float>(), half_of(*w_[l]), half_of(*w_t_[l]), HIDDEN,
                  RATE / float(tokens_ * ranks));
    }
  }

  /// Only forward and backward: each rank's own gradients.
  void own_gradients(const Gemms& gemms, gpu::Stream stream) {
    forward_pass({0, stream, nullptr}, gemms);
    for (int l = LAYERS - 1; l >= 0; --l) {
      gemms.weight[l](stream);
      if (l > 0) input_grad(l, gemms, stream);
    }
  }

  /// Weights as in the beginning; what is computed from them is NaN.
  void reset() {
    gpu::synchronize();
    for (int l = 0; l < LAYERS; ++l) {
      fill(master_[l]->get<float>(), LAYER_SIZE, std::sqrt(2.0f / HIDDEN), uint64_t(l));
      gpu::fill(grad(l), 0, LAYER_SIZE * sizeof(half));
      gpu::launch(nullptr, tiles(HIDDEN, HIDDEN), update_kernel, grad(l), master_[l]->get<float>(),
                  half_of(*w_[l]), half_of(*w_t_[l]), HIDDEN, 0.0f);
    }
    gpu::fill(grads(), 0xff, grads_.bytes());
    for (int l = 1; l < LAYERS; ++l) {
      gpu::fill(x_[l]->get(), 0xff, x_[l]->bytes());
      gpu::fill(x_t_[l]->get(), 0xff, x_t_[l]->bytes());
    }
    for (const auto* buffer : {&y_, &dx_, dy_[0].get(), dy_[1].get()})
      gpu::fill(buffer->get(), 0xff, buffer->bytes());
    gpu::synchronize();
    iterations_ = 0;
  }

  int iterations() const { return iterations_; }  // since the last reset
  int64_t tokens() const { return tokens_; }
  half* grads() const { return half_of(grads_); }
  half* grad(int layer) const { return grads() + (LAYERS - 1 - layer) * LAYER_SIZE; }
  const half* weights(int layer) const { return half_of(*w_[layer]); }

  /// "" or what differs from FP64 sums, at a few elements of each product that is still in memory
  /// after own_gradients.
  std::string spot_check() const {
    for (int l = 0; l < LAYERS; ++l) {
      const bool last = l == LAYERS - 1;
      const half* out = last ? half_of(y_) : half_of(*x_[l + 1]);
      std::string wrong = spots(half_of(*x_[l]), weights(l), out, tokens_, HIDDEN, HIDDEN, !last);
      if (!wrong.empty()) return "forward of layer " + std::to_string(l) + ": " + wrong;
    }
    for (int l = 0; l < 2; ++l) {
      const half* dy = half_of(*dy_[l]);
      std::string wrong = spots(half_of(*x_t_[l]), dy, grad(l), HIDDEN, HIDDEN, tokens_, false);
      if (!wrong.empty()) return "gradient of layer " + std::to_string(l) + ": " + wrong;
    }
    std::string wrong =
        spots(half_of(*dy_[1]), half_of(*w_t_[1]), half_of(dx_), tokens_, HIDDEN, HIDDEN, false);
    return wrong.empty() ? "" : "backward of layer 1: " + wrong;
  }

 private:
  using Memory = std::unique_ptr<gpu::Buffer>;
  static Memory make(size_t bytes) { return std::make_unique<gpu::Buffer>(bytes); }
  static half* half_of(const gpu::Buffer& buffer) { return buffer.get<half>(); }
  static cudaEvent_t make_event() {
    cudaEvent_t event;
    GPU_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
    return event;
  }
  static gpu::LaunchConfig tiles(int64_t rows, int64_t cols) {
    gpu::LaunchConfig config;
    config.grid = dim3(unsigned(cols / TILE), unsigned(rows / TILE)), config.block = NUM_THREADS;
    return config;
  }
  static gpu::LaunchConfig flat(int64_t count) {
    gpu::LaunchConfig config;
    config.grid = dim3(unsigned(ceil_div(count, NUM_THREADS))), config.block = NUM_THREADS;
    return config;
  }
  template <class T>
  static void fill(T* out, int64_t count, float scale, uint64_t seed) {
    gpu::launch(nullptr, flat(count), normal_kernel<T>, out, count, scale, seed);
  }
  int64_t pairs() const { return int64_t(tokens_) * HIDDEN / 2; }
  static half2* pairs_of(const gpu::Buffer& buffer) { return buffer.get<half2>(); }

  void activate(int next, gpu::Stream stream) {  // y_ becomes the input of layer `next`
    gpu::launch(stream, tiles(tokens_, HIDDEN), activate_kernel, half_of(y_), half_of(*x_[next]),
                half_of(*x_t_[next]), tokens_, HIDDEN);
  }

  void forward_pass(const harness::Run& run, const Gemms& gemms) {
    const auto mark = run.mark(run.stream, "compute", "forward");
    for (int l = 0; l < LAYERS; ++l) {
      gemms.forward[l](run.stream);
      if (l < LAYERS - 1) activate(l + 1, run.stream);
    }
    gpu::launch(run.stream, flat(pairs()), loss_grad_kernel, pairs_of(y_), pairs_of(target_),
                pairs_of(*dy_[(LAYERS - 1) % 2]), pairs());
  }

  void input_grad(int l, const Gemms& gemms, gpu::Stream stream) {
    gemms.input[l](stream);
    gpu::launch(stream, flat(pairs()), activation_grad_kernel, pairs_of(dx_), pairs_of(*x_[l]),
                pairs_of(*dy_[(l - 1) % 2]), pairs());
  }

  // The gradient of layer l is on its way into memory: hands whole buckets to the communication,
  // after the last layer also the rest. It waits on the GPU for the gradient, by an event.
  void send(const harness::Run& run, const Plan& plan, int l, std::vector<int64_t>& sent) {
    const int64_t ready = (LAYERS - l) * LAYER_SIZE;
    int64_t begin = sent.empty() ? 0 : sent.back();
    if (ready - begin < plan.bucket && l > 0) return;
    const cudaEvent_t computed = events_[size_t(l)];
    GPU_CHECK(cudaEventRecord(computed, run.stream));
    GPU_CHECK(cudaStreamWaitEvent(plan.stream, computed));
    while (ready - begin >= plan.bucket || (l == 0 && begin < ready)) {
      const int64_t count = std::min(plan.bucket, ready - begin);
      {
        const auto mark =
            run.mark(plan.stream, "communication", "bucket " + std::to_string(sent.size()));
        plan.communicator->sum(grads() + begin, size_t(count), plan.stream);
      }
      GPU_CHECK(cudaEventRecord(events_.at(LAYERS + sent.size()), plan.stream));
      sent.push_back(begin += count);
    }
  }

  // The update of layer l waits for the call that brings the last of its gradient.
  void wait_for(const std::vector<int64_t>& sent, int l, gpu::Stream stream) const {
    const int64_t end = (LAYERS - l) * LAYER_SIZE;
    for (size_t call = 0; call < sent.size(); ++call)
      if (sent[call] >= end) {
        GPU_CHECK(cudaStreamWaitEvent(stream, events_[LAYERS + call]));
        return;
      }
  }

  // C [M][N] = A [M][K] B [K][N], with ReLU where `activated`, at eight elements.
  static std::string spots(const half* A, const half* B, const half* C, int64_t M, int64_t N,
                           int64_t K, bool activated) {
    std::vector<half> row(static_cast<size_t>(K)), col(row);
    const gpu::Buffer column(row.size() * sizeof(half));
    for (int64_t i = 0; i < 8; ++i) {
      const int64_t m = (i * 7919 + 13) % M, n = (i * 104729 + 4001) % N;
      gpu::copy_to_host(row.data(), A + m * K, size_t(K) * sizeof(half));
      gpu::launch(nullptr, flat(K), column_kernel, B + n, half_of(column), K, N);
      gpu::copy_to_host(col.data(), column.get(), column.bytes());
      half got;
      gpu::copy_to_host(&got, C + m * N + n, sizeof(half));
      double want = 0, magnitude = 0;
      for (int64_t k = 0; k < K; ++k) {
        const double product = double(__half2float(row[size_t(k)])) * __half2float(col[size_t(k)]);
        want += product, magnitude += std::fabs(product);
      }
      if (activated) want = std::max(want, 0.0);
      const double bound = std::fabs(want) / 1024 + magnitude * double(K) / (1 << 24) + 1e-6;
      if (!(std::fabs(double(__half2float(got)) - want) <= bound))
        return "element [" + std::to_string(m) + "][" + std::to_string(n) + "] is " +
               std::to_string(double(__half2float(got))) + ", should be " + std::to_string(want);
    }
    return "";
  }

  const int tokens_, rank_;
  int iterations_ = 0;
  std::vector<Memory> x_, x_t_, w_, w_t_, master_, dy_;  // x_[l]: input of layer l
  gpu::Buffer grads_{TOTAL_SIZE * sizeof(half)};         // last layer first: the order of backward
  gpu::Buffer y_{size_t(tokens_) * HIDDEN * sizeof(half)};
  gpu::Buffer dx_{size_t(tokens_) * HIDDEN * sizeof(half)};
  gpu::Buffer target_{size_t(tokens_) * HIDDEN * sizeof(half)};
  std::vector<cudaEvent_t> events_;
};

}  // namespace

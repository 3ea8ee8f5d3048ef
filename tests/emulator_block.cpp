// The kernels of 31 against the same in double, without hazards.
#include "tests/emulator_support.h"

#include "steps/31_cuda_graph/decode_kernels.h"

namespace block {
uint64_t nanoseconds() { return 0; }
}  // namespace block

namespace {

using namespace block;

std::vector<half> random_halves(size_t count, float scale = 1) {
  std::vector<half> values(count);
  uint32_t state = 7;
  for (half& v : values) {
    state = state * 1664525 + 1013904223;
    v = __float2half(scale * (float(state >> 16) / 32768 - 1));
  }
  return values;
}

struct Halves {
  gpu::Buffer memory;
  explicit Halves(const std::vector<half>& values) : memory(values.size() * 2, "halves") {
    gpu::copy_to_device(memory.get(), values.data(), memory.bytes());
  }
  half* get() const { return memory.get<half>(); }
  std::vector<half> read() const {
    std::vector<half> values(memory.bytes() / 2);
    gpu::copy_to_host(values.data(), memory.get(), memory.bytes());
    return values;
  }
};

/// Within two units in the last place of FP16.
void check_near(const std::vector<half>& got, const std::vector<double>& want) {
  REQUIRE(got.size() == want.size());
  int wrong = 0;
  for (size_t i = 0; i < got.size(); ++i)
    wrong += !(std::fabs(double(float(got[i])) - want[i]) <=
               std::max(0.001, std::fabs(want[i])) * (2.0 / 1024));
  CHECK(wrong == 0);
}

gpu::LaunchConfig tiles(int M, int N, int z, int tile, size_t smem) {
  return shape(dim3(unsigned(N / tile), unsigned(M / tile), unsigned(z)), dim3(NUM_THREADS), smem);
}

}  // namespace

TEST_CASE("31: a product in parts of K, which add sums up") {
  Gemm g(64, 96, 1280);  // more k tiles than stages, in one part and in two
  for (int parts : {1, 2}) {
    CAPTURE(parts);
    const int part = g.K / parts;
    Halves sums(std::vector<half>(size_t(parts) * g.M * g.N));
    Halves zero(std::vector<half>(size_t(g.M) * g.N, __float2half(0)));
    const Matrices a = {g.A.get<half>(), g.K, part}, b = {g.B.get<half>(), g.N, part * g.N};
    const Matrices c = {sums.get(), g.N, g.M * g.N};
    CHECK(run(tiles(g.M, g.N, parts, 32, Ring<32>::bytes(part)), small_gemm<Right::weights, 32>, a,
              b, c, part, nullptr).all() == "");
    const int eights = g.M * g.N / 8;
    CHECK(run(shape(dim3(ceil_div(eights, ELEMENT_THREADS)), dim3(ELEMENT_THREADS)), add,
              zero.get(), sums.get(), parts, g.C.get<half>(), eights, nullptr).all() == "");
    CHECK(g.right());
  }
}

TEST_CASE("31: values and keys of the heads of two sequences") {
  Gemm g(64, 64, 128);  // A is [64][128]; of B, columns are used as values, rows as keys
  const int heads = HEADS, z = 2 * heads;
  const Matrices a = {g.A.get<half>(), g.K}, b = {g.B.get<half>(), g.N};  // all heads the same
  for (bool keys : {false, true}) {
    CAPTURE(keys);
    std::vector<half> B(size_t(g.K) * g.N), turned(B.size());
    gpu::copy_to_host(B.data(), g.B.get(), g.B.bytes());
    for (int k = 0; k < g.K; ++k)
      for (int n = 0; n < g.N; ++n) turned[size_t(n) * g.K + k] = B[size_t(k) * g.N + n];
    Halves as_keys(turned), out(std::vector<half>(size_t(z) * g.M * g.N));
    const Matrices c = {out.get(), g.N, g.M * g.N, int64_t(heads) * g.M * g.N};
    const auto config = tiles(g.M, g.N, z, 64, Ring<64>::bytes(g.K));
    if (keys)
      CHECK(run(config, small_gemm<Right::keys, 64>, a, Matrices{as_keys.get(), g.K}, c, g.K,
                nullptr).all() == "");
    else
      CHECK(run(config, small_gemm<Right::values, 64>, a, b, c, g.K, nullptr).all() == "");
    const std::vector<half> all = out.read();
    for (int i : {0, heads - 1, heads, z - 1}) {
      gpu::copy_to_device(g.C.get(), &all[size_t(i) * g.M * g.N], g.C.bytes());
      CHECK(g.right());
    }
  }
}

TEST_CASE("31: layer norm, softmax, GELU") {
  const int rows = 6;  // no multiple of the rows of a CTA
  const std::vector<half> x = random_halves(size_t(rows) * D, 3), gain = random_halves(D);
  Halves in(x), weights(gain), out{std::vector<half>(x.size())};
  CHECK(run(shape(dim3(ceil_div(rows, ROWS)), dim3(32 * ROWS)), layer_norm, in.get(),
            weights.get(), weights.get(), out.get(), rows, nullptr).all() == "");
  std::vector<double> want(x.size());
  for (int row = 0; row < rows; ++row) {
    double mean = 0, variance = 0;
    const half* v = &x[size_t(row) * D];
    for (int i = 0; i < D; ++i) mean += float(v[i]) / double(D);
    for (int i = 0; i < D; ++i) variance += std::pow(float(v[i]) - mean, 2) / D;
    for (int i = 0; i < D; ++i)
      want[size_t(row) * D + i] =
          (float(v[i]) - mean) / std::sqrt(variance + 1e-5) * float(gain[i]) + float(gain[i]);
  }
  check_near(out.read(), want);

  const std::vector<half> s = random_halves(size_t(T) * HEADS * T, 20);
  want.assign(s.size(), 0);
  for (size_t row = 0; row < s.size(); row += T) {
    double sum = 0;
    for (int i = 0; i < T; ++i) sum += want[row + i] = std::exp(float(s[row + i]) / 8.0);
    for (int i = 0; i < T; ++i) want[row + i] /= sum;
  }
  for (int warp_rows : {1, 4}) {
    CAPTURE(warp_rows);
    Halves scores(s);
    CHECK(run(shape(dim3(T * HEADS / (ROWS * warp_rows)), dim3(32 * ROWS)),
              warp_rows == 1 ? softmax<1> : softmax<4>, scores.get(), nullptr).all() == "");
    check_near(scores.read(), want);
  }

  Halves hidden(x);
  const int eights = int(x.size() / 8);
  CHECK(run(shape(dim3(ceil_div(eights, ELEMENT_THREADS)), dim3(ELEMENT_THREADS)), gelu,
            hidden.get(), eights, nullptr).all() == "");
  want.assign(x.size(), 0);
  for (size_t i = 0; i < x.size(); ++i)
    want[i] = 0.5 * float(x[i]) * (1 + std::erf(float(x[i]) / std::sqrt(2.0)));
  check_near(hidden.read(), want);
}

TEST_CASE("31: a matrix and a vector") {
  const auto check = [](auto* kernel, int K) {
    CAPTURE(K);
    const int N = 3 * ROWS;
    const std::vector<half> W = random_halves(size_t(N) * K), x = random_halves(size_t(K), 2);
    Halves weights(W), vector(x), y{std::vector<half>(size_t(N))};
    CHECK(run(shape(dim3(N / ROWS), dim3(32 * ROWS)), kernel, weights.get(), vector.get(), y.get(),
              nullptr).all() == "");
    std::vector<double> want(size_t(N), 0);
    for (int n = 0; n < N; ++n)
      for (int k = 0; k < K; ++k)
        want[size_t(n)] += double(float(W[size_t(n) * K + k])) * double(float(x[size_t(k)]));
    check_near(y.read(), want);
  };
  check(matrix_vector<D>, D);
  check(matrix_vector<MLP>, MLP);
}

TEST_CASE("31: one token's attention, with the tokens before it and none after") {
  const std::vector<half> qkv = random_halves(3 * D), before = random_halves(size_t(T) * ENTRY, 2);
  for (int at : {0, 50, T - 1}) {
    CAPTURE(at);
    std::vector<half> known = before;
    for (int i = at * ENTRY; i < T * ENTRY; ++i) known[size_t(i)] = __float2half(8);  // not its own
    Halves in(qkv), cache(known), scores{std::vector<half>(HEADS * T)}, out{std::vector<half>(D)};
    gpu::Buffer position(sizeof(int), "position");
    gpu::copy_to_device(position.get(), &at, sizeof(int));
    const int* where = position.get<const int>();
    CHECK(run(shape(dim3(1), dim3(ENTRY / 8)), append, in.get(), cache.get(), where, nullptr)
              .all() == "");
    CHECK(run(shape(dim3(HEADS * T / SCORES), dim3(32 * ROWS)), query_keys, in.get(), cache.get(),
              where, scores.get(), nullptr).all() == "");
    CHECK(run(shape(dim3(HEADS / ROWS), dim3(32 * ROWS)), softmax<1>, scores.get(), nullptr)
              .all() == "");
    CHECK(run(shape(dim3(HEADS), dim3(32 * VALUE_WARPS)), weigh_values, scores.get(), cache.get(),
              out.get(), nullptr).all() == "");

    std::copy(qkv.begin() + D, qkv.end(), known.begin() + at * ENTRY);
    std::vector<double> want;
    for (int i = 0; i < D; ++i) {
      const int head = i / HEAD;
      double sum = 0, total = 0;
      for (int token = 0; token <= at; ++token) {
        double score = 0;
        for (int d = head * HEAD; d < (head + 1) * HEAD; ++d)
          score += double(float(qkv[size_t(d)])) * float(known[size_t(token * ENTRY + d)]);
        const double weight = std::exp(score / std::sqrt(double(HEAD)));
        sum += weight * float(known[size_t(token * ENTRY + D + i)]), total += weight;
      }
      want.push_back(sum / total);
    }
    const std::vector<half> got = out.read();  // scores and weights are rounded on the way
    int wrong = 0;
    for (size_t i = 0; i < want.size(); ++i)
      wrong += !(std::fabs(double(float(got[i])) - want[i]) <= 4.0 / 1024);
    CHECK(wrong == 0);
  }
}

// Problems beyond the default: names, storage, bounds, and steps that mistake them.
#include <cmath>
#include <set>

#include "common/harness/check.h"
#include "common/harness/operands.h"
#include "tests/catch.h"
#include "tests/host_step.h"

using namespace harness;

namespace {

Size sized(int64_t M, int64_t N, int64_t K, const std::string& kind) {
  return {M, N, K, parse_kind(kind)};
}

std::string refusal(const std::string& word) {
  try {
    parse_size(word);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}

}  // namespace

TEST_CASE("names of kinds say everything and nothing twice") {
  for (const char* word :
       {"NN", "TN", "NT-bf16", "TT-f16-f32", "NN-bf16-f16", "NN-alpha0.5", "NN-alpha-1.5-beta0.25",
        "NT-bf16-f32-alpha0-beta-1-bias-relu-sharedb-batch3-pada1-padb2-padc3-gap4-off5"})
    CHECK(text(parse_kind(word)) == word);
  CHECK(text(parse_kind("NT-f16")) == "NT");
  CHECK(text(parse_kind("NN-alpha1-beta0-batch1-pada0")) == "NN");
  CHECK(text(parse_size("64/NN")) == "64x64x64");
  CHECK(text(parse_size("4096x512x64/NT-bf16")) == "4096x512x64/NT-bf16");
  CHECK(text(parse_sizes("64/TN,8x16x24")[0]) == "64x64x64/TN");
  for (const char* word : {"64/", "64/N", "64/nt", "64/NX", "64/NT-f64", "64/NT-f32",
                           "64/NT-batch0", "64/NT-batch", "64/NT-alpha", "64/NT-alphax",
                           "64/NT-alpha1e999", "64/NT-beta-", "64/NT--bf16", "64/NT-pada-1",
                           "64/NT-fast", "64/NT/NT"}) {
    INFO(word);
    CHECK(refusal(word) != "");
    CHECK(refusal(word).find('\n') == std::string::npos);
  }
  CHECK_FALSE(parse_size("64/TN") == parse_size("64"));
}

TEST_CASE("a kind becomes a problem") {
  const Size size = sized(5, 7, 3, "TN-bf16-f32-alpha2-batch4-pada1-padb2-padc3-gap6");
  const Problem p = make_problem(size);
  CHECK(p.lda == 6);  // columns of 5
  CHECK(p.ldb == 9);
  CHECK(p.ldc == 10);
  CHECK(p.layout_a == Layout::col_major);
  CHECK(p.layout_b == Layout::row_major);
  CHECK(p.stride_a == 2 * 6 + 5 + 6);  // 3 columns; the last has no gap behind it, then 6 elements
  CHECK(p.stride_c == 4 * 10 + 7 + 6);
  CHECK(make_problem(sized(5, 7, 3, "NN-batch4-sharedb")).stride_b == 0);
  CHECK(needs_default(make_problem(sized(5, 7, 3, "NN"))) == "");
  for (const char* kind : {"NT", "TN", "NN-bf16", "NN-f16-f32", "NN-alpha2", "NN-beta1",
                           "NN-batch2", "NN-pada1", "NN-padb1", "NN-padc1"})
    CHECK(needs_default(make_problem(sized(5, 7, 3, kind))) != "");
}

TEST_CASE("which positions are elements") {
  const Problem p = make_problem(sized(3, 2, 1, "NN-batch2-padc2-gap1"));
  const Storage c = storage_c(p);  // rows of 2, 4 apart, matrices 3 * 4 - 2 + 1 apart
  std::string seen;
  for (int64_t i = 0; i < c.count(); ++i) seen += c.holds(i) ? 'x' : '.';
  CHECK(seen == "xx..xx..xx.xx..xx..xx");
  CHECK(c.has_gaps());
  CHECK_FALSE(storage_c(make_problem(sized(3, 2, 1, "NN-batch2"))).has_gaps());
  CHECK(storage_c(make_problem(sized(3, 2, 1, "NN-batch2-gap1"))).has_gaps());
}

TEST_CASE("sums of every layout and type agree with the default's") {
  const int64_t M = 5, N = 4, K = 7;
  for (const char* kind : {"NN", "NT", "TN", "TT", "NT-bf16", "TN-f16-f32-pada3-padb2",
                           "TT-bf16-batch3-gap5-pada1-padb1"}) {
    INFO(kind);
    const Problem p = make_problem(sized(M, N, K, kind));
    const Storage a = storage_a(p), b = storage_b(p);
    std::vector<uint16_t> A(size_t(a.count())), B(size_t(b.count()));
    Problem host = p;
    host.A = A.data(), host.B = B.data();
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      for (int64_t m = 0; m < M; ++m)
        for (int64_t k = 0; k < K; ++k)
          store(a.type, A.data(), a.index(batch, m, k), double(m + 10 * k + batch));
      for (int64_t k = 0; k < K; ++k)
        for (int64_t n = 0; n < N; ++n)
          store(b.type, B.data(), b.index(batch, k, n), double(k - 2 * n));
    }
    for (int64_t batch = 0; batch < p.batch; ++batch) {
      const std::vector<double> sums = sums_on_host(host, batch);
      for (int64_t m = 0; m < M; ++m)
        for (int64_t n = 0; n < N; ++n) {
          double want = 0;
          for (int64_t k = 0; k < K; ++k) want += double(m + 10 * k + batch) * double(k - 2 * n);
          CHECK(sums[size_t(m * N + n)] == want);
        }
    }
  }
}

TEST_CASE("what alpha, beta and the bias make of a sum") {
  Problem p = make_problem(sized(2, 3, 4, "NN-alpha0.5-beta-2"));
  const Data data(Inputs::integers, 7);
  const double old = old_value(7, 1 * 3 + 2);
  CHECK(wanted(p, data, 10, 0, 1, 2).value == 5 - 2 * old);
  CHECK(wanted(p, data, 10, 0, 1, 2).terms == 5 + std::fabs(2 * old));
  p.alpha = 0;
  CHECK(wanted(p, data, NAN, 0, 1, 2).value == -2 * old);
  p.beta = 0;
  CHECK(wanted(p, data, NAN, 0, 1, 2).value == 0);
  p.bias = &p;
  const double bias = old_value(8, 2);
  CHECK(wanted(p, data, NAN, 0, 1, 2).value == bias);
  p.activation = Activation::relu;
  p.alpha = 1;
  CHECK(wanted(p, data, 3 - bias, 0, 1, 2).value == 3);
  CHECK(wanted(p, data, -3 - bias, 0, 1, 2).value == 0);
  CHECK(std::isnan(wanted(p, data, NAN, 0, 1, 2).value));
  p.activation = Activation::gelu;  // of the tables: GELU(1) = 0.8412 by the tanh form
  CHECK(wanted(p, data, 1 - bias, 0, 1, 2).value == Approx(0.841192));
  CHECK(wanted(p, data, -1 - bias, 0, 1, 2).value == Approx(-0.158808));
  CHECK(wanted(p, data, 30 - bias, 0, 1, 2).value == 30);
}

TEST_CASE("the bound follows K, alpha, beta and the type of C") {
  const auto bound_of = [](const std::string& kind, int64_t K, double value, double terms) {
    return bound(make_problem(sized(2, 2, K, kind)), Inputs::normal, {value, terms});
  };
  CHECK(bound_of("NN", 64, 3, 3) == bound(Inputs::normal, 64, 3));
  // An ulp of 1: 2^-10, 2^-7, 2^-23. Half of it, and what accumulating may lose.
  const double lost = accumulation_bound(64);
  CHECK(bound_of("NN", 64, 1, 1) == Approx(lost + 1.0 / 2048).epsilon(1e-3));
  CHECK(bound_of("NN-bf16", 64, 1, 1) == Approx(lost + 1.0 / 256).epsilon(1e-3));
  CHECK(bound_of("NN-f16-f32", 64, 1, 1) == Approx(lost).epsilon(1e-2));
  CHECK(bound_of("NN-f16-f32-alpha-2", 64, 1, 1) == Approx(2 * lost).epsilon(1e-2));
  CHECK(bound_of("NN-f16-f32-alpha0-beta2", 64, 8, 8) < 3e-6);
  CHECK(bound_of("NN-f16-f32-beta1", 64, 0, 1 << 20) > 0.1);  // cancellation
  const auto exact = [](const std::string& kind) {
    return bound(make_problem(sized(2, 2, 64, kind)), Inputs::integers, {1, 1}) == 0;
  };
  CHECK(exact("NN"));
  CHECK(exact("TT-bf16-f32-alpha-1.5-beta0.25-bias"));
  CHECK_FALSE(exact("NN-alpha0.7"));
  CHECK_FALSE(exact("NN-beta0.3"));
  CHECK(exact("NN-bias-relu"));
  CHECK_FALSE(exact("NN-gelu"));
  CHECK(bound_of("NN-f16-f32-gelu", 64, 0, 0) == Approx(1.13 * lost).epsilon(1e-2));
  // Rounded once, to the type of C: 257 lies between the bf16 numbers 256 and 258.
  const Problem p = make_problem(sized(2, 2, 64, "NN-bf16"));
  CHECK(is_right(p, Inputs::integers, 256, {257, 257}));
  CHECK_FALSE(is_right(p, Inputs::integers, 257, {257, 257}));
  CHECK_FALSE(is_right(p, Inputs::integers, 258, {257, 257}));
  // A NaN or an infinity is right only where one was planted and must come out.
  CHECK_FALSE(is_right(p, Inputs::normal, NAN, {NAN, NAN}));
  CHECK_FALSE(is_right(p, Inputs::normal, INFINITY, {INFINITY, INFINITY}));
  const Data planted(Inputs::normal, 0, true);
  CHECK(is_right(p, planted, NAN, {NAN, NAN}));
  CHECK(is_right(p, planted, -INFINITY, {-INFINITY, INFINITY}));
  CHECK_FALSE(is_right(p, planted, INFINITY, {-INFINITY, INFINITY}));
  CHECK_FALSE(is_right(p, planted, 3, {NAN, NAN}));
  CHECK_FALSE(is_right(p, planted, NAN, {3, 3}));
}

TEST_CASE("bfloat16 rounds once, to nearest, ties to even") {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double x = bf16_to_double(uint16_t(bits));
    if (x != x || (std::fabs(x) < 1.2e-38 && x != 0)) continue;
    REQUIRE(double_to_bf16(x) == bits);
    if ((bits & 0x7fff) >= 0x7f7f || (bits & 0x7fff) < 0x80) continue;
    const double next = bf16_to_double(uint16_t(bits + 1)), middle = (x + next) / 2;
    REQUIRE(double_to_bf16(middle) == (bits % 2 ? bits + 1 : bits));
    REQUIRE(double_to_bf16(std::nextafter(middle, next)) == bits + 1);
    REQUIRE(double_to_bf16(std::nextafter(middle, x)) == bits);
  }
  CHECK(bf16_to_double(double_to_bf16(1e39)) == INFINITY);
  CHECK(bf16_to_double(double_to_bf16(-3.4e38)) == -INFINITY);
  CHECK(std::isnan(bf16_to_double(double_to_bf16(NAN))));
  CHECK(rounded(Type::f32, 1 + 1e-9) == 1);
}

TEST_CASE("who takes kinds, and what is drawn for them") {
  const Supports only_default = [](const Problem& p) { return needs_default(p); };
  CHECK_FALSE(takes_kinds(only_default));
  const Step any = host_kinds_step(KindFault::none);
  CHECK(takes_kinds(any.supports));
  // One that takes bf16 in whole tiles, and batches: nothing else is drawn.
  const Supports some = [](const Problem& p) -> std::string {
    Problem q = p;
    if (p.type_ab != Type::bf16 || p.type_c != Type::bf16) return "bf16 only";
    q.type_ab = q.type_c = Type::f16, q.batch = 1;
    return needs_multiples(q, 64, 32, 16);
  };
  CHECK(takes_kinds(some));
  for (const auto& problems : {kinds_suite(some, 1e12), random_problems(some, 300, 1, 1e12)}) {
    CHECK(problems.size() >= 3);
    bool batches = false;
    for (const Size& s : problems) {
      CHECK(some(make_problem(s)) == "");
      batches |= s.kind.batch > 1;
    }
    CHECK(batches);
  }
  CHECK(random_problems(some, 300, 1, 1e12).size() == 300);
  CHECK(random_problems(any.supports, 50, 3, 1e7) == random_problems(any.supports, 50, 3, 1e7));
  CHECK_FALSE(random_problems(any.supports, 50, 3, 1e7) ==
              random_problems(any.supports, 50, 4, 1e7));

  // Whatever the budget, every layout, type and word comes.
  for (const auto& problems :
       {kinds_suite(any.supports, 1e12), kinds_suite(any.supports, 1 << 28),
        random_problems(any.supports, 500, 1, 1 << 25)}) {
    std::set<std::string> words;
    for (const Size& s : problems) {
      const Kind& k = s.kind;
      Kind shape;
      shape.layout_a = k.layout_a, shape.layout_b = k.layout_b;
      shape.type_ab = k.type_ab, shape.type_c = k.type_c;
      words.insert(text(shape));
      for (auto [word, there] :
           {std::pair("alpha", k.alpha != 1), std::pair("alpha0", k.alpha == 0),
            std::pair("beta", k.beta != 0), std::pair("bias", k.bias),
            std::pair("batch", k.batch > 1), std::pair("sharedb", k.shared_b),
            std::pair("pada", k.pad_a > 0), std::pair("padb", k.pad_b > 0),
            std::pair("padc", k.pad_c > 0), std::pair("gap", k.gap > 0),
            std::pair("off", k.off > 0),
            std::pair("relu", k.activation == Activation::relu),
            std::pair("gelu", k.activation == Activation::gelu)})
        if (there) words.insert(word);
    }
    CHECK(words.size() == 24 + 13);
  }
}

TEST_CASE("a step that is right passes at every kind") {
  const Step step = host_kinds_step(KindFault::none);
  std::vector<Size> all = kinds_suite(step.supports, 3e8);
  for (const Size& size : random_problems(step.supports, 100, 5, 1e6)) all.push_back(size);
  CHECK(all.size() > 120);
  for (const Size& size : all) {
    INFO(text(size));
    CHECK(check_step(step, size, 1) == "");
  }
}

TEST_CASE("a step that mistakes the problem fails") {
  const auto check = [](KindFault fault, const std::string& kind) {
    return check_step(host_kinds_step(fault), sized(13, 9, 11, kind), 1);
  };
  using F = KindFault;
  const struct {
    F fault;
    const char* kind;
    const char* words;
  } cases[] = {
      {F::reads_old_c, "NN", "nan"},
      {F::reads_old_c, "NT-bf16-f32-alpha2", "nan"},
      {F::ignores_alpha, "NN-alpha0.5", "wrong"},
      {F::ignores_beta, "NN-beta1", "wrong"},
      {F::ignores_beta, "NN-alpha0-beta2", "wrong"},
      {F::ignores_ldc, "NN-padc1", "wrong"},
      {F::ignores_lda, "TN-pada1", "nan"},
      {F::swaps_layouts, "TN", "wrong"},
      {F::layout_of_b_ignored, "NT", "wrong"},
      {F::wrong_type_of_c, "NN-f16-f32", "wrong"},
      {F::wrong_type_of_c, "NN-f16-bf16", "wrong"},
      {F::f16_for_bf16, "NN-bf16", "wrong"},
      {F::multiplies_by_zero, "NN-alpha0", "nan"},
      {F::multiplies_by_zero, "TN-alpha0-beta1", "nan"},
      {F::writes_gap, "NN-padc1", "into the gap before the next row"},
      {F::writes_gap, "NN-f16-f32-padc3-beta1-batch2", "behind row"},
      {F::one_batch, "NN-batch2", "of batch 1"},
      {F::batch_stride_of_one_matrix, "NN-batch2-gap1", "wrong"},
      {F::batch_stride_of_one_matrix, "NN-batch2-padc2", "wrong"},
      {F::ignores_shared_b, "NN-batch2-sharedb", "wrong"},
      {F::rounds_twice, "NN-alpha-1.5-beta0.5", "wrong"},
      {F::spreads_nan, "NN-bf16", "with a NaN or an infinity"},
      {F::ignores_bias, "NN-bias", "wrong"},
      {F::ignores_activation, "NN-relu", "wrong"},
      {F::ignores_activation, "NN-bf16-gelu", "wrong"},
      {F::activates_before_bias, "NN-bias-relu", "wrong"},
      {F::activates_before_bias, "NT-bias-gelu", "wrong"},
  };
  for (const auto& c : cases) {
    const std::string wrong = check(c.fault, c.kind);
    INFO(int(c.fault) << " " << c.kind << ": " << wrong);
    CHECK(wrong.find(c.words) != std::string::npos);
  }
  // And each is found by the suite and by a hundred random problems, without being looked for.
  for (int fault = 1; fault <= int(F::activates_before_bias); ++fault) {
    const Step step = host_kinds_step(F(fault));
    for (const auto& problems : {kinds_suite(step.supports, 3e8),
                                 random_problems(step.supports, 100, 2, 1e5)}) {
      const bool found = std::any_of(problems.begin(), problems.end(), [&](const Size& size) {
        return double(size.M) * size.N * size.K < 1e6 && check_step(step, size, 1) != "";
      });
      INFO("fault " << fault);
      CHECK(found);
    }
  }
}

TEST_CASE("where in a gap something was written") {
  Operands operands(sized(13, 9, 11, "NT-bf16-batch2-padc3-gap4"), Inputs::integers, 5, 64 << 10);
  host_kinds_step(KindFault::none).prepare(operands.problem)(gpu::Stream{});
  CHECK(operands.verdict().right());
  const auto after = [&](int64_t place) {
    operands.C.data()[place] = 0;
    const std::string guard = operands.verdict().guard;
    operands.C.data()[place] = 0xffff;
    return guard;
  };
  CHECK(after(12 + 9) ==
        "something was written behind row 1 of C, 1 elements into the gap before the next row");
  CHECK(after(12 * 12 + 9) == "something was written between the matrices of the batch of C");
  CHECK(after(12 * 12 + 9 + 3) == "something was written between the matrices of the batch of C");
  CHECK(operands.verdict().right());
}

TEST_CASE("a planted NaN or infinity reaches its row or column, and only that") {
  for (uint64_t choice = 0; choice < 12; ++choice) {
    const Size size = sized(6, 5, 7, choice % 2 ? "TT-bf16-batch2" : "NN-pada3");
    Operands operands(size, Inputs::integers, 1, 0);
    operands.plant(choice);
    const Step step = host_kinds_step(KindFault::none);
    step.prepare(operands.problem)(gpu::Stream{});
    CHECK(explain(operands.verdict(), 6, 5, size.kind.batch) == "");
    const Storage& c = operands.C.storage();
    int64_t special = 0;
    for (int64_t b = 0; b < c.batch; ++b)
      for (int64_t m = 0; m < 6; ++m)
        for (int64_t n = 0; n < 5; ++n) {
          const double x = load(c.type, operands.C.raw(), c.index(b, m, n));
          special += x - x != 0;
        }
    CHECK(special == (choice % 3 ? 5 : 6));
    operands.planted = false;  // without it, a NaN is never right
    if (choice % 2 == 0) CHECK_FALSE(operands.verdict().right());
  }
}

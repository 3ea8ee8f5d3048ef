// On a GPU: the reference on the device against the one on the host, the checker on device
// memory, and cuBLAS (as it is called here) against the host.
#include "tests/catch.h"

#include <cstdio>

#include "common/harness/baselines.h"
#include "common/harness/check.h"
#include "common/harness/device.h"
#include "common/harness/operands.h"
#include "common/harness/reference.h"

using namespace harness;

namespace {

// M, N, K pairwise different; primes, 1, tiles of 64 and just off them.
const Size kSizes[] = {{1, 1, 1},    {1, 7, 3},    {5, 1, 2},      {2, 3, 1},    {63, 65, 17},
                       {64, 128, 16}, {65, 64, 15}, {127, 61, 131}, {193, 257, 1031}};

/// The host's answer, every element rounded once, put into C.
void answer_from_host(Operands& operands, const Size& s) {
  const auto a = operands.A.to_host(), b = operands.B.to_host();
  std::vector<uint16_t> C = operands.C.to_host();
  Problem host = operands.problem;
  host.A = a.data(), host.B = b.data();
  const Storage c = storage_c(host);
  const Data data(operands.inputs, 2 * operands.seed, operands.planted);
  for (int64_t batch = 0; batch < host.batch; ++batch) {
    const std::vector<double> sums = sums_on_host(host, batch);
    for (int64_t m = 0; m < s.M; ++m)
      for (int64_t n = 0; n < s.N; ++n)
        store(c.type, C.data(), c.index(batch, m, n),
              wanted(host, data, sums[size_t(m * s.N + n)], batch, m, n).value);
  }
  gpu::copy_to_device(operands.C.data(), C.data(), C.size() * 2);
}

void set(Operands& operands, int64_t index, uint16_t value) {
  gpu::copy_to_device(operands.C.data() + index, &value, 2);
}

}  // namespace

TEST_CASE("both references agree, to the last bit of FP16") {
  for (const Size& s : kSizes)
    for (Inputs inputs : {Inputs::integers, Inputs::normal}) {
      INFO(text(s) << " " << name(inputs));
      Operands operands(s, inputs, 5, 64 << 10);
      answer_from_host(operands, s);
      // The rule for integers is equality, and FP64 sums deserve it for any data.
      CHECK(compare_on_device(operands.problem, Inputs::integers, Sum::fp64).right());
      CHECK(compare_on_device(operands.problem, inputs, Sum::fp64).right());
      if (inputs == Inputs::integers)
        CHECK(compare_on_device(operands.problem, inputs, Sum::fp32).right());
      CHECK(operands.verdict().right());
    }
}

TEST_CASE("one wrong element is found on the device, wherever it is") {
  for (const Size& s : kSizes)
    for (Sum sum : {Sum::fp64, Sum::fp32})
      for (uint16_t bad : {uint16_t(0x7fff), uint16_t(0x7c00), uint16_t(0x7bff)})
        for (int64_t where : {int64_t{0}, s.M * s.N / 2, s.M * s.N - 1}) {
          INFO(text(s) << " element " << where);
          Operands operands(s, Inputs::integers, 5, 0);
          answer_from_host(operands, s);
          set(operands, where, bad);
          const Verdict verdict = compare_on_device(operands.problem, Inputs::integers, sum);
          CHECK(verdict.wrong == 1);
          CHECK(verdict.row * s.N + verdict.col == where);
          CHECK_FALSE(verdict.got == verdict.want);
        }
}

TEST_CASE("NaN everywhere, a missing row and a write outside are found on the device") {
  const Size s = {127, 61, 131};
  Operands operands(s, Inputs::normal, 5, 64 << 10);
  CHECK(operands.verdict().wrong == s.M * s.N);
  answer_from_host(operands, s);
  CHECK(operands.verdict().right());
  gpu::fill(operands.C.data() + (s.M - 1) * s.N, 0xff, size_t(s.N) * 2);
  const Verdict missing = compare_on_device(operands.problem, Inputs::normal, Sum::fp64);
  CHECK(missing.wrong == s.N);
  CHECK(missing.row == s.M - 1);
  answer_from_host(operands, s);
  set(operands, s.M * s.N, 0);
  CHECK(operands.verdict().guard == "something was written 1 elements past the end of C");
  set(operands, s.M * s.N, 0xffff);
  set(operands, -1, 0);
  CHECK(operands.verdict().guard == "something was written 1 elements before the start of C");
}

TEST_CASE("both references agree on every kind of problem") {
  const Supports all = [](const Problem&) { return std::string(); };
  std::vector<Size> sizes = kinds_suite(all, 1e12);
  for (const Size& s : random_problems(all, 200, 3, 1e8)) sizes.push_back(s);
  for (const Size& s : sizes)
    for (Inputs inputs : {Inputs::integers, Inputs::normal}) {
      INFO(text(s) << " " << name(inputs));
      Operands operands(s, inputs, 5, 64 << 10);
      if (inputs == Inputs::integers && s.kind.alpha != 0) operands.plant(uint64_t(s.M + s.K));
      answer_from_host(operands, s);
      const double everything = 1e18;
      CHECK(explain(operands.verdict(0), s.M, s.N, s.kind.batch) == "");
      CHECK(operands.verdict(everything).right());
      // One element less than right, the last: both see it, and say the same.
      const int64_t last = operands.C.storage().index(s.kind.batch - 1, s.M - 1, s.N - 1);
      const uint32_t big = s.kind.type_c == Type::f32 ? 0x4f000000u : 0x4700u;
      gpu::copy_to_device(static_cast<char*>(operands.C.raw()) + last * bytes_of(s.kind.type_c),
                          &big, size_t(bytes_of(s.kind.type_c)));
      const Verdict device = operands.verdict(0), host = operands.verdict(everything);
      CHECK(explain(device, s.M, s.N) == explain(host, s.M, s.N));
    }
}

TEST_CASE("a write into a gap is found on the device") {
  const Size s = {13, 9, 11, parse_kind("NT-bf16-batch2-padc3-gap4")};
  Operands operands(s, Inputs::integers, 5, 64 << 10);
  answer_from_host(operands, s);
  CHECK(operands.verdict().right());
  set(operands, 12 + 9, 0);
  CHECK(operands.verdict().guard ==
        "something was written behind row 1 of C, 1 elements into the gap before the next row");
  set(operands, 12 + 9, 0xffff);
  set(operands, 12 * 12 + 9 + 2, 0);
  CHECK(operands.verdict().guard == "something was written between the matrices of the batch of C");
}

TEST_CASE("cuBLAS, as it is called here, agrees with the host") {
  std::vector<Size> sizes = {{72, 136, 264}, {8, 24, 16}, {127, 61, 131}};
  for (const char* kind : {"NT", "TN", "TT", "NT-bf16", "TN-bf16-f32", "NN-f16-f32", "NN-batch3",
                           "NT-bf16-batch2-gap8", "TT-pada8-padb16-padc8", "TN-batch3-sharedb"})
    sizes.push_back({72, 136, 264, parse_kind(kind)});
  for (const Size& s : sizes) {
    INFO(text(s));
    Operands operands(s, Inputs::integers, 5, 0);
    const Nvml nvml(gpu_info().pci);
    Stopwatch stopwatch(1, nvml);
    const Baselines baselines(stopwatch.stream(), {operands.problem});
    gpu::synchronize();
    baselines.default_gemm().launch(0, stopwatch.stream());
    CHECK(operands.verdict().right());
    operands.C.poison();
    gpu::synchronize();
    baselines.best_gemm(stopwatch, Regime::burst).launch(0, stopwatch.stream());
    CHECK(operands.verdict().right());
  }
}

TEST_CASE("offsets past 2^31 elements") {
  const Size s = {65537, 32771, 3};  // C has 2,147,713,027 elements
  if (free_memory() < 1.1 * Operands::bytes(s, 0)) {
    printf("skipped, needs %s of GPU memory: offsets past 2^31\n",
           bytes_text(Operands::bytes(s, 0)).c_str());
    return;
  }
  Operands operands(s, Inputs::integers, 5, 0);
  const Nvml nvml(gpu_info().pci);
  Stopwatch stopwatch(1, nvml);
  const Baselines baselines(stopwatch.stream(), {operands.problem});
  gpu::synchronize();
  baselines.default_gemm().launch(0, stopwatch.stream());
  CHECK(operands.verdict().right());
  set(operands, s.M * s.N - 1, 0x7fff);
  const Verdict verdict = operands.verdict();
  CHECK(verdict.wrong == 1);
  CHECK(verdict.row == s.M - 1);
  CHECK(verdict.col == s.N - 1);
}

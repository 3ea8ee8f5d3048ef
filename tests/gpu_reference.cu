// On a GPU: the reference on the device against the one on the host, the checker on device
// memory, and cuBLAS (as it is called here) against the host.
#include "tests/catch.h"

#include <cstdio>

#include "common/harness/baselines.h"
#include "common/harness/device.h"
#include "common/harness/operands.h"
#include "common/harness/reference.h"

using namespace harness;

namespace {

// M, N, K pairwise different; primes, 1, tiles of 64 and just off them.
const Size kSizes[] = {{1, 1, 1},    {1, 7, 3},    {5, 1, 2},      {2, 3, 1},    {63, 65, 17},
                       {64, 128, 16}, {65, 64, 15}, {127, 61, 131}, {193, 257, 1031}};

/// The host's sums, each rounded once, put into C.
void answer_from_host(Operands& operands, const Size& s) {
  const std::vector<double> want = reference_on_host(
      operands.A.to_host().data(), operands.B.to_host().data(), s.M, s.N, s.K);
  std::vector<uint16_t> C;
  for (double sum : want) C.push_back(double_to_half(sum));
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

TEST_CASE("cuBLAS, as it is called here, agrees with the host") {
  for (const Size& s : {Size{72, 136, 264}, Size{8, 24, 16}, Size{127, 61, 131}}) {
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

// `check` as a whole, on steps whose kernels run on the host.
#include "common/harness/check.h"
#include "tests/catch.h"
#include "tests/host_step.h"

using namespace harness;

TEST_CASE("a right step passes at every shape of its suite") {
  const Step step = host_step(Fault::none);
  const std::vector<Size> shapes = suite(step.supports, 1 << 22);
  CHECK(shapes.size() >= 6);
  for (const Size& size : shapes) {
    INFO(text(size));
    CHECK(check_step(step, size, 1) == "");
  }
}

TEST_CASE("random shapes keep to the contract, and find a fault") {
  const auto multiples = [](const Problem& p) { return needs_multiples(p, 64, 8, 16); };
  const std::vector<Size> shapes = random_shapes(multiples, 200, 7, 1e8);
  CHECK(shapes.size() == 200);
  for (const Size& s : shapes) {
    CHECK(multiples(make_problem(s.M, s.N, s.K)) == "");
    CHECK(double(s.M) * double(s.N) * double(s.K) <= 1e8);
  }
  CHECK(shapes == random_shapes(multiples, 200, 7, 1e8));
  CHECK_FALSE(shapes == random_shapes(multiples, 200, 8, 1e8));
  int wrong = 0;
  const Step faulty = host_step(Fault::last_row_missing);
  for (const Size& s : random_shapes(faulty.supports, 5, 1, 1e6))
    wrong += check_step(faulty, s, 1) != "";
  CHECK(wrong == 5);
}

TEST_CASE("steps with one fault fail") {
  const auto check = [](Fault fault) { return check_step(host_step(fault), {31, 37, 13}, 1); };
  CHECK(check(Fault::one_element).find("integers: 1 of 1147 elements is wrong, first C[15][18]") ==
        0);
  CHECK(check(Fault::writes_nothing) != "");
  CHECK(check(Fault::last_row_missing).find("C[30][0] = nan") != std::string::npos);
  // These are right the first time.
  CHECK(check(Fault::runs_once).find("the same launch again") != std::string::npos);
  CHECK(check(Fault::remembers_pointers).find("random normal") != std::string::npos);
}

TEST_CASE("an unsupported size is refused in the step's words") {
  const Step step = {"90_host", [](const Problem& p) { return needs_multiples(p, 64, 32, 16); },
                     nullptr};
  CHECK_THROWS_AS(check_step(step, {100, 32, 16}, 1), UsageError);
  try {
    require_support(step, {100, 32, 16});
  } catch (const UsageError& e) {
    CHECK(std::string(e.what()) == "90_host at 100x32x16: needs M, N, K to be multiples of 64, 32, "
                                   "16; the nearest legal size is 128x32x16");
  }
}

TEST_CASE("the suite fits the step's contract") {
  const auto any = suite([](const Problem& p) { return needs_default(p); }, 1e12);
  const auto has = [&](const Size& s) { return std::find(any.begin(), any.end(), s) != any.end(); };
  CHECK(has({1, 1, 1}));
  CHECK(has({127, 61, 131}));
  int different = 0;
  for (const Size& s : any) different += s.M != s.N && s.N != s.K && s.M != s.K;
  CHECK(different >= 8);

  const Supports big = [](const Problem& p) { return needs_multiples(p, 256, 192, 64); };
  const auto shapes = suite(big, 1e12);
  CHECK(shapes.size() >= 6);
  CHECK(shapes.front() == Size{256, 192, 64});  // one tile, one k tile
  bool more_tiles_than_sms = false;
  for (const Size& s : shapes) {
    CHECK(big(make_problem(s.M, s.N, s.K)) == "");
    more_tiles_than_sms |= s.M / 256 * (s.N / 192) > 64;
  }
  CHECK(more_tiles_than_sms);
  CHECK(suite(big, 1).size() == 6);  // the budget never leaves fewer
  CHECK(suite([](const Problem&) { return std::string("never"); }, 1e12).empty());
}

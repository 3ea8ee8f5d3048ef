// Statistics of rounds, and the rule that says which of two is faster.
#include <random>

#include "common/harness/stats.h"
#include "tests/catch.h"

using namespace harness;

TEST_CASE("median") {
  CHECK(median({3}) == 3);
  CHECK(median({5, 1, 3}) == 3);
  CHECK(median({4, 1, 3, 2}) == 2.5);
  CHECK(median({1, 1, 1, 1, 100}) == 1);
}

TEST_CASE("ratios are taken per round, so what drifts cancels") {
  const std::vector<double> clock = {1.0, 1.1, 1.3, 1.2, 1.5};
  std::vector<double> base, ours;
  for (double c : clock) base.push_back(2 * c), ours.push_back(c);
  for (double ratio : speedups(base, ours)) CHECK(ratio == Approx(2));
  CHECK(median(speedups(base, ours)) == Approx(2));
}

TEST_CASE("who is faster") {
  CHECK(decide({1.02, 1.02, 1.02, 1.02, 1.02}, 0.01) == 1);
  CHECK(decide({0.98, 0.98, 0.98, 0.98, 0.98}, 0.01) == -1);
  CHECK(decide({1, 1, 1, 1, 1}, 0.01) == 0);
  CHECK(decide({1.005, 1.005, 1.005, 1.005, 1.005}, 0.01) == 0);  // real, perhaps, but tiny
  CHECK(decide({0.99, 1.02, 1.02, 1.02, 1.02}, 0.01) == 1);       // one odd round is forgiven
  CHECK(decide({0.99, 0.99, 1.02, 1.02, 1.02}, 0.01) == 0);       // two are not
  CHECK(decide({2}, 0.01) == 1);
}

TEST_CASE("with 0.4 % of noise, 2 % is found and nothing is invented") {
  std::mt19937 random(1);
  std::normal_distribution<double> noise(0, 0.004);
  int found = 0, invented = 0;
  for (int trial = 0; trial < 1000; ++trial) {
    std::vector<double> same, slower;
    for (int round = 0; round < 5; ++round) {
      same.push_back(1 + noise(random));
      slower.push_back(1 / 1.02 + noise(random));
    }
    invented += decide(same, kNoiseBurst) != 0;
    found += decide(slower, kNoiseBurst) == -1;
  }
  CHECK(invented <= 10);
  CHECK(found >= 990);
}

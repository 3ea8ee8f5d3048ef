// What sm80 must do on both devices: every tile it has, on problems of all kinds, though it would
// choose the wide ones for large problems alone; and take the tile that it is told.
#pragma once
#include <cstdlib>

#include "common/harness/check.h"
#include "tests/catch.h"

namespace {

struct Variable {  // of the environment, for as long as this lives
  const char* name;
  Variable(const char* n, const std::string& value) : name(n) { setenv(name, value.c_str(), 1); }
  ~Variable() { unsetenv(name); }
};

void check_tiles(int problems, double budget) {
  const Step step = harness::find_step("29_any_shape.sm80");
  const auto candidates = step.candidates(make_problem(64, 64, 64));
  REQUIRE(candidates.size() >= 2);
  for (const std::string& tile : candidates) {
    const Variable forced("LADDER_GEMM_CONFIG", tile);
    INFO(tile);
    for (const harness::Size& size :
         harness::random_problems(step.supports, problems, 3, budget)) {
      INFO(harness::text(size));
      CHECK(harness::check_step(step, size, 3) == "");
    }
  }
  const Variable forced("LADDER_GEMM_CONFIG", "96x96");
  CHECK(step.supports(make_problem(64, 64, 64)) ==
        "LADDER_GEMM_CONFIG=96x96 is no tile that fits here");
}

}  // namespace

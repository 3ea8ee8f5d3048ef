// The one header that a step's kernel.cu includes.
#pragma once
#include <algorithm>
#include <memory>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/problem.h"
#include "common/ptx/ptx.h"

/// What `prepare` returns: enqueues the kernel on a stream. Owns whatever the launch needs, may
/// be called any number of times, and allocates nothing when called.
using Launch = std::function<void(gpu::Stream)>;
using Prepare = Launch (*)(const Problem&);

/// Names of the ways in which a step can run a problem, its own choice first (./ladder tune).
using Candidates = std::vector<std::string> (*)(const Problem&);

/// One rung of the ladder as the harness sees it.
struct Step {
  const char* id;  // name of the step's folder, "06_warp_tile"
  Supports supports;
  Prepare prepare;
  Candidates candidates = nullptr;  // where there is a choice
};

/// Adds a step to the registry (common/harness/registry.cpp, or an export's own main).
bool register_step(const Step& step);

// The last line of every kernel.cu. STEP_ID comes from the build: it is the folder's name.
#define REGISTER_STEP(...) \
  [[maybe_unused]] static const bool step_registered = register_step({STEP_ID, __VA_ARGS__})

/// ceil(a / b) for positive integers.
template <class A, class B>
constexpr __host__ __device__ auto ceil_div(A a, B b) {
  return (a + b - 1) / b;
}

// `check`: is a step right, at given sizes or at a suite of ugly ones?
#pragma once
#include "common/harness/device.h"
#include "common/problem.h"
#include "common/harness/registry.h"

namespace harness {

/// Shapes at which mistakes show, out of what the step supports: 1 and primes where it takes
/// them, M, N, K pairwise different, one tile, fewer K tiles than stages, more tiles than the GPU
/// has room for. Smallest first, together at most `budget` multiply-adds (but at least 6 shapes
/// if there are so many). The step's granules are found by asking `supports`.
std::vector<Size> suite(Supports supports, double budget);

/// `count` shapes that the step supports, drawn with this seed: M, N up to about 650, K up to
/// 1,100, one in four of them a few granules only, none of more than `budget` multiply-adds.
std::vector<Size> random_shapes(Supports supports, int count, uint64_t seed, double budget);

/// Does the step take anything besides the default problem: layouts, types, factors, a batch?
bool takes_kinds(Supports supports);

/// For a step that takes them: every layout and type with every other thing that may be different
/// (alpha, beta, long rows, a batch, pointers off their alignment), of those that `supports` takes,
/// at small sizes. Thinned out evenly if they are more than `budget` multiply-adds.
std::vector<Size> kinds_suite(Supports supports, double budget);

/// As random_shapes, with a kind drawn for each.
std::vector<Size> random_problems(Supports supports, int count, uint64_t seed, double budget);

/// "" if the step is right at this size: integers bit-exact, random normal within the bound, each
/// on pointers of its own, both prepared before either runs; then the first launch again; then, for
/// a step that takes kinds, once more with a NaN or an infinity in one element of A or B, which
/// must reach its row or column of C and nothing else. Else what was wrong first. Throws UsageError
/// if unsupported, gpu::Error if a call fails.
std::string check_step(const Step& step, const Size& size, uint64_t seed);

/// Throws UsageError with the step's own words if it does not take this size.
void require_support(const Step& step, const Size& size);

/// What `work()` returns; a failed call of it also says at which size.
template <class Work>
auto at(const Size& size, const Work& work) {
  try {
    return work();
  } catch (const gpu::Error& e) {
    throw gpu::Error("at " + text(size) + ", " + e.what());
  }
}

int check_command(const Program& program, const Options& options);

}  // namespace harness

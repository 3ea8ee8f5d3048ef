// `mutate`: would `check` notice if one of the step's barriers, waits, arrivals or fences were not
// there? On the emulated device, which can leave them out (common/emulator/mutate.h).
#include "common/harness/check.h"
#if defined(LADDER_EMULATED)
#include "common/emulator/mutate.h"
#endif

namespace harness {

#if defined(LADDER_EMULATED)
namespace {

/// Small shapes that together make a ring go round, give a persistent block several tiles and
/// leave a rest; rounded up to what the step takes.
std::vector<Size> mutation_sizes(Supports supports, const std::string& unit) {
  std::vector<Size> sizes;
  std::vector<Size> all = {{128, 256, 1024}, {640, 520, 136}};
  if (unit == "wgmma") all.push_back({768, 1024, 512});  // a ring that two consumers share, too
  if (unit == "ffma") all = {{128, 136, 72}};            // slow, and nothing of theirs goes round
  for (const Size& wanted : all) {
    for (int64_t unit : {1, 8, 16, 32, 64, 128, 192, 256, 384, 512}) {
      const auto up = [&](int64_t n) { return (n + unit - 1) / unit * unit; };
      const Size size = {up(wanted.M), up(wanted.N), up(wanted.K)};
      if (!supports(make_problem(size)).empty()) continue;
      sizes.push_back(size);
      break;
    }
  }
  return sizes;
}

}  // namespace

int mutate_command(const Program& program, const Options& options) {
  const Step step = find_step(program.step);
  const std::vector<Size> sizes =
      options.sizes.empty() ? mutation_sizes(step.supports, program.unit) : options.sizes;
  for (const Size& size : sizes) require_support(step, size);
  emu::set_seed(unsigned(options.seed));
  return emu::mutate([&] {
    for (const Size& size : sizes)
      if (!check_step(step, size, options.seed).empty()) return 1;
    return 0;
  });
}
#else
int mutate_command(const Program&, const Options&) {
  throw UsageError("mutate needs the emulated device: a GPU can't leave an instruction out");
}
#endif

}  // namespace harness

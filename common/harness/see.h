// `once`, `trace`, `occupancy`: a step to be looked at, not timed. Called by the front door's
// `profile`, `trace` and `occupancy`. GPU builds only; the emulated device refuses (see.cpp).
//   PROGRAM once  --sizes MxNxK [--launches N]
//   PROGRAM occupancy --sizes MxNxK                       JSON: blocks of an SM, by the driver
//   PROGRAM trace --sizes MxNxK --json FILE [--sm N]      program NN_idea.trace alone
#pragma once
#include "common/harness/device.h"

namespace harness {

bool is_see_command(const std::string& word);
/// `arguments` start with the command. Throws UsageError and gpu::Error.
int see_command(const Program& program, const std::vector<std::string>& arguments);

}  // namespace harness

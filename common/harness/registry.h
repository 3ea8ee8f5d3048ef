// The steps linked into this program. Each registers itself (REGISTER_STEP in its kernel.cu).
#pragma once
#include <string>
#include <vector>

#include "common/step.h"

namespace harness {

/// All of them, in the order of their ids.
std::vector<Step> steps();
/// The step of this id. Throws UsageError, naming those there are, if it is not linked.
Step find_step(const std::string& id);

}  // namespace harness

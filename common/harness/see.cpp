#include "common/harness/see.h"

namespace harness {

bool is_see_command(const std::string& word) {
  return word == "once" || word == "trace" || word == "occupancy";
}

#if defined(LADDER_EMULATED)
int see_command(const Program&, const std::vector<std::string>& arguments) {
  throw UsageError(arguments[0] + " needs a GPU: the emulated device has neither clock nor SMs");
}
#endif

}  // namespace harness

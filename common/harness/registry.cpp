#include "common/harness/registry.h"

#include <algorithm>
#include <cstring>

#include "common/harness/text.h"

namespace {
std::vector<Step>& registered() {  // a function, so that it exists before the first registration
  static std::vector<Step> steps;
  return steps;
}
}  // namespace

bool register_step(const Step& step) {
  registered().push_back(step);
  return true;
}

namespace harness {

std::vector<Step> steps() {
  std::vector<Step> sorted = registered();
  std::sort(sorted.begin(), sorted.end(),
            [](const Step& a, const Step& b) { return strcmp(a.id, b.id) < 0; });
  return sorted;
}

Step find_step(const std::string& id) {
  std::string known;
  for (const Step& step : steps()) {
    if (id == step.id) return step;
    known += std::string(known.empty() ? "" : ", ") + step.id;
  }
  throw UsageError("no step \"" + id + "\" in this program; it holds " +
                   (known.empty() ? "none" : known));
}

}  // namespace harness

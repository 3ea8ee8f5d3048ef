// 29: what `./ladder tune` has measured, read from the file that LADDER_GEMM_TUNED names.
#pragma once
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "common/step.h"

namespace {

// The configuration that was measured as best for exactly this problem on this GPU, or "". The file
// is read once per process; that of another GPU counts as empty.
std::string tuned_config(const Problem& p) {
  static const std::vector<std::string> lines = [] {
    std::vector<std::string> kept;
    const char* path = std::getenv("LADDER_GEMM_TUNED");
    std::ifstream file(path ? path : "");
    bool ours = false;
    for (std::string line; path && std::getline(file, line);) {
      if (line.empty() || line[0] == '#') continue;
      if (line.rfind("gpu ", 0) == 0) ours = line.substr(4) == gpu::device_name();
      else if (ours) kept.push_back(line);
    }
    return kept;
  }();
  if (lines.empty()) return "";
  const auto layout = [](Layout l) { return l == Layout::row_major ? "row " : "col "; };
  const auto type = [](Type t) {
    return t == Type::f16 ? "f16 " : t == Type::bf16 ? "bf16 " : "f32 ";
  };
  std::ostringstream key;
  key << p.M << ' ' << p.N << ' ' << p.K << ' ' << layout(p.layout_a) << layout(p.layout_b)
      << type(p.type_ab) << type(p.type_c) << p.batch << ' ';
  for (const std::string& line : lines)
    if (line.rfind(key.str(), 0) == 0) return line.substr(key.str().size());
  return "";
}

}  // namespace

// The emulated device against the hardware: agreement.cu on both, the results of an H200 in
// data/agreement.txt.
#include <fstream>
#include <map>
#include <set>

#include "tests/agreement.cu"
#include "tests/catch.h"

namespace {
std::vector<std::string> lines;
}

TEST_CASE("agreement with an H200") {
  emu::set_quiet(true);
  emu::clear_reports();
  lines.clear();
  agreement::all_cases([](const std::string& line) { lines.push_back(line); });
  const std::string first = emu::reports() ? emu::report_texts()[0] : "";
  emu::clear_reports();
  CHECK(first == "");
  CHECK(lines.size() >= 2000);

  const std::string source = __FILE__;
  std::ifstream file(source.substr(0, source.rfind('/')) + "/data/agreement.txt");
  std::set<std::string> golden;
  for (std::string line; std::getline(file, line);) golden.insert(line);
  REQUIRE(!golden.empty());  // written by agreement.cu on a GPU
  CHECK(golden.size() == lines.size());
  std::map<std::string, int> differ;
  for (const std::string& line : lines)
    if (!golden.count(line)) ++differ[line.substr(0, line.find(' '))];
  for (const auto& [kind, count] : differ) {
    INFO(kind << ": " << count << " cases differ from the hardware");
    CHECK(count == 0);
  }
}

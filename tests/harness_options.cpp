// The command line and small text.
#include <cstdio>
#include <fstream>
#include <sstream>

#include "common/harness/options.h"
#include "tests/catch.h"

using namespace harness;

namespace {
std::string refusal(const std::vector<std::string>& arguments) {
  try {
    parse_options(arguments);
  } catch (const UsageError& e) {
    return e.what();
  }
  return "";
}
}  // namespace

TEST_CASE("sizes that are sizes") {
  CHECK(parse_size("4096") == Size{4096, 4096, 4096});
  CHECK(parse_size("100x77x33") == Size{100, 77, 33});
  CHECK(parse_size("2147482624x1x1") == Size{2147482624, 1, 1});
  CHECK(parse_sizes("128,1x2x3").size() == 2);
  CHECK(text(Size{100, 77, 33}) == "100x77x33");
}

TEST_CASE("sizes that are none") {
  for (const char* word : {"", "0", "-1", "1.5", "abc", "10^9", "0x4x4", "4x4", "4x4x4x4", "4x-1x4",
                           "4x4x", "x4x4", "4x 4x4", "1e3", "+4", "2147482625", "4,",
                           "99999999999999999999999", "0x10"}) {
    INFO(word);
    CHECK_THROWS_AS(parse_sizes(word), UsageError);
    const std::string why = refusal({"check", "--sizes", word});
    CHECK(why != "");
    CHECK(why.find('\n') == std::string::npos);
  }
}

TEST_CASE("commands and flags") {
  const Options o = parse_options({"bench", "--sizes=64,128x64x32", "--regimes", "burst", "--json",
                                   "x.json", "--commit", "abc", "--dirty", "1",
                                   "--benchmark_format=console"});
  CHECK(o.command == "bench");
  CHECK(o.sizes.size() == 2);
  CHECK(o.regimes == std::vector<std::string>{"burst"});
  CHECK(o.json == "x.json");
  CHECK(o.dirty == "1");
  CHECK(o.benchmark_flags.size() == 1);
  CHECK(parse_options({"check"}).sizes.empty());
  CHECK(parse_options({"trust"}).trials == 20);
  CHECK(parse_options({"describe", "--sizes", "64", "--sms", "132"}).sms == 132);

  CHECK(refusal({}) != "");
  CHECK(refusal({"measure"}) == "unknown command \"measure\": check, bench, tune, ceilings, trust "
                                "or describe");
  CHECK(refusal({"check", "--size", "64"}) == "check knows no \"--size\"");
  CHECK(refusal({"check", "--sizes"}) == "--sizes needs a value");
  CHECK(refusal({"check", "64"}) == "check knows no \"64\"");
  CHECK(refusal({"check", "--seed", "-1"}) != "");
  CHECK(refusal({"bench"}) == "bench needs --sizes");
  CHECK(refusal({"bench", "--sizes", "64", "--regimes", "warm"}) != "");
  CHECK(refusal({"bench", "--sizes", "64", "--dirty", "2"}) != "");
  CHECK(refusal({"check", "--benchmark_filter=x"}) != "");
}

TEST_CASE("flags of Google Benchmark that would change the method are refused") {
  for (const char* flag : {"--benchmark_min_time=1", "--benchmark_repetitions=9",
                           "--benchmark_enable_random_interleaving=true",
                           "--benchmark_min_warmup_time=1", "--benchmark_context=a=b"})
    CHECK(refusal({"bench", "--sizes", "64", flag}).find("would change the method") !=
          std::string::npos);
  for (const char* flag : {"--benchmark_filter=06", "--benchmark_format=json",
                           "--benchmark_out=f.json", "--benchmark_out_format=csv"})
    CHECK(refusal({"bench", "--sizes", "64", flag}) == "");
}

TEST_CASE("a result file appears whole or not at all") {
  const std::string path = "harness_options_test.json";
  const auto content = [&] {
    std::stringstream all;
    all << std::ifstream(path).rdbuf();
    return all.str();
  };
  std::remove(path.c_str());
  {
    const OutputFile file(path);
    CHECK_FALSE(std::ifstream(path).good());
  }
  CHECK_FALSE(std::ifstream(path).good());  // given up: nothing is left
  OutputFile(path).commit("{}");
  CHECK(content() == "{}");
  OutputFile(path).commit("{1}");
  CHECK(content() == "{1}");
  std::remove(path.c_str());
  CHECK_THROWS_AS(OutputFile("no/such/folder/x.json"), UsageError);
  OutputFile("").commit("nothing");
}

TEST_CASE("JSON strings") {
  CHECK(quoted("a\"b\\c\n") == "\"a\\\"b\\\\c\\u000a\"");
}

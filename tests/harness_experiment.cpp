// The words of an experiment's program: its command line, its names, its file of timelines.
#include "common/harness/experiment_options.h"
#include "tests/catch.h"

using namespace harness;

TEST_CASE("an experiment's command line is understood") {
  const ExperimentOptions o = parse_experiment_options(
      {"bench", "--workloads", "a,b", "--variants=x", "--json", "f", "--timelines", "t", "--commit",
       "abc", "--dirty", "0", "--benchmark_format=csv"});
  CHECK(o.common.command == "bench");
  CHECK(o.workloads == std::vector<std::string>{"a", "b"});
  CHECK(o.variants == std::vector<std::string>{"x"});
  CHECK(o.common.json == "f");
  CHECK(o.timelines == "t");
  CHECK(o.common.commit == "abc");
  CHECK(o.common.dirty == "0");
  CHECK(o.common.benchmark_flags == std::vector<std::string>{"--benchmark_format=csv"});
  CHECK(parse_experiment_options({"check"}).workloads.empty());
  CHECK(parse_experiment_options({"once", "--iterations", "3"}).iterations == 3);
}

TEST_CASE("what an experiment does not take is refused by name") {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"run"},
      {"bench", "--sizes", "64"},
      {"bench", "--json"},
      {"bench", "--dirty", "2"},
      {"check", "--timelines", "t"},
      {"check", "--iterations", "3"},
      {"once", "--iterations", "0"},
      {"once", "--json", "f"},
      {"describe", "--json", "f"},
      {"bench", "--benchmark_min_time=3"},
      {"check", "--benchmark_format=csv"}};
  for (const auto& arguments : wrong) {
    CAPTURE(arguments);
    CHECK_THROWS_AS(parse_experiment_options(arguments), UsageError);
  }
}

TEST_CASE("names can stand in the name of a row") {
  CHECK_NOTHROW(require_name("256x256x65536", "workload"));
  CHECK_NOTHROW(require_name("23_tma-store.2", "variant"));
  for (const char* name : {"", "a/b", "a b", "a:b", "\"", "ä"})
    CHECK_THROWS_AS(require_name(name, "variant"), UsageError);
}

TEST_CASE("those asked for are chosen in the order of the known") {
  const std::vector<std::string> known = {"c", "a", "b"};
  CHECK(chosen(known, {}, "variant") == std::vector<size_t>{0, 1, 2});
  CHECK(chosen(known, {"b", "c"}, "variant") == std::vector<size_t>{0, 2});
  try {
    chosen(known, {"d"}, "variant");
    FAIL("not refused");
  } catch (const UsageError& e) {
    CHECK(std::string(e.what()) == "there is no variant \"d\"; there are c, a, b");
  }
}

TEST_CASE("timelines as JSON") {
  const std::string json = timelines_json(
      "30_x", {{"gpu", "a \"b\""}}, {{"w", "v", 1.5, {{"host", "0", 0, 1}, {"s", "1", 1, 2.25}}}});
  CHECK(json ==
        "{\"context\": {\"gpu\": \"a \\\"b\\\"\"},\n\"experiment\": \"30_x\",\n\"timelines\": [\n"
        "{\"workload\": \"w\", \"variant\": \"v\", \"time_us\": 1.500, \"spans\": [\n"
        " {\"lane\": \"host\", \"name\": \"0\", \"begin_us\": 0.000, \"end_us\": 1.000},\n"
        " {\"lane\": \"s\", \"name\": \"1\", \"begin_us\": 1.000, \"end_us\": 2.250}]}\n]}\n");
  CHECK(timelines_json("30_x", {}, {}) ==
        "{\"context\": {},\n\"experiment\": \"30_x\",\n\"timelines\": [\n]}\n");
}

#include "common/harness/options.h"

#include <algorithm>
#include <map>

namespace harness {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

void check_benchmark_flag(const std::string& flag) {
  static const std::vector<std::string> allowed = {
      "--benchmark_filter",     "--benchmark_format",
      "--benchmark_out",        "--benchmark_out_format",
      "--benchmark_color",      "--benchmark_counters_tabular",
      "--benchmark_display_aggregates_only"};
  const std::string name = flag.substr(0, flag.find('='));
  if (!contains(allowed, name))
    throw UsageError(name + " would change the method of measuring (notes/measuring.md); filter, "
                     "format and output flags are passed on");
}

}  // namespace

Options parse_options(const std::vector<std::string>& arguments) {
  static const std::map<std::string, std::vector<std::string>> flags = {
      {"check", {"--sizes", "--random", "--seed", "--buffers", "--json"}},
      {"bench", {"--sizes", "--regimes", "--against", "--json", "--commit", "--dirty"}},
      {"tune", {"--sizes", "--regimes", "--skip", "--json"}},
      {"ceilings", {"--regimes", "--json", "--commit", "--dirty"}},
      {"trust", {"--sizes", "--trials"}},
      {"mutate", {"--sizes", "--seed"}},
      {"describe", {"--sizes", "--sms"}}};
  Options options;
  if (arguments.empty()) throw UsageError("a command is missing: check, bench, tune, ceilings, "
                                          "trust or describe");
  options.command = arguments[0];
  const auto command = flags.find(options.command);
  if (command == flags.end())
    throw UsageError("unknown command \"" + options.command +
                     "\": check, bench, tune, ceilings, trust or describe");
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    const bool benches = options.command == "bench" || options.command == "ceilings";
    if (benches && word.rfind("--benchmark_", 0) == 0) {
      check_benchmark_flag(word);
      options.benchmark_flags.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!contains(command->second, name))
      throw UsageError(options.command + " knows no \"" + word + "\"");
    if (equals == std::string::npos && i + 1 == arguments.size())
      throw UsageError(name + " needs a value");
    const std::string value =
        equals == std::string::npos ? arguments[++i] : word.substr(equals + 1);
    if (name == "--sizes") options.sizes = parse_sizes(value);
    if (name == "--seed") options.seed = uint64_t(parse_integer(value, name, 0, 1000000000));
    if (name == "--random") options.random = int(parse_integer(value, name, 1, 100000));
    if (name == "--trials") options.trials = int(parse_integer(value, name, 1, 1000));
    if (name == "--sms") options.sms = int(parse_integer(value, name, 1, 1000));
    if (name == "--buffers") options.buffers = value;
    if (name == "--against") options.against = split(value, ',');
    if (name == "--skip") options.skip = split(value, ',');
    if (name == "--json") options.json = value;
    if (name == "--commit") options.commit = value;
    if (name == "--dirty") options.dirty = parse_integer(value, name, 0, 1) ? "1" : "0";
    if (name == "--regimes") options.regimes = split(value, ',');
  }
  for (const std::string& regime : options.regimes)
    if (regime != "burst" && regime != "sustained")
      throw UsageError("regime \"" + regime + "\": must be burst or sustained");
  for (const std::string& other : options.against)
    if (other != "base" && other != "cublas" && other != "ceiling")
      throw UsageError("--against \"" + other + "\": must be base, cublas or ceiling");
  if (options.buffers != "guarded" && options.buffers != "exact")
    throw UsageError("--buffers \"" + options.buffers + "\": must be guarded or exact");
  if (options.random && !options.sizes.empty())
    throw UsageError("--random and --sizes exclude each other");
  if ((options.command == "bench" || options.command == "tune") && options.sizes.empty())
    throw UsageError(options.command + " needs --sizes");
  return options;
}

}  // namespace harness

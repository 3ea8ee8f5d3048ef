#include "common/harness/experiment_options.h"

#include <algorithm>

namespace harness {
namespace {

bool contains(const std::vector<std::string>& list, const std::string& word) {
  return std::find(list.begin(), list.end(), word) != list.end();
}

}  // namespace

ExperimentOptions parse_experiment_options(const std::vector<std::string>& arguments) {
  ExperimentOptions options;
  const std::string commands = "check, bench, once or describe";
  if (arguments.empty()) throw UsageError("a command is missing: " + commands);
  options.common.command = arguments[0];
  const bool benches = arguments[0] == "bench";
  std::vector<std::string> flags;
  if (benches || arguments[0] == "check")
    flags = {"--workloads", "--variants", "--json"};
  else if (arguments[0] == "once")
    flags = {"--workloads", "--variants", "--iterations"};
  else if (arguments[0] != "describe")
    throw UsageError("unknown command \"" + arguments[0] + "\": " + commands);
  if (benches) flags.insert(flags.end(), {"--timelines", "--commit", "--dirty"});
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (benches && word.rfind("--benchmark_", 0) == 0) {
      parse_options({"bench", "--sizes", "1", word});  // refuses what would change the method
      options.common.benchmark_flags.push_back(word);
      continue;
    }
    const size_t equals = word.find('=');
    const std::string name = word.substr(0, equals);
    if (!contains(flags, name)) throw UsageError(arguments[0] + " knows no \"" + word + "\"");
    if (equals == std::string::npos && i + 1 == arguments.size())
      throw UsageError(name + " needs a value");
    const std::string value =
        equals == std::string::npos ? arguments[++i] : word.substr(equals + 1);
    if (name == "--workloads") options.workloads = split(value, ',');
    if (name == "--variants") options.variants = split(value, ',');
    if (name == "--json") options.common.json = value;
    if (name == "--timelines") options.timelines = value;
    if (name == "--iterations") options.iterations = int(parse_integer(value, name, 1, 10000));
    if (name == "--commit") options.common.commit = value;
    if (name == "--dirty") options.common.dirty = parse_integer(value, name, 0, 1) ? "1" : "0";
  }
  return options;
}

void require_name(const std::string& name, const std::string& what) {
  const char* legal = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.-";
  if (name.empty() || name.find_first_not_of(legal) != std::string::npos)
    throw UsageError(what + " \"" + name + "\": a name has letters, digits, _ . and - only");
}

std::vector<size_t> chosen(const std::vector<std::string>& known,
                           const std::vector<std::string>& asked, const std::string& what) {
  for (const std::string& name : asked)
    if (!contains(known, name))
      throw UsageError("there is no " + what + " \"" + name + "\"; there are " +
                       joined(known, ", "));
  std::vector<size_t> indices;
  for (size_t i = 0; i < known.size(); ++i)
    if (asked.empty() || contains(asked, known[i])) indices.push_back(i);
  return indices;
}

std::string timelines_json(const std::string& experiment,
                           const std::vector<std::pair<std::string, std::string>>& context,
                           const std::vector<DrawnIteration>& drawn) {
  std::string words;
  for (const auto& [key, value] : context)
    words += (words.empty() ? "" : ", ") + quoted(key) + ": " + quoted(value);
  std::string json = "{\"context\": {" + words + "},\n\"experiment\": " + quoted(experiment) +
                     ",\n\"timelines\": [";
  for (size_t i = 0; i < drawn.size(); ++i) {
    const DrawnIteration& d = drawn[i];
    json += std::string(i ? "," : "") + "\n{\"workload\": " + quoted(d.workload) +
            ", \"variant\": " + quoted(d.variant) + ", \"time_us\": " + fixed(d.time_us, 3) +
            ", \"spans\": [";
    for (size_t j = 0; j < d.spans.size(); ++j)
      json += std::string(j ? "," : "") + "\n {\"lane\": " + quoted(d.spans[j].lane) +
              ", \"name\": " + quoted(d.spans[j].name) +
              ", \"begin_us\": " + fixed(d.spans[j].begin_us, 3) +
              ", \"end_us\": " + fixed(d.spans[j].end_us, 3) + "}";
    json += "]}";
  }
  return json + "\n]}\n";
}

}  // namespace harness

#include "common/harness/check.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

#include "common/harness/operands.h"

namespace harness {
namespace {

/// Multiply-adds, and as much as 64 of them for every element's thread and store.
double cost(const Size& s) { return double(s.M) * double(s.N) * double(s.K + 64); }

bool supported(Supports supports, const Size& s) {
  return supports(make_problem(s.M, s.N, s.K)).empty();
}

/// Smallest step in which dimension 0, 1 or 2 may grow; 0 if the step takes none of those tried.
int64_t granule(Supports supports, int dimension) {
  const int64_t large = 6144;  // a multiple of every granule below
  for (int64_t unit : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048}) {
    int64_t s[3] = {large, large, large};
    s[dimension] += unit;
    if (supported(supports, {s[0], s[1], s[2]})) return unit;
  }
  return 0;
}

}  // namespace

std::vector<Size> suite(Supports supports, double budget) {
  std::vector<Size> candidates = {{1, 1, 1},      {1, 5, 3},      {7, 1, 2},     {3, 2, 1},
                                  {2, 3, 4},      {31, 67, 13},   {67, 31, 129}, {127, 61, 131},
                                  {257, 129, 65}, {131, 257, 33}, {8, 24, 16},   {136, 264, 72},
                                  {264, 72, 136}, {128, 256, 64}, {384, 512, 192},
                                  {392, 520, 200}, {648, 328, 104}};
  const int64_t m = granule(supports, 0), n = granule(supports, 1), k = granule(supports, 2);
  if (m && n && k) {
    for (Size s : {Size{1, 1, 1}, {1, 2, 3}, {2, 1, 1}, {3, 1, 2}, {1, 3, 5}, {2, 3, 4}, {3, 5, 7}})
      candidates.push_back({s.M * m, s.N * n, s.K * k});
    const auto at_least = [](int64_t size, int64_t unit) { return (size / unit + 1) * unit; };
    candidates.push_back({at_least(1600, m), at_least(2300, n), 3 * k});  // > 132 tiles
    candidates.push_back({m, 2 * n, at_least(4096, k)});                  // a ring goes round
  }
  std::sort(candidates.begin(), candidates.end(),
            [](const Size& a, const Size& b) { return cost(a) < cost(b); });
  std::vector<Size> chosen;
  for (const Size& size : candidates) {
    if (!supported(supports, size)) continue;
    if (std::find(chosen.begin(), chosen.end(), size) != chosen.end()) continue;
    if (chosen.size() >= 6 && cost(size) > budget) break;
    budget -= cost(size);
    chosen.push_back(size);
  }
  return chosen;
}

std::vector<Size> random_shapes(Supports supports, int count, uint64_t seed, double budget) {
  const int64_t unit[3] = {granule(supports, 0), granule(supports, 1), granule(supports, 2)};
  const int64_t most[3] = {650, 650, 1100};
  if (!unit[0] || !unit[1] || !unit[2]) return {};
  std::mt19937_64 random(seed);
  std::vector<Size> shapes;
  for (int tries = 0; int(shapes.size()) < count && tries < 100 * count; ++tries) {
    int64_t s[3];
    for (int d = 0; d < 3; ++d) {
      const uint64_t units = random() % 4 == 0 ? 3 : std::max<int64_t>(3, most[d] / unit[d]);
      s[d] = unit[d] * int64_t(1 + random() % units);
    }
    const Size size = {s[0], s[1], s[2]};
    if (supported(supports, size) && cost(size) <= budget) shapes.push_back(size);
  }
  return shapes;
}

void require_support(const Step& step, const Size& size) {
  const std::string why = step.supports(make_problem(size.M, size.N, size.K));
  if (!why.empty()) throw UsageError(std::string(step.id) + " at " + text(size) + ": " + why);
}

std::string check_step(const Step& step, const Size& size, uint64_t seed) {
  require_support(step, size);
  return at(size, [&] {
    const size_t guard = check_guard(size);
    require_memory(2 * Operands::bytes(size, guard), "to check " + text(size));
    Operands exact(size, Inputs::integers, 2 * seed, guard);
    Operands random(size, Inputs::normal, 2 * seed + 1, guard);
    const Launch launch_exact = step.prepare(exact.problem);
    const Launch launch_random = step.prepare(random.problem);
    const auto failure = [&](const Launch& launch, Operands& operands, const char* when) {
      launch(gpu::Stream{});
      std::string wrong = explain(operands.verdict(), size.M, size.N);
      if (const std::string found = take_findings(); !found.empty())
        wrong += (wrong.empty() ? "" : "; ") + found;
      return wrong.empty() ? "" : std::string(name(operands.inputs)) + when + ": " + wrong;
    };
    std::string wrong = failure(launch_exact, exact, "");
    if (wrong.empty()) wrong = failure(launch_random, random, "");
    exact.C.poison();
    if (wrong.empty()) wrong = failure(launch_exact, exact, ", the same launch again");
    return wrong;
  });
}

int check_command(const Program& program, const Options& options) {
  const OutputFile file(options.json);
  const Step step = find_step(program.step);
  for (const Size& size : options.sizes) require_support(step, size);
  require_device(program);
  set_schedule(options.seed);
  std::vector<Size> sizes = options.sizes;
  if (options.random) {
    sizes = random_shapes(step.supports, options.random, options.seed, check_budget(program));
    if (sizes.empty()) throw UsageError(program.step + " takes no random shape");
  } else if (sizes.empty()) {
    sizes = suite(step.supports, check_budget(program));
    if (sizes.empty()) throw UsageError(program.step + " takes none of the shapes of the suite");
    if (sizes.size() < 6)
      printf("%s takes only %zu shapes of the suite\n", step.id, sizes.size());
  }
  std::string rows, first_failure;
  for (const Size& size : sizes) {
    const std::string wrong = check_step(step, size, options.seed);
    if (wrong.empty() && options.random) {
      // of a thousand lines, those that are wrong
    } else if (wrong.empty())
      printf("%s %s right (integers exact, random normal within %.2g and half an ulp)\n", step.id,
             text(size).c_str(), accumulation_bound(size.K));
    else
      printf("%s %s WRONG %s\n", step.id, text(size).c_str(), wrong.c_str());
    if (!wrong.empty() && first_failure.empty()) first_failure = text(size) + ", " + wrong;
    rows += std::string(rows.empty() ? "" : ",\n") + "    {\"name\": " +
            quoted(program.step + "/" + text(size) + "/check") +
            ", \"run_type\": \"iteration\", \"right\": " + (wrong.empty() ? "1" : "0") +
            ", \"reason\": " + quoted(wrong);
    for (const auto& [counter, value] : counters()) {
      if (value != 0 && !options.random) printf("  %-44s %.0f\n", counter.c_str(), value);
      rows += ", " + quoted(counter) + ": " + fixed(value, 0);
    }
    rows += "}";
    fflush(stdout);
  }
  file.commit("{\n  \"context\": {\"step\": " + quoted(program.step) +
              ", \"device\": " + describe_device() + "},\n  \"benchmarks\": [\n" + rows +
              "\n  ]\n}\n");
  if (options.random && first_failure.empty())
    printf("%s right at %zu random shapes (seed %d)\n", step.id, sizes.size(), int(options.seed));
  if (first_failure.empty()) return 0;
  fprintf(stderr, "error: %s: wrong at %s\n", step.id, first_failure.c_str());
  return 1;
}

}  // namespace harness

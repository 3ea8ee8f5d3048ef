#include "common/harness/check.h"

#include <algorithm>
#include <cstdio>
#include <memory>
#include <random>

#include "common/harness/operands.h"

namespace harness {
namespace {

/// Multiply-adds, and as much as 64 of them for every element's thread and store.
double cost(const Size& s) {
  return double(s.M) * double(s.N) * double(s.K + 64) * double(s.kind.batch);
}

/// Asks with pointers that are as aligned as those to come.
bool supported(Supports supports, const Size& s) {
  const auto pointer = [&](Type type) {
    return reinterpret_cast<void*>(uintptr_t(4096 + s.kind.off * bytes_of(type)));
  };
  const Kind& k = s.kind;
  return supports(make_problem(s, pointer(k.type_ab), pointer(k.type_ab), pointer(k.type_c),
                               k.bias ? pointer(k.type_c) : nullptr))
      .empty();
}

/// Smallest step in which dimension 0, 1 or 2 may grow; 0 if the step takes none of those tried.
int64_t granule(Supports supports, int dimension, const Kind& kind = {}) {
  const int64_t large = 6144;  // a multiple of every granule below
  for (int64_t unit : {1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 2048}) {
    int64_t s[3] = {large, large, large};
    s[dimension] += unit;
    if (supported(supports, {s[0], s[1], s[2], kind})) return unit;
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

// ---- other kinds of problem --------------------------------------------------------------------

namespace {

std::vector<Kind> layouts_and_types() {
  std::vector<Kind> kinds;
  for (Type ab : {Type::f16, Type::bf16})
    for (Type c : {Type::f16, Type::bf16, Type::f32})
      for (Layout a : {Layout::row_major, Layout::col_major})
        for (Layout b : {Layout::row_major, Layout::col_major}) {
          Kind kind;
          kind.layout_a = a, kind.layout_b = b, kind.type_ab = ab, kind.type_c = c;
          kinds.push_back(kind);
        }
  return kinds;
}

/// Everything else, one thing or two at a time.
std::vector<Kind> other_things() {
  std::vector<Kind> kinds;
  for (const char* words :
       {"NN", "NN-alpha0.5", "NN-beta1", "NN-alpha-1.5-beta0.5", "NN-alpha0-beta2", "NN-alpha0",
        "NN-pada8-padb8-padc8", "NN-pada1-padb3-padc5-beta1", "NN-batch3", "NN-batch2-gap8-beta1",
        "NN-batch3-sharedb-padc8-gap3", "NN-off1", "NN-off8-pada8-padb16-padc24", "NN-bias",
        "NN-bias-alpha2-beta-1-batch2", "NN-relu", "NN-gelu", "NN-bias-relu", "NN-bias-gelu"})
    kinds.push_back(parse_kind(words));
  return kinds;
}

Kind with_layouts_of(const Kind& from, Kind kind) {
  kind.layout_a = from.layout_a, kind.layout_b = from.layout_b;
  kind.type_ab = from.type_ab, kind.type_c = from.type_c;
  return kind;
}

/// A large problem of the kind, of which the step's granules cannot be the reason to refuse it.
bool takes(Supports supports, const Kind& kind) {
  return supported(supports, {6144, 6144, 6144, kind});
}

struct Granules {
  int64_t m = 0, n = 0, k = 0;
};

/// Of the first kind that the step takes, the default before all others.
Granules granules(Supports supports) {
  for (const Kind& layouts : layouts_and_types())
    for (const Kind& others : other_things()) {
      const Kind kind = with_layouts_of(layouts, others);
      if (takes(supports, kind))
        return {granule(supports, 0, kind), granule(supports, 1, kind), granule(supports, 2, kind)};
    }
  return {};
}

}  // namespace

bool takes_kinds(Supports supports) {
  std::vector<Kind> kinds = other_things();
  for (const Kind& kind : layouts_and_types()) kinds.push_back(kind);
  const auto other = [&](Kind k) {
    k.off = 0;  // of which a step is not asked
    return !(k == Kind{}) && takes(supports, k);
  };
  return std::any_of(kinds.begin(), kinds.end(), other);
}

std::vector<Size> kinds_suite(Supports supports, double budget) {
  const auto [m, n, k] = granules(supports);
  if (!m || !n || !k) return {};
  const Size sizes[] = {{1, 1, 1},      {7, 5, 3},       {64, 136, 72}, {127, 61, 131},
                        {136, 264, 72}, {129, 257, 65},  {31, 67, 13},  {200, 328, 136},
                        {1, 40, 300},   {260, 3, 24},    {130, 520, 8}};
  std::vector<Size> all;
  double work = 0;
  size_t next = 0;
  for (const Kind& layouts : layouts_and_types())
    for (const Kind& others : other_things()) {
      const Size& s = sizes[next++ % std::size(sizes)];  // 15 kinds, 11 sizes: all pairs come
      const auto up = [](int64_t size, int64_t unit) { return (size + unit - 1) / unit * unit; };
      const Size size = {up(s.M, m), up(s.N, n), up(s.K, k), with_layouts_of(layouts, others)};
      if (size.kind == Kind{} || !supported(supports, size)) continue;
      all.push_back(size);
      work += cost(size);
    }
  // Every 7th, or so: no divisor of 15 or 11, so that of each thing some are left.
  size_t every = 1;
  for (size_t prime : {2, 7, 13, 17, 23, 29, 31})
    if (work / double(every) > budget) every = prime;
  std::vector<Size> chosen;
  for (size_t i = 0; i < all.size(); i += every) chosen.push_back(all[i]);
  return chosen;
}

std::vector<Size> random_problems(Supports supports, int count, uint64_t seed, double budget) {
  const auto [m, n, k] = granules(supports);
  const int64_t unit[3] = {m, n, k}, most[3] = {650, 650, 1100};
  if (!m || !n || !k) return {};
  std::mt19937_64 random(seed);
  const auto below = [&](int64_t n) { return int64_t(random() % uint64_t(n)); };
  const auto one_in = [&](int64_t n) { return below(n) == 0; };
  const auto one_of = [&](std::initializer_list<float> values) {
    return values.begin()[below(int64_t(values.size()))];
  };
  const auto pad = [&] { return one_in(2) ? 0 : one_in(2) ? 8 * (1 + below(4)) : 1 + below(20); };
  std::vector<Kind> layouts;  // what the step does not take at all is not drawn in vain
  for (const Kind& kind : layouts_and_types())
    if (takes(supports, kind)) layouts.push_back(kind);
  if (layouts.empty()) return {};
  const auto dimension = [&](int d) {
    const int64_t u = unit[d], units = std::max<int64_t>(3, most[d] / u);
    const int64_t near = 64 * (1 + below(std::max<int64_t>(1, most[d] / 64)));
    switch (below(4)) {
      case 0: return u * (1 + below(16 / u + 3));                              // tiny
      case 1: return std::max(u, (near + below(3) - 1) / u * u);               // about a tile
      case 2: return u * std::max<int64_t>(1, (1 + below(units)) / 8 * 8);     // whole vectors
      default: return u * (1 + below(units));
    }
  };
  std::vector<Size> problems;
  for (int tries = 0; int(problems.size()) < count && tries < 1000 * count; ++tries) {
    Kind kind = layouts[size_t(below(int64_t(layouts.size())))];
    if (one_in(2)) kind.alpha = one_of({-1, 0.5, 2, -1.5, 0.25, 0, 0.7f, -3.1f});
    if (one_in(2)) kind.beta = one_of({1, -1, 0.5, 2, -0.75, 0.3f});
    kind.pad_a = pad(), kind.pad_b = pad(), kind.pad_c = pad();
    if (one_in(4)) kind.batch = 2 + below(4), kind.gap = pad(), kind.shared_b = one_in(4);
    if (one_in(6)) kind.off = one_in(2) ? 8 : 1 + below(9);
    kind.bias = one_in(4);
    if (one_in(4)) kind.activation = one_in(2) ? Activation::relu : Activation::gelu;
    Size size = {dimension(0), dimension(1), dimension(2), kind};
    // What it refuses goes, one after the other.
    for (void (*drop)(Kind&) :
         {+[](Kind& x) { x.bias = false; }, +[](Kind& x) { x.activation = Activation::none; },
          +[](Kind& x) { x.off = 0; },
          +[](Kind& x) { x.batch = 1, x.gap = 0, x.shared_b = false; },
          +[](Kind& x) { x.pad_a = x.pad_b = x.pad_c = 0; }, +[](Kind& x) { x.beta = 0; },
          +[](Kind& x) { x.alpha = 1; }})
      if (!supported(supports, size)) drop(size.kind);
    if (supported(supports, size) && cost(size) <= budget) problems.push_back(size);
  }
  return problems;
}

// ---- checking ----------------------------------------------------------------------------------

void require_support(const Step& step, const Size& size) {
  const std::string why = step.supports(
      make_problem(size, nullptr, nullptr, nullptr, size.kind.bias ? &size : nullptr));
  if (!why.empty()) throw UsageError(std::string(step.id) + " at " + text(size) + ": " + why);
}

std::string check_step(const Step& step, const Size& size, uint64_t seed) {
  require_support(step, size);
  return at(size, [&] {
    const size_t guard = check_guard(size);
    const double bytes = 2 * Operands::bytes(size, guard);
    if (bytes > 1 << 28) require_memory(bytes, "to check " + text(size));  // asking takes its time
    Operands exact(size, Inputs::integers, 2 * seed, guard);
    Operands random(size, Inputs::normal, 2 * seed + 1, guard);
    const Launch launch_exact = step.prepare(exact.problem);
    const Launch launch_random = step.prepare(random.problem);
    const auto failure = [&](const Launch& launch, Operands& operands, const char* when) {
      launch(gpu::Stream{});
      std::string wrong = explain(operands.verdict(), size.M, size.N, size.kind.batch);
      if (const std::string found = take_findings(); !found.empty())
        wrong += (wrong.empty() ? "" : "; ") + found;
      return wrong.empty() ? "" : std::string(name(operands.inputs)) + when + ": " + wrong;
    };
    std::string wrong = failure(launch_exact, exact, "");
    if (wrong.empty()) wrong = failure(launch_random, random, "");
    exact.reset();
    if (wrong.empty()) wrong = failure(launch_exact, exact, ", the same launch again");
    if (!wrong.empty() || size.kind.alpha == 0 || !takes_kinds(step.supports)) return wrong;
    exact.reset();
    exact.plant(mix(seed + uint64_t(size.M * 31 + size.N * 17 + size.K)));
    return failure(launch_exact, exact, " with a NaN or an infinity in one element of A or B");
  });
}

namespace {

/// What `right` means for this size.
std::string rule(const Size& size) {
  const Kind& k = size.kind;
  const bool plain = k.alpha == 1 && k.beta == 0 && !k.bias;
  char words[160];
  snprintf(words, sizeof words, "%s, random normal within %.2g%s and half an ulp",
           keeps_exact(k.alpha) && keeps_exact(k.beta) && k.activation != Activation::gelu
               ? "integers exact"
               : "integers but rounded",
           fabs(double(k.alpha)) * accumulation_bound(size.K),
           plain ? "" : ", 2^-23 of what is added up,");
  return words;
}

/// C of more than 2^31 elements: one whose rows TMA can store, and one whose rows it can't.
std::vector<Size> huge() { return {{65552, 32776, 40}, {65537, 32771, 40, parse_kind("NT-bf16")}}; }

/// What is checked: the sizes asked for, random ones, or the suite.
std::vector<Size> sizes_to_check(const Program& program, const Step& step, const Options& options) {
  const double budget = check_budget(program);
  const bool kinds = takes_kinds(step.supports);
  if (!options.sizes.empty()) return options.sizes;
  std::vector<Size> sizes;
  if (options.random) {
    sizes = kinds ? random_problems(step.supports, options.random, options.seed, budget / 8)
                  : random_shapes(step.supports, options.random, options.seed, budget);
    if (sizes.empty()) throw UsageError(program.step + " takes no random shape");
    return sizes;
  }
  sizes = suite(step.supports, budget);
  if (kinds)
    for (const Size& size : kinds_suite(step.supports, budget)) sizes.push_back(size);
  if (sizes.empty()) throw UsageError(program.step + " takes none of the shapes of the suite");
  if (sizes.size() < 6)
    printf("%s takes only %zu shapes of the suite\n", step.id, sizes.size());
  for (const Size& size : huge()) {
    const double bytes = 2.1 * Operands::bytes(size, check_guard(size));
    if (!kinds || budget < 1e12 || !supported(step.supports, size)) continue;
    if (bytes > free_memory())
      printf("left out: %s, it needs %s of memory\n", text(size).c_str(),
             bytes_text(bytes).c_str());
    else
      sizes.push_back(size);
  }
  return sizes;
}

}  // namespace

int check_command(const Program& program, const Options& options) {
  const OutputFile file(options.json);
  const Step step = find_step(program.step);
  for (const Size& size : options.sizes) require_support(step, size);
  require_device(program);
  set_schedule(options.seed);
  if (options.buffers == "exact") use_exact_buffers();
  const std::vector<Size> sizes = sizes_to_check(program, step, options);
  std::string rows, first_failure;
  int wrong_ones = 0;
  for (const Size& size : sizes) {
    const std::string wrong = check_step(step, size, options.seed);
    if (wrong.empty() && options.random) {
      // of a thousand lines, those that are wrong
    } else if (wrong.empty())
      printf("%s %s right (%s)\n", step.id, text(size).c_str(), rule(size).c_str());
    else
      printf("%s %s WRONG %s\n", step.id, text(size).c_str(), wrong.c_str());
    wrong_ones += !wrong.empty();
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
  if (wrong_ones > 1) printf("%s wrong at %d of %zu\n", step.id, wrong_ones, sizes.size());
  if (first_failure.empty()) return 0;
  fprintf(stderr, "error: %s: wrong at %s\n", step.id, first_failure.c_str());
  return 1;
}

}  // namespace harness

// Statistics of rounds. In a round every contender ran once, in random order, so its ratios are
// free of what drifts slowly (clock, temperature); the median over rounds is free of outliers.
#pragma once
#include <algorithm>
#include <vector>

namespace harness {

/// Middle value; the mean of the two middle ones for an even count. Needs at least one.
inline double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

/// Per round: how many times faster `ours` was than `theirs`. Both in seconds, same length.
inline std::vector<double> speedups(const std::vector<double>& theirs,
                                    const std::vector<double>& ours) {
  std::vector<double> ratios;
  for (size_t i = 0; i < ours.size(); ++i) ratios.push_back(theirs[i] / ours[i]);
  return ratios;
}

/// What the same kernel measured twice may differ by: below this nothing is claimed.
constexpr double kNoiseBurst = 0.01, kNoiseSustained = 0.02;

/// Is a contender faster (1) or slower (-1) than another, or can't one tell (0)? The median of the
/// per-round speedups must leave 1 by more than `noise`, and all rounds but one in five must lie
/// on that side of 1. The first alone falls for one slow spell, the second for a tiny bias.
inline int decide(const std::vector<double>& ratios, double noise) {
  const double middle = median(ratios);
  const size_t needed = ratios.size() - ratios.size() / 5;
  const auto above = [](double r) { return r > 1; };
  const auto below = [](double r) { return r < 1; };
  const size_t faster = std::count_if(ratios.begin(), ratios.end(), above);
  const size_t slower = std::count_if(ratios.begin(), ratios.end(), below);
  if (middle > 1 + noise && faster >= needed) return 1;
  if (middle < 1 / (1 + noise) && slower >= needed) return -1;
  return 0;
}

}  // namespace harness

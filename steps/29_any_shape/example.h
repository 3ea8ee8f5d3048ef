// What the worked examples share: operands of small integers, so that results are exact, and the
// comparison. A result is poisoned with NaN before; what the emulated device finds counts as wrong.
#pragma once
#include <cstdio>
#include <cstdlib>
#include <random>
#include <vector>

#include "common/harness/device.h"
#include "common/harness/fp16.h"

namespace example {

/// 16-bit elements in device memory, and the values that they had when the array was made.
class Array {
 public:
  Array(int64_t count, Type type, uint64_t seed, const char* name)  // seed 0: NaN
      : type_(type), host_(size_t(count), 0xFFFF), buffer_(size_t(count) * 2, name) {
    std::mt19937_64 random(seed);
    for (int64_t i = 0; seed && i < count; ++i)
      harness::store(type, host_.data(), i, double(int(random() % 7) - 3));
    gpu::copy_to_device(buffer_.get(), host_.data(), buffer_.bytes());
  }
  void* device() const { return buffer_.get(); }
  double operator[](int64_t i) const { return harness::load(type_, host_.data(), i); }

  /// "", or which element of what the device has now is not `want`, rounded once.
  template <class Want>
  std::string difference(const Want& want) {
    gpu::synchronize();
    gpu::copy_to_host(host_.data(), buffer_.get(), buffer_.bytes());
    for (size_t i = 0; i < host_.size(); ++i) {
      const double is = (*this)[int64_t(i)], should = harness::rounded(type_, want(int64_t(i)));
      if (is == should) continue;  // a NaN is not
      char text[120];
      snprintf(text, sizeof text, "element %zu is %g, should be %g", i, is, should);
      return text;
    }
    return harness::take_findings();
  }

 private:
  Type type_;
  std::vector<uint16_t> host_;
  gpu::Buffer buffer_;
};

/// Runs `check` with FP16 and BF16 for each shape, or for the one on the command line: numbers in
/// the order of the shape's members. check(shape, type) returns "", or what is wrong.
template <class Shape, class Check>
int main_of(int argc, char** argv, const char* members, int count, std::vector<Shape> shapes,
            Shape (*parse)(const int64_t*), const Check& check) {
  if (argc > 1) {
    std::vector<int64_t> numbers;
    for (int i = 1; i < argc; ++i) {
      char* end = nullptr;
      numbers.push_back(std::strtoll(argv[i], &end, 10));
      if (*end || numbers.back() < 1 || numbers.back() > 1 << 20) numbers.clear(), i = argc;
    }
    if (int(numbers.size()) != count) {
      fprintf(stderr, "usage: %s [%s]\n", argv[0], members);
      return 2;
    }
    shapes = {parse(numbers.data())};
    if (const std::string why = shapes[0].why_not(); !why.empty()) {
      fprintf(stderr, "error: %s\n", why.c_str());
      return 2;
    }
  }
  int wrong = 0;
  try {
    harness::require_device({STEP_ID, "", "90a", "wgmma"});
    for (const Shape& shape : shapes) {
      std::string what = check(shape, Type::f16);
      if (what.empty()) what = check(shape, Type::bf16);
      printf("%s %s%s%s\n", STEP_ID, shape.text().c_str(), what.empty() ? " right" : " WRONG ",
             what.c_str());
      wrong += !what.empty();
    }
  } catch (const std::exception& e) {
    fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return wrong != 0;
}

inline std::string joined(const std::vector<int64_t>& numbers) {
  std::string text;
  for (int64_t n : numbers) text += (text.empty() ? "" : "x") + std::to_string(n);
  return text;
}

}  // namespace example

// What the tests of the emulated device share: findings of a launch, data, a reference.
#pragma once
#include <cmath>
#include <string>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/ptx/ptx.h"
#include "tests/catch.h"

/// What one launch was found to do wrong; the kernel's own results don't matter then.
struct Findings {
  int count = 0;
  std::vector<std::string> texts;

  bool has(const std::string& part) const {
    for (const std::string& text : texts)
      if (text.find(part) != text.npos) return true;
    return false;
  }
  /// A finding whose text holds all of these parts.
  bool has(std::initializer_list<const char*> parts) const {
    for (const std::string& text : texts) {
      bool all = true;
      for (const char* part : parts) all &= text.find(part) != text.npos;
      if (all) return true;
    }
    return false;
  }
  std::string all() const {
    std::string out;
    for (const std::string& text : texts) out += text + "\n";
    return out;
  }
};

template <class... Params, class... Args>
Findings run(const gpu::LaunchConfig& config, void (*kernel)(Params...), Args&&... args) {
  emu::set_quiet(true);
  emu::clear_reports();
  gpu::launch(0, config, kernel, std::forward<Args>(args)...);
  Findings found{emu::reports(), emu::report_texts()};
  emu::clear_reports();
  return found;
}

inline gpu::LaunchConfig shape(dim3 grid, dim3 block, size_t smem = 0, dim3 cluster = dim3()) {
  gpu::LaunchConfig config;
  config.grid = grid, config.block = block, config.dynamic_smem = smem, config.cluster = cluster;
  return config;
}

/// Small integers, exact in FP16, and their product.
struct Gemm {
  int M, N, K;
  gpu::Buffer A, B, C;
  std::vector<float> expected;

  Gemm(int m, int n, int k)
      : M(m), N(n), K(k), A(2ull * m * k, "A"), B(2ull * k * n, "B"), C(2ull * m * n, "C"),
        expected(size_t(m) * n) {
    std::vector<half> a(size_t(m) * k), b(size_t(k) * n);
    uint32_t state = 1;
    const auto next = [&] {
      state = state * 1664525 + 1013904223;
      return __float2half(float(int(state >> 24) % 5 - 2));
    };
    for (half& v : a) v = next();
    for (half& v : b) v = next();
    for (int i = 0; i < m; ++i)
      for (int l = 0; l < k; ++l)
        for (int j = 0; j < n; ++j)
          expected[size_t(i) * n + j] += float(a[size_t(i) * k + l]) * float(b[size_t(l) * n + j]);
    gpu::copy_to_device(A.get(), a.data(), A.bytes());
    gpu::copy_to_device(B.get(), b.data(), B.bytes());
  }
  bool right() const {
    std::vector<half> c(expected.size());
    gpu::copy_to_host(c.data(), C.get(), C.bytes());
    for (size_t i = 0; i < c.size(); ++i)
      if (!(float(c[i]) == expected[i])) return false;
    return true;
  }
};

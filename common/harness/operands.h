// The matrices of one problem in device memory, poisoned and guarded.
#pragma once
#include <string>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/harness/compare.h"
#include "common/harness/text.h"

namespace harness {

/// A row-major matrix of halves between two guard bands. All of it starts as NaN (bytes 0xff): an
/// element never written, or a read outside, cannot pass for a right answer.
class Matrix {
 public:
  /// `guard` bytes on either side. On the emulated device 0: it watches the ends itself, and then
  /// names the thread and the line.
  Matrix(int64_t rows, int64_t cols, size_t guard, const char* name);
  uint16_t* data() const;
  int64_t count() const { return rows_ * cols_; }
  void poison();                            // everything is NaN again
  std::vector<uint16_t> to_host() const;    // without the guards, [rows][cols]
  std::string damage() const;               // what was written into a guard band, or ""

 private:
  int64_t rows_, cols_;
  size_t guard_;
  const char* name_;
  gpu::Buffer buffer_;
};

/// Bytes of a guard band: 256 rows of C, the reach of the largest tile, within 64 KiB to 4 MiB.
size_t guard_bytes(const Size& size);

/// A, B and C of one problem, A and B filled.
struct Operands {
  Matrix A, B, C;
  Problem problem;
  Inputs inputs;

  Operands(const Size& size, Inputs inputs, uint64_t seed, size_t guard);
  Verdict verdict() const;  // compares C with the reference, looks at the guards; waits for the GPU
  static double bytes(const Size& size, size_t guard);  // what the constructor allocates
};

}  // namespace harness

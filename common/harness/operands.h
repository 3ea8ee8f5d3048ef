// The matrices of one problem in device memory, poisoned and guarded.
#pragma once
#include <memory>
#include <string>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/harness/reference.h"
#include "common/harness/text.h"

namespace harness {

/// A matrix, or a batch of them, between two guard bands. All of it starts as NaN (bytes 0xff), the
/// gaps between its rows too: an element never written, or a read outside, cannot pass for a right
/// answer.
class Matrix {
 public:
  /// `guard` bytes on either side. On the emulated device 0: it watches the ends itself, and then
  /// names the thread and the line. `off` elements more before it.
  Matrix(const Storage& storage, size_t guard, int64_t off, const char* name);
  uint16_t* data() const;
  void* raw() const { return data(); }
  const Storage& storage() const { return storage_; }
  int64_t count() const { return storage_.count(); }
  void poison();                         // everything is NaN again
  std::vector<uint16_t> to_host() const; // as it lies, without the guards (16 bits at a time)
  std::string damage() const;            // what was written into a guard band or a gap, or ""

 private:
  Storage storage_;
  size_t guard_;
  size_t start_;  // bytes from the start of the buffer to the matrix
  const char* name_;
  std::shared_ptr<gpu::Buffer> buffer_;
};

/// Bytes of a guard band: 256 rows of C, the reach of the largest tile, within 64 KiB to 4 MiB.
size_t guard_bytes(const Size& size);

/// A, B and C of one problem, A and B filled; they are NaN where alpha is 0, and C where beta is.
struct Operands {
  Matrix A, B, C;
  std::unique_ptr<Matrix> bias;
  Problem problem;
  Inputs inputs;
  uint64_t seed;
  bool planted = false;

  Operands(const Size& size, Inputs inputs, uint64_t seed, size_t guard);
  /// C is again what it was before the first launch, and A has other numbers: what a launch leaves
  /// behind in a workspace must not pass for a part of the next one.
  void reset();
  /// Puts a NaN or an infinity into one element of A or of B, chosen by `choice`.
  void plant(uint64_t choice);
  /// Compares C with the reference, looks at the guards; waits for the GPU. Problems of up to
  /// `host_limit` multiply-adds are compared on the host.
  Verdict verdict(double host_limit = kHostLimit) const;
  static double bytes(const Size& size, size_t guard);  // what the constructor allocates
};

}  // namespace harness

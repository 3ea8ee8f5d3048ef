// The right answer, independent of cuBLAS and of every step: FP64 sums, on the host for small
// problems, by a plain tiled kernel of our own for large ones. Each is tested against the other.
#pragma once
#include <vector>

#include "common/harness/compare.h"
#include "common/problem.h"

namespace harness {

/// A * B in FP64, [M][N], from row-major halves on the host.
std::vector<double> reference_on_host(const uint16_t* A, const uint16_t* B, int64_t M, int64_t N,
                                      int64_t K);

/// A * B of one matrix of the batch in FP64, [M][N]: the bare sums. Pointers are the host's.
std::vector<double> sums_on_host(const Problem& problem, int64_t batch);

/// Compares every C of the batch with the exact answer. Pointers are the host's.
Verdict compare_on_host(const Problem& problem, const Data& data);

// ---- what differs between the devices: reference.cu and emulated.cpp ----------------------------

/// Fills `count` numbers of device memory with value(inputs, seed, 0..count-1, K).
void fill(void* data, int64_t count, Inputs inputs, uint64_t seed, int64_t K,
          Type type = Type::f16);
/// Fills the elements of a matrix, in the order in which they lie, and leaves its gaps alone.
void fill(const Storage& matrix, void* data, Inputs inputs, uint64_t seed, int64_t K);
/// The same with old_value(seed, ..).
void fill_old(const Storage& matrix, void* data, uint64_t seed);

/// What is no longer as poisoned (all bits set) around a matrix that has `guard` bytes before and
/// after it: the nearest place before and after, in elements, and the first position in a gap.
struct Damage {
  int64_t before = 0, after = 0, gap = -1;  // 0, 0, -1: none
};
Damage find_damage(const Storage& matrix, const void* data, size_t guard);

/// Problems of up to this many multiply-adds are compared on the host.
extern const double kHostLimit;

/// How the device's reference sums. FP32 is exact, and much faster than FP64 on cards other than
/// the data centre's, as long as every partial sum is a whole number below 2^24.
enum class Sum { fp64, fp32 };
inline Sum fastest_exact_sum(Inputs inputs, int64_t K) {
  const int range = integer_range(K);
  return inputs == Inputs::integers && range * range * K < (1 << 24) ? Sum::fp32 : Sum::fp64;
}

/// Compares C on the device with the reference computed on the fly, every element, without a
/// second C. In launches of at most some tenths of a second, so that a display's watchdog sleeps.
Verdict compare_on_device(const Problem& problem, const Data& data, Sum sum);

}  // namespace harness

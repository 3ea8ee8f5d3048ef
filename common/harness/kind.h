// What a problem is besides its M, N, K: layouts, types, factors, strides. In names it follows
// the size, 4096x14336x4096/NT-bf16, and is left out where it is the default.
//
// LAYOUTS[-TYPE[-TYPE OF C]][-word..]. Layouts: A's letter, then B's; N is row-major, as everywhere
// in the ladder, T is column-major (stored as its transpose), so that x W^T is NT. (cuBLAS, which
// is column-major and takes B first, calls that TN.) Types f16, bf16, f32; C has the inputs' type
// where it is not named. Words: alphaX betaX (numbers), batchN, bias, relu or gelu (activations),
// sharedb (one B for the whole batch), padaX padbX padcX (elements by which rows, or columns, are
// longer than they must be), gapX (elements between the matrices of a batch), offX (elements by
// which every pointer is off its alignment).
#pragma once
#include <string>

#include "common/harness/fp16.h"

namespace harness {

struct Kind {
  Layout layout_a = Layout::row_major, layout_b = Layout::row_major;
  Type type_ab = Type::f16, type_c = Type::f16;
  float alpha = 1.0f, beta = 0.0f;
  bool bias = false, shared_b = false;
  Activation activation = Activation::none;
  int64_t batch = 1, pad_a = 0, pad_b = 0, pad_c = 0, gap = 0, off = 0;
};

std::string text(const Kind& kind);
inline bool operator==(const Kind& a, const Kind& b) { return text(a) == text(b); }
/// Throws UsageError that says how a kind is written.
Kind parse_kind(const std::string& word);

using ::make_problem;
/// The problem of this kind and size on these pointers.
Problem make_problem(int64_t M, int64_t N, int64_t K, const Kind& kind, const void* A = nullptr,
                     const void* B = nullptr, void* C = nullptr, const void* bias = nullptr);

/// How a matrix lies in memory: `batch` of them, each of `outer` runs of `inner` elements.
struct Storage {
  Type type;
  bool row_major;
  int64_t outer, inner, ld, batch, stride;

  /// Elements from the first to the last, with the gaps between.
  LADDER_HD int64_t count() const { return (batch - 1) * stride + (outer - 1) * ld + inner; }
  LADDER_HD int64_t index(int64_t b, int64_t row, int64_t col) const {
    return b * stride + (row_major ? row * ld + col : col * ld + row);
  }
  LADDER_HD bool has_gaps() const {
    return ld != inner || (batch > 1 && stride > outer * inner);
  }
  /// Is this position, of those up to count(), an element and not in a gap?
  LADDER_HD bool holds(int64_t position) const {
    int64_t b = stride > 0 ? position / stride : 0;
    if (b > batch - 1) b = batch - 1;
    const int64_t rest = position - b * stride;
    return rest / ld < outer && rest % ld < inner;
  }
  size_t bytes() const { return size_t(count()) * size_t(bytes_of(type)); }
};

LADDER_HD inline Storage storage(Type type, Layout layout, int64_t rows, int64_t cols, int64_t ld,
                                 int64_t batch, int64_t stride) {
  const bool row_major = layout == Layout::row_major;
  return {type, row_major, row_major ? rows : cols, row_major ? cols : rows, ld, batch,
          batch > 1 ? stride : 0};
}
LADDER_HD inline Storage storage_a(const Problem& p) {
  return storage(p.type_ab, p.layout_a, p.M, p.K, p.lda, p.batch, p.stride_a);
}
LADDER_HD inline Storage storage_b(const Problem& p) {
  return storage(p.type_ab, p.layout_b, p.K, p.N, p.ldb, p.batch, p.stride_b);
}
LADDER_HD inline Storage storage_c(const Problem& p) {
  return storage(p.type_c, Layout::row_major, p.M, p.N, p.ldc, p.batch, p.stride_c);
}

}  // namespace harness

// 29: what the fast path cannot read or need not compute. Operands whose rows TMA cannot take (no
// multiple of 16 bytes apart, or a base that is not aligned) are copied once, rows padded to 16
// bytes; C = beta * C where alpha is 0.
#pragma once
#include "epilogue.h"

namespace {

constexpr int PAD_THREADS = 256;

// `rows` rows of `cols` elements of 2 bytes, `ld` apart, to rows `padded_ld` apart; the padding is
// zero. A thread writes 16 bytes; what it reads need not be aligned.
__global__ void __launch_bounds__(PAD_THREADS)
    pad_kernel(const uint16_t* from, uint4* to, int64_t rows, int cols, int64_t ld,
               int64_t stride, int64_t batch) {
  const int eights = ceil_div(cols, 8);
  const int64_t all = batch * rows * eights, step = int64_t(gridDim.x) * PAD_THREADS;
  for (int64_t i = int64_t(blockIdx.x) * PAD_THREADS + threadIdx.x; i < all; i += step) {
    const int64_t row = i / eights;
    const int col = int(i % eights) * 8;
    const uint16_t* source = from + row / rows * stride + row % rows * ld + col;
    uint32_t pair[4] = {};
#pragma unroll
    for (int e = 0; e < 8; ++e)
      if (col + e < cols) pair[e / 2] |= uint32_t(source[e]) << e % 2 * 16;
    to[i] = make_uint4(pair[0], pair[1], pair[2], pair[3]);
  }
}

// C = beta * C; without reading C where beta is 0.
__global__ void __launch_bounds__(PAD_THREADS)
    scale_kernel(const __grid_constant__ GemmArgs args, int64_t batch) {
  const int64_t all = batch * args.M * args.N, step = int64_t(gridDim.x) * PAD_THREADS;
  for (int64_t i = int64_t(blockIdx.x) * PAD_THREADS + threadIdx.x; i < all; i += step) {
    const int64_t row = i / args.N;
    const int64_t at = row / args.M * args.stride_c + row % args.M * args.ldc + i % args.N;
    store_c(args, at, args.beta == 0.0f ? 0.0f : args.beta * old_c(args, at));
  }
}

}  // namespace

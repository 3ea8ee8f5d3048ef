// 29: which wgmma it is.
#pragma once
#include "common/step.h"

namespace {

// 64 x N x 16 with the first N / 2 registers of `all`.
template <Type TYPE, ptx::Major A, ptx::Major B, int N, int REGS>
__device__ void multiply(float (&all)[REGS], uint64_t left, uint64_t right, int scale_d) {
  static_assert(N / 2 <= REGS, "none left");
  constexpr bool f16 = TYPE == Type::f16;
  auto& acc = reinterpret_cast<float (&)[N / 2]>(all);
  if constexpr (N == 256 && f16) ptx::wgmma_m64n256k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 256 && !f16) ptx::wgmma_m64n256k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 200 && f16) ptx::wgmma_m64n200k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 200 && !f16) ptx::wgmma_m64n200k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 192 && f16) ptx::wgmma_m64n192k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 192 && !f16) ptx::wgmma_m64n192k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 184 && f16) ptx::wgmma_m64n184k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 184 && !f16) ptx::wgmma_m64n184k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 176 && f16) ptx::wgmma_m64n176k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 176 && !f16) ptx::wgmma_m64n176k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 168 && f16) ptx::wgmma_m64n168k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 168 && !f16) ptx::wgmma_m64n168k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 160 && f16) ptx::wgmma_m64n160k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 160 && !f16) ptx::wgmma_m64n160k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 152 && f16) ptx::wgmma_m64n152k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 152 && !f16) ptx::wgmma_m64n152k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 144 && f16) ptx::wgmma_m64n144k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 144 && !f16) ptx::wgmma_m64n144k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 128 && f16) ptx::wgmma_m64n128k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 128 && !f16) ptx::wgmma_m64n128k16_bf16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 64 && f16) ptx::wgmma_m64n64k16_f16<A, B>(acc, left, right, scale_d);
  if constexpr (N == 64 && !f16) ptx::wgmma_m64n64k16_bf16<A, B>(acc, left, right, scale_d);
}

}  // namespace

// wgmma on the emulated device: the names and signatures of cuda.h and cuda_wgmma.h.
#pragma once
#include "common/ptx/emulated.h"

namespace ptx {

enum class Major { k, mn };

#define EMU_WGMMA(N)                                                                         \
  template <Major MAJOR_A, Major MAJOR_B>                                                    \
  void wgmma_m64n##N##k16_f16(float (&acc)[N / 2], uint64_t desc_a, uint64_t desc_b,         \
                              int scale_d, EMU_HERE) {                                       \
    emu::wgmma(acc, N, nullptr, desc_a, desc_b, scale_d != 0, MAJOR_A == Major::mn,          \
               MAJOR_B == Major::mn, false, here);                                           \
  }                                                                                          \
  template <Major MAJOR_A, Major MAJOR_B>                                                    \
  void wgmma_m64n##N##k16_bf16(float (&acc)[N / 2], uint64_t desc_a, uint64_t desc_b,        \
                               int scale_d, EMU_HERE) {                                      \
    emu::wgmma(acc, N, nullptr, desc_a, desc_b, scale_d != 0, MAJOR_A == Major::mn,          \
               MAJOR_B == Major::mn, true, here);                                            \
  }
EMU_WGMMA(64) EMU_WGMMA(128) EMU_WGMMA(144) EMU_WGMMA(152) EMU_WGMMA(160) EMU_WGMMA(168)
EMU_WGMMA(176) EMU_WGMMA(184) EMU_WGMMA(192) EMU_WGMMA(200) EMU_WGMMA(256)
#undef EMU_WGMMA

inline void wgmma_fence(EMU_HERE) { emu::wgmma_fence(here); }
inline void wgmma_commit_group(EMU_HERE) { emu::wgmma_commit_group(here); }
template <int N>
void wgmma_wait_group(EMU_HERE) {
  emu::wgmma_wait_group(N, here);
}
template <int N, int REGS>
void wgmma_wait_group(float (&)[REGS], EMU_HERE) {
  emu::wgmma_wait_group(N, here);
}
template <int N, int TILES, int REGS>
void wgmma_wait_group(float (&)[TILES][REGS], EMU_HERE) {
  emu::wgmma_wait_group(N, here);
}
template <int REGS>
void setmaxnreg_inc(EMU_HERE) {
  emu::setmaxnreg(REGS, here);
}
template <int REGS>
void setmaxnreg_dec(EMU_HERE) {
  emu::setmaxnreg(REGS, here);
}

}  // namespace ptx

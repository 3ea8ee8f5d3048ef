// What a warp does together on matrices: ldmatrix, stmatrix, mma.sync.
#include <cstring>

#include "common/ptx/emulated/meet.h"

namespace emu {
namespace {

/// Lanes 8 * matrices and up give no address.
bool gives_row(unsigned matrices) { return lane() < matrices * 8; }

Region* row_region(const void* row, const char* what, Site at) {
  if (uintptr_t(row) % 16)
    report("misaligned", at, [&] {
      return format("%s of the row at %s: rows are 16-byte aligned", what,
                    place(uintptr_t(row)).c_str());
    });
  return checked_region(uintptr_t(row), 16, false, what, at);
}

template <bool BF16>
void multiply(const Warp& w) {
  const auto element = [](uint32_t pair, int i) {
    const uint16_t bits = uint16_t(pair >> (16 * i));
    return BF16 ? bfloat16_to_float(bits) : half_to_float(bits);
  };
  float a[16][16], b[16][8];
  for (unsigned lane = 0; lane < 32; ++lane) {
    auto* ra = static_cast<const uint32_t*>(w.in[lane]);
    auto* rb = static_cast<const uint32_t*>(w.in2[lane]);
    const unsigned g = lane / 4, t = lane % 4 * 2;
    for (int i = 0; i < 2; ++i) {
      a[g][t + i] = element(ra[0], i);
      a[g + 8][t + i] = element(ra[1], i);
      a[g][t + 8 + i] = element(ra[2], i);
      a[g + 8][t + 8 + i] = element(ra[3], i);
      b[t + i][g] = element(rb[0], i);
      b[t + 8 + i][g] = element(rb[1], i);
    }
  }
  float d[16][8];
  auto each_register = [&](auto move) {
    for (unsigned lane = 0; lane < 32; ++lane)
      for (unsigned i = 0; i < 4; ++i)
        move(static_cast<float*>(w.out[lane])[i], d[lane / 4 + i / 2 * 8][lane % 4 * 2 + i % 2]);
  };
  each_register([](float& reg, float& element) { element = reg; });
  for (int m = 0; m < 16; ++m)
    for (int k = 0; k < 16; ++k)
      for (int n = 0; n < 8; ++n) d[m][n] += a[m][k] * b[k][n];
  each_register([](float& reg, float& element) { reg = element; });
}

/// Shared memory is filled with ones (NaNs) until something is written or has landed.
bool is_poison(uint32_t pair) { return (pair & 0xFFFF) == 0xFFFF || pair >> 16 == 0xFFFF; }

void check_operand(const char* name, const uint32_t* r, int registers, Site at) {
  for (int i = 0; i < registers; ++i)
    if (is_poison(r[i])) {
      report("poison", at, [&] {
        return format("register %d of operand %s holds memory that was never written or had not "
                      "landed", i, name);
      });
      return;
    }
}

}  // namespace

void ldmatrix(uint32_t* r, const void* row, unsigned matrices, bool transposed, Loc here) {
  const Site at = site(here);
  Warp& w = own_warp();
  w.in[lane()] = row;
  w.out[lane()] = r;
  if (gives_row(matrices)) {
    Region* region = row_region(row, "ldmatrix", at);
    if (!region) return;
    shadow_read(*region, uintptr_t(row), 16, at, view_of(self), Proxy::generic, nullptr);
  }
  meet_all(w.meeting, 32, "ldmatrix", here, false, [&] {
    count_matrix(state.counters.ldmatrix, w.in, matrices);
    for (unsigned m = 0; m < matrices; ++m)
      for (unsigned lane = 0; lane < 32; ++lane) {
        uint32_t pair = 0;
        for (unsigned i = 0; i < 2; ++i) {
          const unsigned x = lane / 4, y = lane % 4 * 2 + i;
          const unsigned in_row = transposed ? y : x, in_col = transposed ? x : y;
          uint16_t element;
          memcpy(&element, static_cast<const char*>(w.in[m * 8 + in_row]) + in_col * 2, 2);
          pair |= uint32_t(element) << (16 * i);
        }
        static_cast<uint32_t*>(w.out[lane])[m] = pair;
      }
  });
}

void stmatrix(void* row, const uint32_t* r, unsigned matrices, bool transposed, Loc here) {
  const Site at = site(here);
  Warp& w = own_warp();
  w.out[lane()] = row;
  w.in[lane()] = row;
  w.in2[lane()] = r;
  if (gives_row(matrices)) {
    Region* region = row_region(row, "stmatrix", at);
    if (!region) return;
    shadow_write(*region, uintptr_t(row), 16, at, view_of(self), Proxy::generic, "stmatrix writes");
  }
  meet_all(w.meeting, 32, "stmatrix", here, false, [&] {
    count_matrix(state.counters.stmatrix, w.in, matrices);
    for (unsigned m = 0; m < matrices; ++m)
      for (unsigned lane = 0; lane < 32; ++lane)
        for (unsigned i = 0; i < 2; ++i) {
          const unsigned x = lane / 4, y = lane % 4 * 2 + i;
          const unsigned in_row = transposed ? y : x, in_col = transposed ? x : y;
          const uint16_t element =
              uint16_t(static_cast<const uint32_t*>(w.in2[lane])[m] >> (16 * i));
          memcpy(static_cast<char*>(w.out[m * 8 + in_row]) + in_col * 2, &element, 2);
        }
  });
}

void mma_m16n8k16(float* d, const uint32_t* a, const uint32_t* b, bool bf16, Loc here) {
  Warp& w = own_warp();
  w.out[lane()] = d;
  w.in[lane()] = a;
  w.in2[lane()] = b;
  self->multiplies = true;
  const Site at = site(here);
  check_operand("A", a, 4, at);
  check_operand("B", b, 2, at);
  meet_all(w.meeting, 32, "mma", here, false, [&] {
    bf16 ? multiply<true>(w) : multiply<false>(w);
    state.counters.mma_flops += 2 * 16 * 8 * 16;
  });
}

}  // namespace emu

// wgmma: a warpgroup multiplies from shared memory while it goes on. The operands are read, and the
// accumulators written, when the group is waited for; until then the registers are poison.
#include <cstring>

#include "common/ptx/emulated/meet.h"
#include "common/emulator/mutate.h"

namespace emu {
namespace {

/// A matrix in shared memory as a descriptor tells it (PTX "Matrix Descriptor").
struct Operand {
  uint32_t start, leading, stride, swizzle, base;
  bool mn_major;

  Operand(uint64_t desc, bool mn) : mn_major(mn) {
    start = uint32_t(desc & 0x3FFF) << 4;
    leading = uint32_t(desc >> 16 & 0x3FFF) << 4;
    stride = uint32_t(desc >> 32 & 0x3FFF) << 4;
    base = uint32_t(desc >> 49 & 7);
    const uint32_t widths[] = {0, 128, 64, 32};
    swizzle = widths[desc >> 62];
  }

  /// Window offset of 8 elements in a row, of k or of the other index as the major says.
  /// `row` and `chunk` are that other index and the chunk of 8 along the contiguous one.
  uint32_t chunk_at(unsigned row, unsigned chunk) const {
    uint32_t offset;
    if (!mn_major)  // row = m or n, chunk of k
      offset = row / 8 * stride + (swizzle ? row % 8 * swizzle + chunk * 16
                                           : row % 8 * 16 + chunk * leading);
    else if (swizzle)  // row = k, chunk of m or n; blocks of `swizzle` bytes along m or n
      offset = chunk * 16 % swizzle + chunk * 16 / swizzle * leading + row % 8 * swizzle +
               row / 8 * stride;
    else
      offset = chunk * stride + row % 8 * 16 + row / 8 * leading;
    uint32_t at = start + offset;
    if (swizzle) at ^= (((at >> 7) - base) & (swizzle / 16 - 1)) << 4;
    return at & 0x3FFFF;
  }

  /// Calls f(row, chunk, offset) for an operand of `size` rows or columns and 16 k.
  template <class F>
  void each_chunk(unsigned size, F f) const {
    const unsigned rows = mn_major ? 16 : size, chunks = (mn_major ? size : 16) / 8;
    for (unsigned row = 0; row < rows; ++row)
      for (unsigned chunk = 0; chunk < chunks; ++chunk) f(row, chunk, chunk_at(row, chunk));
  }
};

float to_float(uint16_t bits, bool bf16) {
  return bf16 ? bfloat16_to_float(bits) : half_to_float(bits);
}

/// out[k][i] = element i, k of the operand.
void load(float* out, const Operand& operand, unsigned size, bool bf16, const char* window) {
  operand.each_chunk(size, [&](unsigned row, unsigned chunk, uint32_t offset) {
    uint16_t bits[8];
    memcpy(bits, window + offset, 16);
    for (unsigned e = 0; e < 8; ++e) {
      const unsigned k = operand.mn_major ? row : chunk * 8 + e;
      const unsigned i = operand.mn_major ? chunk * 8 + e : row;
      out[k * size + i] = to_float(bits[e], bf16);
    }
  });
}

void multiply(const Wgmma& w, const Cta& cta) {
  float a[16 * 64], b[16 * 256];
  if (w.rows_a.empty())
    load(a, Operand(w.desc_a, w.mn_a), 64, w.bf16, cta.smem);
  else
    for (unsigned i = 0; i < 64 * 16; ++i)
      a[i % 16 * 64 + i / 16] = to_float(w.rows_a[i], w.bf16);
  load(b, Operand(w.desc_b, w.mn_b), w.n, w.bf16, cta.smem);
  float* tile = w.acc->tile.data();
  if (!w.scale_d) std::fill(w.acc->tile.begin(), w.acc->tile.end(), 0.0f);
  for (unsigned m = 0; m < 64; ++m)
    for (unsigned k = 0; k < 16; ++k) {
      const float x = a[k * 64 + m];
      const float* row = b + k * w.n;
      float* d = tile + m * w.n;
      for (unsigned n = 0; n < w.n; ++n) d[n] += x * row[n];
    }
  state.counters.wgmma_flops += uint64_t(2) * 64 * w.n * 16;
}

/// Calls f(register, element of the tile) for all registers of all 128 threads.
template <class F>
void each_register(Accumulator& acc, F f) {
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned i = 0; i < acc.columns / 2; ++i) {
      const unsigned row = t / 32 * 16 + t % 32 / 4 + i / 2 % 2 * 8;
      const unsigned column = i / 4 * 8 + t % 4 * 2 + i % 2;
      f(acc.registers[t][i], acc.tile[row * acc.columns + column]);
    }
}

/// The accumulator in these registers; new ones are loaded and poisoned.
Accumulator& accumulator(Warpgroup& g, unsigned n, Loc here) {
  Accumulator* acc = nullptr;
  for (auto& known : g.accumulators)
    if (known->registers[0] == g.registers[0] && known->columns == n) acc = known.get();
  Thread* first = self - self->linear % 128;
  if (!acc) {
    g.accumulators.push_back(std::make_unique<Accumulator>());
    acc = g.accumulators.back().get();
    acc->columns = n;
    acc->tile.resize(64 * n);
    acc->touched = !self->wgmma_fenced;
    for (unsigned t = 0; t < 128; ++t) {
      acc->registers[t] = g.registers[t];
      Thread& owner = first[t];
      owner.acc_low = std::min(owner.acc_low, uintptr_t(g.registers[t]));
      owner.acc_high = std::max(owner.acc_high, uintptr_t(g.registers[t] + n / 2));
    }
  }
  if (acc->touched)
    report("missing wgmma_fence", site(here), [] {
      return accumulator_text("%s was used by other instructions, and no wgmma_fence ran since");
    });
  if (acc->pending++ == 0)
    each_register(*acc, [](float& reg, float& element) {
      element = reg;
      reg = bits_to_float(~0u);
    });
  return *acc;
}

/// A wgmma sees what all 128 threads of its warpgroup know.
struct Known {
  Clock all, at_fence;
};
Known known_to_all(const Thread* first) {
  Known k{first->known, first->known_at_proxy_fence};
  for (unsigned t = 1; t < 128; ++t) {
    k.all = meet(k.all, first[t].known);
    k.at_fence = meet(k.at_fence, first[t].known_at_proxy_fence);
  }
  return k;
}

void check_operand(const Operand& operand, unsigned size, const View& v, const Clock& fence,
                   Site at) {
  bool outside = false;
  operand.each_chunk(size, [&](unsigned, unsigned, uint32_t offset) {
    Cta& cta = *self->cta;
    const uintptr_t a = uintptr_t(cta.smem) + offset;
    if (!cta.dynamic.contains(a)) {
      if (!outside) checked_region(a, 16, false, "wgmma reads", at);
      outside = true;
      return;
    }
    shadow_read(cta.dynamic, a, 16, at, v, Proxy::async, &fence);
  });
}

/// A from the registers of mma.m16n8k16, one such fragment of 16 rows per warp.
std::vector<uint16_t> gather_a(const uint32_t* const* frag_a) {
  std::vector<uint16_t> rows(64 * 16);
  for (unsigned t = 0; t < 128; ++t)
    for (unsigned r = 0; r < 4; ++r)
      for (unsigned i = 0; i < 2; ++i) {
        const unsigned row = t / 32 * 16 + t % 32 / 4 + r % 2 * 8;
        const unsigned k = t % 4 * 2 + r / 2 * 8 + i;
        rows[row * 16 + k] = uint16_t(frag_a[t][r] >> (16 * i));
      }
  return rows;
}

void retire(Warpgroup& g, Loc here) {
  for (Wgmma& w : g.groups.front()) {
    if (tracing)
      for (uint64_t desc : {w.desc_a, w.desc_b})
        trace("wgmma waited for, had read",
              uintptr_t(self->cta->smem) + Operand(desc, false).start, site(here));
    multiply(w, *self->cta);
    if (--w.acc->pending == 0)
      each_register(*w.acc, [](float& reg, float& element) { reg = element; });
  }
  g.groups.erase(g.groups.begin());
  ++g.retired;
}

}  // namespace

/// For reports: registers have no other name.
std::string accumulator_text(const char* pattern) {
  place_named = true;
  const std::string name =
      self ? format("the accumulator of warpgroup %u", self->warpgroup()) : "an accumulator";
  return format(pattern, name.c_str());
}

void touch_accumulator(Thread* t, uintptr_t a, Site at) {
  for (auto& acc : t->cta->warpgroups[t->warpgroup()].accumulators) {
    if (a - uintptr_t(acc->registers[t->linear % 128]) >= acc->columns * 2) continue;
    if (acc->pending)
      report("accumulator in flight", at, [] {
        return accumulator_text("uses registers of %s while a wgmma on it is in flight");
      });
    acc->touched = true;
  }
}

void wgmma_fence(Loc here) {
  if (mutated("wgmma_fence", here) == Mutation::skip) return;
  self->wgmma_fenced = true;
  for (auto& acc : own_warpgroup().accumulators) acc->touched = false;
}

void wgmma(float* acc, unsigned n, const uint32_t* frag_a, uint64_t desc_a, uint64_t desc_b,
           bool scale_d, bool mn_a, bool mn_b, bool bf16, Loc here) {
  Warpgroup& g = own_warpgroup();
  g.registers[self->linear % 128] = acc;
  g.frag_a[self->linear % 128] = frag_a;
  self->multiplies = true;
  meet_all(g.meeting, 128, "wgmma", here, false, [&] {
    const Site at = site(here);
    Wgmma w{&accumulator(g, n, here), desc_a, desc_b, {}, scale_d, mn_a, mn_b, bf16, n, here};
    const Known known = known_to_all(self - self->linear % 128);
    const View v{known.all.get(), ~0u, 0, 0, g.agent, g.committed + 1};
    if (frag_a)
      w.rows_a = gather_a(g.frag_a);
    else
      check_operand(Operand(desc_a, mn_a), 64, v, known.at_fence, at);
    check_operand(Operand(desc_b, mn_b), n, v, known.at_fence, at);
    if (tracing)
      for (uint64_t desc : {desc_a, desc_b})
        trace("wgmma issued, reads", uintptr_t(self->cta->smem) + Operand(desc, false).start, at);
    g.open.push_back(std::move(w));
  });
}

void wgmma_commit_group(Loc here) {
  if (mutated("wgmma_commit_group", here) == Mutation::skip) return;
  Warpgroup& g = own_warpgroup();
  meet_all(g.meeting, 128, "wgmma_commit_group", here, false, [&] {
    g.groups.push_back(std::move(g.open));
    g.open.clear();
    ++g.committed;
  });
}

void wgmma_wait_group(unsigned n, Loc here) {
  const Mutation m = mutated("wgmma_wait_group", here, true);
  if (m == Mutation::skip) return;
  if (m == Mutation::change) ++n;
  Warpgroup& g = own_warpgroup();
  meet_all(g.meeting, 128, "wgmma_wait_group", here, false, [&] {
    while (g.groups.size() > n) retire(g, here);
    state.counters.wgmma_ahead = std::max<uint64_t>(state.counters.wgmma_ahead, g.groups.size());
  });
  self->known = raised(self->known, g.agent, g.retired, state.clock_size);
}

void setmaxnreg(int registers, Loc here) {
  if (registers < 24 || registers > 256 || registers % 8)
    report("illegal setmaxnreg", site(here), [&] {
      return format("%d registers: 24 to 256, a multiple of 8", registers);
    });
}

}  // namespace emu

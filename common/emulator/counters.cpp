// Counters: what an access costs the memory system. One request is what the lanes of a warp do at
// the same place of the program; global memory moves sectors of 32 bytes, shared memory one word of
// each of 32 banks per wavefront.
#include <algorithm>
#include <cstring>

#include "common/emulator/report.h"

namespace emu {
namespace {

struct Lane {
  uintptr_t address;
  unsigned bytes;
};

/// Distinct words of the busiest bank, and over all banks.
struct Banks {
  unsigned most = 0, words = 0;
};

Banks banks(const Lane* lanes, size_t n) {
  uint32_t words[128];
  unsigned count = 0;
  for (size_t i = 0; i < n; ++i)
    for (unsigned b = 0; b < std::max(4u, lanes[i].bytes) && count < 128; b += 4)
      words[count++] = uint32_t((lanes[i].address + b) / 4);
  const uint32_t first = count ? words[0] / 32 : 0;
  uint32_t other_rows = 0, seen = 0;
  bool ascending = true;
  for (unsigned i = 0; i < count; ++i) {
    other_rows |= words[i] / 32 ^ first;
    seen |= 1u << words[i] % 32;
    ascending &= i == 0 || words[i] >= words[i - 1];
  }
  if (!other_rows) return {count ? 1u : 0u, unsigned(__builtin_popcount(seen))};  // mostly
  if (!ascending) std::sort(words, words + count);
  count = unsigned(std::unique(words, words + count) - words);
  unsigned per_bank[32] = {}, most = 0;
  for (unsigned i = 0; i < count; ++i) most = std::max(most, ++per_bank[words[i] % 32]);
  return {most, count};
}

/// Wide accesses go in phases of 128 bytes; two neighbouring phases go as one where they still
/// have no conflict (all the same words, for example).
void count_shared(Access& c, const Lane* lanes, size_t n) {
  unsigned size = 4;
  for (size_t i = 0; i < n; ++i) size = std::max(size, lanes[i].bytes);
  const size_t phase = 128 / size;
  const Banks all = banks(lanes, n);
  ++c.requests;
  c.ideal += std::max(1u, (all.words + 31) / 32);
  if (phase >= 32) {
    c.wavefronts += all.most;
    return;
  }
  for (size_t i = 0; i < n; i += 2 * phase) {
    const size_t m = std::min(n - i, 2 * phase), first = std::min(m, phase);
    const unsigned both = banks(lanes + i, m).most;
    c.wavefronts += both <= 1 ? both
                              : banks(lanes + i, first).most +
                                    banks(lanes + i + first, m - first).most;
  }
}

void count_global(Access& c, const Lane* lanes, size_t n) {
  uintptr_t sectors[32 * 2];
  unsigned count = 0;
  for (size_t i = 0; i < n; ++i) {
    c.bytes += lanes[i].bytes;
    const uintptr_t last = (lanes[i].address + lanes[i].bytes - 1) / 32;
    for (uintptr_t s = lanes[i].address / 32; s <= last && count < 64; ++s)
      if (!count || sectors[count - 1] != s) sectors[count++] = s;
  }
  if (!std::is_sorted(sectors, sectors + count)) std::sort(sectors, sectors + count);
  ++c.requests;
  c.sectors += uint64_t(std::unique(sectors, sectors + count) - sectors);
}

void count_request(AccessKind kind, const Lane* lanes, size_t n) {
  Counters& c = state.counters;
  switch (kind) {
    case kGlobalLoad: return count_global(c.global_load, lanes, n);
    case kGlobalStore: return count_global(c.global_store, lanes, n);
    case kSharedLoad: return count_shared(c.shared_load, lanes, n);
    case kSharedStore: return count_shared(c.shared_store, lanes, n);
    case kCpAsync: return count_shared(c.cp_async, lanes, n);
  }
}

}  // namespace

/// Lanes reach a place in the same order; a lane that is elsewhere makes a request of its own.
static void count_warp(Thread* const threads, size_t lanes_in_warp) {
  size_t next[32] = {};
  for (size_t lead = 0; lead < lanes_in_warp;) {
    if (next[lead] == threads[lead].log.size()) {
      threads[lead++].log.clear();
      continue;
    }
    const LoggedAccess first = threads[lead].log[next[lead]];
    Lane lanes[32];
    size_t n = 0;
    for (size_t i = lead; i < lanes_in_warp; ++i) {
      if (next[i] == threads[i].log.size()) continue;
      const LoggedAccess& a = threads[i].log[next[i]];
      if (a.site != first.site || a.kind != first.kind) continue;
      ++next[i];
      lanes[n++] = {a.address, a.bytes};
    }
    count_request(first.kind, lanes, n);
  }
}

void count_accesses(Cta& cta) {
  for (size_t t = 0; t < cta.threads.size(); t += 32)
    count_warp(&cta.threads[t], std::min<size_t>(32, cta.threads.size() - t));
}

void count_matrix(Access& c, const void* const* rows, unsigned matrices) {
  ++c.requests;
  c.bytes += matrices * 128;
  c.ideal += matrices;
  for (unsigned m = 0; m < matrices; ++m) {
    Lane lanes[8];
    for (int i = 0; i < 8; ++i) lanes[i] = {offset_of(uintptr_t(rows[m * 8 + i])), 16};
    c.wavefronts += banks(lanes, 8).most;
  }
}

/// What a load finds if the newest boxes are kept: an L2 that has whole boxes and no sets. It tells
/// whether a kernel comes back to what it has just read, not what a GPU would hit.
void count_l2(uintptr_t box, size_t bytes) {
  auto& l2 = state.l2;
  const auto found = std::find_if(l2.begin(), l2.end(), [&](auto& b) { return b.first == box; });
  if (found == l2.end())
    state.counters.tma_miss_bytes += bytes;
  else
    l2.erase(found);
  l2.emplace_front(box, bytes);
  size_t kept = 0;
  for (const auto& b : l2) kept += b.second;
  for (; kept > kL2PerSm * size_t(num_sms()); l2.pop_back()) kept -= l2.back().second;
}

const Counters& counters() { return state.counters; }
std::vector<std::pair<std::string, double>> counters_list(const Counters& c) {
  std::vector<std::pair<std::string, double>> list;
  auto add = [&](const std::string& name, uint64_t n) { list.emplace_back(name, double(n)); };
  add("blocks", c.blocks);
  auto global = [&](const std::string& name, const Access& a) {
    add(name + "_requests", a.requests);
    add(name + "_sectors", a.sectors);
    add(name + "_bytes", a.bytes);
  };
  auto shared = [&](const std::string& name, const Access& a) {
    add(name + "_requests", a.requests);
    add(name + "_wavefronts", a.wavefronts);
    add(name + "_ideal_wavefronts", a.ideal);
  };
  global("global_load", c.global_load);
  global("global_store", c.global_store);
  shared("shared_load", c.shared_load);
  shared("shared_store", c.shared_store);
  shared("ldmatrix", c.ldmatrix);
  shared("stmatrix", c.stmatrix);
  shared("cp_async", c.cp_async);
  add("cp_async_bytes", c.cp_async.bytes);
  add("tma_load_bytes", c.tma_load_bytes);
  add("tma_store_bytes", c.tma_store_bytes);
  add("mma_flops", c.mma_flops);
  add("wgmma_flops", c.wgmma_flops);
  add("barriers", c.barriers);
  add("mbarrier_arrivals", c.mbarrier_arrivals);
  add("mbarrier_waits", c.mbarrier_waits);
  add("atomics", c.atomics);
  add("tma_multicast_bytes", c.tma_multicast_bytes);
  add("tma_miss_bytes", c.tma_miss_bytes);
  add("cp_async_ahead", c.cp_async_ahead);
  add("wgmma_ahead", c.wgmma_ahead);
  return list;
}

}  // namespace emu

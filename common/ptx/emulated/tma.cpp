// TMA: boxes of a tensor between global and shared memory. A load is poison until it lands, which
// it does when nothing else can go on; a store reads shared memory when it is waited for.
#include <cstring>

#include "common/emulator/mutate.h"
#include "common/emulator/report.h"

namespace emu {
namespace {

unsigned box_bytes(const CUtensorMap& m) {
  unsigned bytes = m.element;
  for (int d = 0; d < m.rank; ++d) bytes *= m.box[d];
  return bytes;
}

/// Bytes from row to row in shared memory: a swizzled row takes the swizzle's width, also where the
/// box is narrower (agreement.cu, on an H200; what lies beside it is left alone).
unsigned pitch_of(const CUtensorMap& m) {
  return m.swizzle ? m.swizzle : m.box[0] * m.element;
}

/// From its first to its last byte there.
unsigned shared_bytes(const CUtensorMap& m) {
  return box_bytes(m) / (m.box[0] * m.element) * pitch_of(m);
}

/// Calls f(shared address, global address or null, bytes inside the tensor) for every 16-byte
/// chunk of the box. Rows follow each other in shared memory, dimension 1 fastest; the swizzle is
/// a function of the address in the window.
template <class F>
void each_chunk(const CUtensorMap& m, char* smem, const int* coords, F f) {
  const unsigned row_bytes = m.box[0] * m.element;
  unsigned rows = 1;
  for (int d = 1; d < m.rank; ++d) rows *= m.box[d];
  const uint32_t window = offset_of(uintptr_t(smem));
  for (unsigned row = 0; row < rows; ++row) {
    char* line = static_cast<char*>(m.base);
    bool inside = true;
    unsigned rest = row;
    for (int d = 1; d < m.rank; ++d) {
      const int64_t at = int64_t(coords[d]) + rest % m.box[d];
      rest /= m.box[d];
      inside &= at >= 0 && at < int64_t(m.size[d]);
      line += at * int64_t(m.stride[d - 1]);
    }
    for (unsigned byte = 0; byte < row_bytes; byte += 16) {
      uint32_t at = window + row * pitch_of(m) + byte;
      if (m.swizzle) at ^= (at >> 7 & (m.swizzle / 16u - 1)) << 4;
      const int64_t x = int64_t(coords[0]) + byte / m.element;
      const int64_t left = (int64_t(m.size[0]) - x) * m.element;
      const bool any = inside && x >= 0 && left > 0;
      f(smem + (int64_t(at) - window), any ? line + x * m.element : nullptr,
        any ? unsigned(left < 16 ? left : 16) : 0);
    }
  }
}

/// Calls f(shared address, bytes) for what the box takes of shared memory: one piece, or, narrower
/// than its swizzle, chunks.
template <class F>
void each_piece(const CUtensorMap& m, char* smem, F f) {
  const int origin[5] = {};
  if (pitch_of(m) == m.box[0] * m.element)
    f(smem, box_bytes(m));
  else
    each_chunk(m, smem, origin, [&](char* chunk, char*, unsigned) { f(chunk, 16u); });
}

/// What the hardware refuses at run time, in one place. False after a report.
bool legal(const CUtensorMap& m, const void* smem, const int* coords, unsigned rank, bool store,
           Site at) {
  std::string why;
  if (m.rank != rank)
    why = format("the tensor map has %u dimensions, the instruction %u", m.rank, rank);
  else if (coords[0] * int(m.element) % 16)
    why = format("innermost coordinate %d: its offset must be a multiple of 16 bytes", coords[0]);
  else if (uintptr_t(smem) % 128)
    why = format("%s: the shared-memory address must be a multiple of 128 bytes",
                 place(uintptr_t(smem)).c_str());
  for (unsigned d = 0; store && d < rank && why.empty(); ++d)
    if (coords[d] < 0) why = format("coordinate %d of a store is negative: %d", d, coords[d]);
  if (!why.empty()) report("illegal TMA", at, [&] { return why; });
  return why.empty();
}

/// The bytes of global memory that the map describes must be those of a buffer.
Region* tensor_region(const CUtensorMap& m, const char* does, Site at) {
  size_t bytes = size_t(m.size[0]) * m.element;
  for (int d = 1; d < m.rank; ++d) bytes += (m.size[d] - 1) * m.stride[d - 1];
  return checked_region(uintptr_t(m.base), bytes, true, does, at);
}

void perform(const TmaStore& s) {
  const Site at = site(s.here);
  Region* r = tensor_region(s.map, "TMA store to a tensor of", at);
  if (!r) return;
  each_chunk(s.map, const_cast<char*>(s.smem), s.coords, [&](char* from, char* to, unsigned n) {
    if (!n) return;
    // The hardware clips in chunks of 16 bytes: where a row ends inside one, what follows the row
    // is overwritten too (agreement.cu, on an H200).
    n = 16;
    if (!checked_region(uintptr_t(to), n, true, "TMA store writes", at)) return;
    shadow_write(*r, uintptr_t(to), n, at, view_of(self), Proxy::async, "TMA store writes");
    memcpy(to, from, n);
  });
  state.counters.tma_store_bytes += box_bytes(s.map);
}

}  // namespace

CUtensorMap tensor_map(const void* base, unsigned rank, const int64_t* size,
                       const int64_t* stride_bytes, const int* box, unsigned element,
                       unsigned swizzle, std::string& error) {
  CUtensorMap m{};
  m.base = const_cast<void*>(base);
  m.rank = uint8_t(rank);
  m.element = uint8_t(element);
  m.swizzle = uint8_t(swizzle);
  if (uintptr_t(base) % 16) error = "the base is not a multiple of 16 bytes";
  for (unsigned d = 0; d < rank; ++d) {
    if (size[d] < 1 || size[d] > int64_t(1) << 32)
      error = format("dimension %u has %ld elements", d, long(size[d]));
    if (box[d] < 1 || box[d] > 256) error = format("the box is %d wide: 1 to 256", box[d]);
    m.size[d] = uint32_t(size[d]);
    m.box[d] = uint16_t(box[d]);
    if (d == 0) continue;
    m.stride[d - 1] = uint64_t(stride_bytes[d - 1]);
    if (stride_bytes[d - 1] % 16 || stride_bytes[d - 1] <= 0)
      error = format("rows are %ld bytes apart, not a multiple of 16", long(stride_bytes[d - 1]));
  }
  const unsigned row = unsigned(box[0]) * element;
  if (row % 16) error = format("a row of the box is %u bytes, not a multiple of 16", row);
  if (swizzle && row > swizzle)
    error = format("a row of the box is %u bytes, wider than the swizzle of %u", row, swizzle);
  return m;
}

void tma_load(void* smem, const CUtensorMap* map, const int* coords, unsigned rank, uint64_t* bar,
              uint16_t ctas, Loc here) {
  const Site at = site(here);
  const unsigned bytes = box_bytes(*map);
  self->loads = true;
  if (!legal(*map, smem, coords, rank, false, at)) return;
  Region* source = tensor_region(*map, "TMA load from a tensor of", at);
  if (!source) return;
  Cluster& cluster = *self->cta->cluster;
  if (!ctas) ctas = uint16_t(1u << self->cta->rank);
  if (ctas >> cluster.ctas.size())
    report("illegal TMA", at, [&] {
      return format("multicast mask 0x%x for a cluster of %zu blocks", ctas, cluster.ctas.size());
    });
  std::array<int, 5> c{};
  std::copy(coords, coords + rank, c.begin());
  uintptr_t box = uintptr_t(map->base) + uintptr_t(int64_t(c[0]) * map->element);
  for (unsigned d = 1; d < rank; ++d) box += uintptr_t(int64_t(c[d]) * int64_t(map->stride[d - 1]));
  count_l2(box, bytes);  // once, whoever gets it
  bool read = source->cells.empty();  // nothing writes there in this launch
  for (auto& target : cluster.ctas) {
    if (!(ctas >> target->rank & 1)) continue;
    Mbarrier* b = find_mbarrier(bar, target.get(), here, true);
    if (!b) return;
    if (!read) {  // it has been read for those who have waited for the (first) mbarrier
      View v = view_of(self);
      v.stamp = b->agent, v.tick = b->phase + 1;
      each_chunk(*map, static_cast<char*>(smem), coords, [&](char*, char* from, unsigned n) {
        if (n) shadow_read(*source, uintptr_t(from), n, at, v, Proxy::async, nullptr);
      });
      read = true;
    }
    char* to = target.get() == self->cta ? static_cast<char*>(smem)
                                         : same_offset(smem, target.get());
    Region* r = checked_region(uintptr_t(to), shared_bytes(*map), false, "TMA load writes", at);
    if (!r) return;
    View v = view_of(self);
    v.stamp = b->agent;
    v.tick = kInFlight;
    each_piece(*map, to, [&](char* piece, unsigned n) {
      shadow_write(*r, uintptr_t(piece), n, at, v, Proxy::async, "TMA load to");
      memset(piece, 0xFF, n);
    });
    trace("TMA load issued", uintptr_t(to), at);
    auto deliver = [b, to, bytes, at, r, c, map = *map, cta = target.get(), by = self] {
      if (!cta->live)
        report("block has ended", at, [&] {
          return format("multicast to block (%u,%u,%u), which has ended", cta->block.x,
                        cta->block.y, cta->block.z);
        }, by);
      each_chunk(map, to, c.data(), [](char* into, char* from, unsigned n) {
        if (n) memcpy(into, from, n);
        memset(into + n, 0, 16 - n);
      });
      each_piece(map, to, [&](char* piece, unsigned n) {
        land(*r, uintptr_t(piece), n, b->agent, b->phase + 1, Proxy::async);
      });
      trace("TMA load landed", uintptr_t(to), at);
      state.counters.tma_load_bytes += bytes;
      if (cta != by->cta) state.counters.tma_multicast_bytes += bytes;
      mbarrier_complete_tx(*b, bytes);
    };
    add_pending(std::move(deliver), target.get(), uintptr_t(to), at, "TMA load");
  }
}

void tma_store(const CUtensorMap* map, const void* smem, const int* coords, unsigned rank,
               Loc here) {
  const Site at = site(here);
  if (!legal(*map, smem, coords, rank, true, at)) return;
  Region* r = checked_region(uintptr_t(smem), shared_bytes(*map), false, "TMA store reads", at);
  if (!r) return;
  Thread& t = *self;
  if (!t.store_agent) {
    if (t.cta->next_store_agent == kStoreAgents)
      throw std::runtime_error("more than 32 threads of a block issue TMA stores");
    t.store_agent = first_agent(t.cta->slot) + unsigned(t.cta->warpgroups.size()) +
                    kMbarrierAgents + t.cta->next_store_agent++;
  }
  View v = view_of(self);
  v.stamp = t.store_agent;
  v.tick = t.stores_committed + 1;
  each_piece(*map, const_cast<char*>(static_cast<const char*>(smem)), [&](char* piece, unsigned n) {
    shadow_read(*r, uintptr_t(piece), n, at, v, Proxy::async, &t.known_at_proxy_fence);
  });
  trace("TMA store issued", uintptr_t(smem), at);
  TmaStore s{*map, static_cast<const char*>(smem), {}, here};
  std::copy(coords, coords + rank, s.coords);
  t.stores_open.push_back(s);
}

void tma_store_commit_group(Loc here) {
  if (mutated("tma_store_commit_group", here) == Mutation::skip) return;
  self->store_groups.push_back(std::move(self->stores_open));
  self->stores_open.clear();
  ++self->stores_committed;
}

void tma_store_wait_group(unsigned n, Loc here) {
  const Mutation m = mutated("tma_store_wait_group", here, true);
  if (m == Mutation::skip) return;
  if (m == Mutation::change) ++n;
  Thread& t = *self;
  while (t.store_groups.size() > n) {
    for (const TmaStore& s : t.store_groups.front()) perform(s);
    t.store_groups.erase(t.store_groups.begin());
  }
  if (t.store_agent)
    t.known = raised(t.known, t.store_agent, t.stores_committed - Tick(t.store_groups.size()),
                     state.clock_size);
}

}  // namespace emu

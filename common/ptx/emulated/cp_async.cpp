// cp.async: copies of single threads. The destination is poison until the thread waits for its
// group, or until an mbarrier arrival that follows the copies is delivered.
#include <cstring>

#include "common/emulator/mutate.h"
#include "common/emulator/report.h"

namespace emu {
namespace {

void land_copy(CpAsync& copy, unsigned writer, Tick tick) {
  if (copy.landed) return;
  copy.landed = true;
  if (copy.from_gmem) memcpy(copy.smem, copy.gmem, copy.from_gmem);
  memset(copy.smem + copy.from_gmem, 0, copy.bytes - copy.from_gmem);
  land(*region_of(uintptr_t(copy.smem)), uintptr_t(copy.smem), copy.bytes, writer, tick,
       Proxy::generic);
}

}  // namespace

void cp_async(void* smem, const void* gmem, unsigned bytes, unsigned from_gmem, Loc here) {
  const Site at = site(here);
  const uintptr_t to = uintptr_t(smem), from = uintptr_t(gmem);
  Region* r = checked_region(to, bytes, false, "cp.async writes", at);
  if (!r) return;
  if (from_gmem > bytes) {
    report("illegal cp.async", at, [&] {
      return format("%u of %u bytes from global memory", from_gmem, bytes);
    });
    return;
  }
  if (from_gmem) {
    Region* source = checked_region(from, from_gmem, true, "cp.async reads", at);
    if (!source) return;
    shadow_read(*source, from, from_gmem, at, view_of(self), Proxy::generic, nullptr);
  }
  if (to % bytes || (from_gmem && from % bytes)) {
    report("misaligned", at, [&] {
      return format("cp.async of %u bytes from %s to %s: both must be multiples of %u", bytes,
                    place(from).c_str(), place(to).c_str(), bytes);
    });
    return;
  }
  View v = view_of(self);
  v.tick = kInFlight;
  shadow_write(*r, to, bytes, at, v, Proxy::generic, "cp.async to");
  memset(smem, 0xFF, bytes);
  trace("cp.async issued", to, at);
  self->loads = true;
  self->cp_open.push_back(std::make_shared<CpAsync>(
      CpAsync{static_cast<char*>(smem), static_cast<const char*>(gmem), bytes, from_gmem,
              at}));
  state.counters.cp_async.bytes += from_gmem;
  log_access(to - r->begin, bytes, kCpAsync, at);
}

void cp_async_commit_group(Loc here) {
  if (mutated("cp_async_commit_group", here) == Mutation::skip) return;
  self->cp_groups.push_back(std::move(self->cp_open));
  self->cp_open.clear();
}

void cp_async_wait_group(unsigned n, Loc here) {
  const Mutation m = mutated("cp_async_wait_group", here, true);
  if (m == Mutation::skip) return;
  if (m == Mutation::change) ++n;
  while (self->cp_groups.size() > n) {
    for (auto& copy : self->cp_groups.front()) land_copy(*copy, self->id, self->now);
    self->cp_groups.erase(self->cp_groups.begin());
  }
  uint64_t ahead = 0;  // a group without copies is not in flight
  for (const CpGroup& group : self->cp_groups) ahead += !group.empty();
  state.counters.cp_async_ahead = std::max(state.counters.cp_async_ahead, ahead);
}

void cp_async_mbarrier_arrive(uint64_t* bar, Loc here) {
  if (mutated("cp_async_mbarrier_arrive_noinc", here) == Mutation::skip) return;
  Mbarrier* b = find_mbarrier(bar, self->cta, here, false);
  if (!b) return;
  CpGroup copies;  // all of this thread's that have not landed
  auto take = [&](CpGroup& group) {
    group.erase(std::remove_if(group.begin(), group.end(), [](auto& c) { return c->landed; }),
                group.end());
    copies.insert(copies.end(), group.begin(), group.end());
  };
  for (CpGroup& group : self->cp_groups) take(group);
  take(self->cp_open);
  const Site at = site(here);
  ++state.counters.mbarrier_arrivals;
  if (!self->cp_arrivals)
    self->cp_arrivals = std::make_shared<std::deque<std::function<void()>>>();
  // A thread's arrivals are delivered in order: each one follows all that the one before followed.
  self->cp_arrivals->push_back([b, copies = std::move(copies), at] {
    for (auto& copy : copies) land_copy(*copy, b->agent, b->phase + 1);
    mbarrier_arrive_one(*b, at, "cp_async_mbarrier_arrive_noinc");
  });
  auto deliver_oldest = [arrivals = self->cp_arrivals] {
    const auto oldest = std::move(arrivals->front());
    arrivals->pop_front();
    oldest();
  };
  add_pending(std::move(deliver_oldest), self->cta, uintptr_t(bar), at, "arrival of cp.async");
}

}  // namespace emu

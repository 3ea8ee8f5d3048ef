// mbarriers: arrivals and bytes in shared memory, and the fences that go with asynchronous copies.
#include "common/emulator/mutate.h"
#include "common/emulator/report.h"

namespace emu {
namespace {

/// A phase is complete when no arrival and no byte is missing.
void complete_if_done(Mbarrier& b) {
  if (b.pending || b.tx) return;
  b.arrivals.add(b.agent, b.phase + 1, state.clock_size);
  b.done = b.arrivals.take();
  ++b.phase;
  b.pending = b.count;
  ++state.progress;
  trace("phase completed", uintptr_t(b.cta->smem) + b.offset, 0);
  for (Thread& t : b.cta->threads)
    if (t.waits_on == &b && (b.phase & 1) != t.waits_parity) wake(&t);
}

bool complete(const Mbarrier& b, uint32_t parity) { return (b.phase & 1) != parity; }

}  // namespace

std::string name_of(const Mbarrier& b) { return label_at(b.offset); }

Mbarrier* find_mbarrier(const uint64_t* bar, Cta* of, Loc here, bool async_proxy) {
  const uint32_t offset = offset_of(uintptr_t(bar));
  auto it = of->mbarriers.find(offset);
  if (it == of->mbarriers.end()) {
    report("mbarrier misuse", site(here),
           [&] { return format("%s used before mbarrier_init", label_at(offset).c_str()); });
    return nullptr;
  }
  Mbarrier& b = it->second;
  const View v = view_of(self);
  if (!v.knows(b.init_thread, b.init_tick))
    report("race", site(here), [&] {
      return format("%s is used with no synchronisation after its mbarrier_init at %s",
                    name_of(b).c_str(), where(b.init_at).c_str());
    });
  else if ((async_proxy || of != self->cta) &&
           !fenced_between(v, b.init_thread, b.init_tick, true, &self->known_at_proxy_fence))
    report("missing fence", site(here), [&] {
      return format("%s is used by %s, and no fence_mbarrier_init ran after its mbarrier_init at "
                    "%s", name_of(b).c_str(),
                    async_proxy ? "an asynchronous copy" : "another block",
                    where(b.init_at).c_str());
    });
  return &b;
}

void mbarrier_init(uint64_t* bar, uint32_t arrivals, Loc here) {
  const Mutation m = mutated("mbarrier_init", here, true);
  if (m == Mutation::skip) return;
  if (m == Mutation::change) ++arrivals;
  const Site at = site(here);
  Region* r = checked_region(uintptr_t(bar), 8, false, "mbarrier_init writes", at);
  if (!r) return;
  if (uintptr_t(bar) % 8 || arrivals == 0 || arrivals >= 1u << 20)
    report("mbarrier misuse", at, [&] {
      return format("mbarrier_init of %s for %u arrivals: 8-byte aligned, 1 to 2^20 - 1",
                    place(uintptr_t(bar)).c_str(), arrivals);
    });
  shadow_write(*r, uintptr_t(bar), 8, at, view_of(self), Proxy::generic, "mbarrier_init writes");
  Cta* cta = self->cta;
  const uint32_t offset = offset_of(uintptr_t(bar));
  auto [it, fresh] = cta->mbarriers.try_emplace(offset);
  Mbarrier& b = it->second;
  if (fresh) {
    b.agent = first_agent(cta->slot) + unsigned(cta->warpgroups.size() + cta->mbarriers.size()) - 1;
    if (cta->mbarriers.size() > kMbarrierAgents) throw std::runtime_error("too many mbarriers");
  }
  b.cta = cta;
  b.offset = offset;
  b.count = b.pending = arrivals;
  b.tx = 0;
  b.phase += b.phase & 1;  // a fresh barrier is in an even phase; clocks must not go back
  b.init_thread = self->id;
  b.init_tick = self->now;
  b.init_at = here;
}

void mbarrier_arrive_one(Mbarrier& b, Site at, const char* what) {
  if (!b.cta->live) {
    report("block has ended", at, [&] {
      return format("%s on %s of block (%u,%u,%u), which has ended", what, name_of(b).c_str(),
                    b.cta->block.x, b.cta->block.y, b.cta->block.z);
    });
    return;
  }
  if (b.pending == 0) {
    report("mbarrier misuse", at, [&] {
      return format("%s on %s: its phase already has its %u arrivals and waits for %ld bytes", what,
                    name_of(b).c_str(), b.count, long(b.tx));
    });
    return;
  }
  --b.pending;
  complete_if_done(b);
}

void mbarrier_arrive(uint64_t* bar, uint32_t expect_tx, uint32_t rank, const char* what, Loc here) {
  const Mutation m = mutated(what, here, true);
  if (m == Mutation::skip) return;
  const Site at = site(here);
  Cta* cta = self->cta;
  if (rank != kThisCta) {
    if (rank >= cta->cluster->ctas.size()) {
      report("mbarrier misuse", at, [&] { return format("no block %u in the cluster", rank); });
      return;
    }
    cta = cta->cluster->ctas[rank].get();
  }
  Mbarrier* b = find_mbarrier(bar, cta, here, false);
  if (!b) return;
  ++state.counters.mbarrier_arrivals;
  trace(what, uintptr_t(b->cta->smem) + b->offset, at);
  b->tx += expect_tx;
  if (m == Mutation::change && expect_tx) b->tx += 16;
  release(self, b->arrivals);
  mbarrier_arrive_one(*b, at, what);
  if (m == Mutation::change && !expect_tx) mbarrier_arrive_one(*b, at, what);
}

void mbarrier_complete_tx(Mbarrier& b, unsigned bytes) {
  b.tx -= bytes;
  complete_if_done(b);
}

bool mbarrier_test_wait(uint64_t* bar, uint32_t parity, Loc here) {
  Mbarrier* b = find_mbarrier(bar, self->cta, here, false);
  if (!b) return true;
  if (!complete(*b, parity)) poll("mbarrier_test_wait", here);  // a kernel may spin on it
  if (!complete(*b, parity)) return false;
  acquire(self, b->done);
  return true;
}

void mbarrier_wait(uint64_t* bar, uint32_t parity, Loc here) {
  const Mutation m = mutated("mbarrier_wait", here, true);
  if (m == Mutation::skip) return;
  if (m == Mutation::change) parity ^= 1;
  Mbarrier* b = find_mbarrier(bar, self->cta, here, false);
  if (!b) return;
  ++state.counters.mbarrier_waits;
  trace("mbarrier_wait", uintptr_t(bar), site(here));
  if (!complete(*b, parity)) {
    self->waits_on = b;
    self->waits_parity = parity;
    block_self("mbarrier_wait", here);
  }
  acquire(self, b->done);
}

void fence_mbarrier_init(Loc here) {
  if (mutated("fence_mbarrier_init", here) == Mutation::skip) return;
  self->init_fences.push_back(self->now++);
}

void fence_proxy_async(Loc here) {
  if (mutated("fence_proxy_async", here) == Mutation::skip) return;
  self->proxy_fences.push_back(self->now++);
  self->known_at_proxy_fence = self->known;
}

}  // namespace emu

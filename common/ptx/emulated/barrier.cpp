// Threads that meet: __syncthreads and named barriers, warps, clusters.
#include "common/ptx/emulated/meet.h"
#include "common/emulator/mutate.h"

namespace emu {
namespace {

/// One arrival at a barrier of the block.
void arrive(Meeting& m, unsigned expected, const char* what, Loc here) {
  if (m.arrived && m.expected != expected)
    report("barrier misuse", site(here), [&] {
      return format("%s for %u threads; others arrived at the same barrier for %u, at %s", what,
                    expected, m.expected, where(m.here).c_str());
    });
  if (!m.arrived) m.here = here;
  m.expected = expected;
  ++m.arrived;
  release(self, m.sum);
}

}  // namespace

unsigned lane() { return self->lane(); }

void bar_sync(int id, unsigned threads, const char* what, Loc here) {
  if (mutated(what, here) == Mutation::skip) return;
  const bool whole_block = threads == 0 || threads == state.block_threads;
  if (id < 0 || id > 15 || threads % 32) {
    report("barrier misuse", site(here), [&] {
      return format("barrier %d for %u threads: ids are 0 to 15, threads a multiple of 32", id,
                    threads);
    });
    return;
  }
  Meeting& m = self->cta->barriers[id];
  arrive(m, threads ? threads : state.block_threads, what, here);
  ++state.counters.barriers;
  if (m.arrived < m.expected) {
    m.waiting.push_back(self);
    block_self(what, here);
    return;
  }
  if (whole_block) count_accesses(*self->cta);
  acquire(self, finish(m));
}

void bar_arrive(int id, unsigned threads, Loc here) {
  if (mutated("bar_arrive", here) == Mutation::skip) return;
  Meeting& m = self->cta->barriers[id & 15];
  arrive(m, threads, "bar_arrive", here);
  if (m.arrived == m.expected) finish(m);
}

void warp_sync(Loc here) {
  if (mutated("__syncwarp", here) == Mutation::skip) return;
  meet_all(own_warp().meeting, warp_threads(), "__syncwarp", here, true, [] {});
}

uint64_t warp_shuffle(uint64_t value, unsigned from_lane, Loc here) {
  Warp& w = own_warp();
  uint64_t result = 0;
  w.value[lane()] = value;
  w.out[lane()] = &result;
  w.in[lane()] = reinterpret_cast<const void*>(uintptr_t(from_lane % 32));
  const unsigned n = warp_threads();
  meet_all(w.meeting, n, "shuffle", here, false, [&] {
    for (unsigned i = 0; i < n; ++i)
      *static_cast<uint64_t*>(w.out[i]) = w.value[uintptr_t(w.in[i])];
  });
  return result;
}

unsigned warp_ballot(bool predicate, Loc here) {
  Warp& w = own_warp();
  unsigned result = 0;
  w.value[lane()] = predicate;
  w.out[lane()] = &result;
  const unsigned n = warp_threads();
  meet_all(w.meeting, n, "ballot", here, false, [&] {
    unsigned bits = 0;
    for (unsigned i = 0; i < n; ++i) bits |= unsigned(w.value[i]) << i;
    for (unsigned i = 0; i < n; ++i) *static_cast<unsigned*>(w.out[i]) = bits;
  });
  return result;
}

// ---- clusters: a thread that has ended no longer counts -----------------------------------------

uint32_t cluster_ctarank() { return self->cta->rank; }

void* mapa(const void* smem, uint32_t cta, Loc here) {
  const Cluster& cluster = *self->cta->cluster;
  if (cta < cluster.ctas.size()) return same_offset(smem, cluster.ctas[cta].get());
  report("out of bounds", site(here), [&] { return format("no block %u in the cluster", cta); });
  return const_cast<void*>(smem);
}

static void complete_if_all_arrived(Cluster& c) {
  if (!c.barrier.arrived || c.barrier.arrived < c.live) return;
  ++c.phase;
  c.done = finish(c.barrier);
}

void leave_cluster_barrier(Thread* t) {
  Cluster& c = *t->cta->cluster;
  if (t->cluster_arrived && t->cluster_phase == c.phase) --c.barrier.arrived;
  complete_if_all_arrived(c);
}

static void arrive_at_cluster(Loc here, bool relaxed = false) {
  Cluster& c = *self->cta->cluster;
  if (self->cluster_arrived)
    report("barrier misuse", site(here),
           [] { return std::string("cluster_arrive twice without cluster_wait"); });
  self->cluster_arrived = true;
  self->cluster_phase = c.phase;
  ++c.barrier.arrived;
  if (!relaxed) release(self, c.barrier.sum);
  ++state.counters.barriers;
  complete_if_all_arrived(c);
}

static void wait_for_cluster(const char* what, Loc here) {
  Cluster& c = *self->cta->cluster;
  if (!self->cluster_arrived) {
    report("barrier misuse", site(here),
           [] { return std::string("cluster_wait without cluster_arrive"); });
    return;
  }
  if (self->cluster_phase == c.phase) {
    c.barrier.waiting.push_back(self);
    block_self(what, here);
  }
  self->cluster_arrived = false;
  acquire(self, c.done);
}

void cluster_arrive(Loc here) {
  if (mutated("cluster_arrive", here) == Mutation::none) arrive_at_cluster(here);
}

void cluster_arrive_relaxed(Loc here) {
  if (mutated("cluster_arrive_relaxed", here) == Mutation::none) arrive_at_cluster(here, true);
}

void cluster_wait(Loc here) {
  if (mutated("cluster_wait", here) == Mutation::none)
    wait_for_cluster("cluster_wait", here);
  else
    self->cluster_arrived = false;
}

void cluster_sync(Loc here) {
  if (mutated("cluster_sync", here) != Mutation::none) return;
  arrive_at_cluster(here);
  wait_for_cluster("cluster_sync", here);
}

}  // namespace emu

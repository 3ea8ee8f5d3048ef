// Atomics, flags in global memory through which blocks wait for each other, and what is not needed
// there any more.
#include <cstring>
#include <unordered_map>

#include "common/emulator/mutate.h"
#include "common/emulator/report.h"

namespace emu {
namespace {

std::unordered_map<uintptr_t, Clock> flag_clocks;  // what those who wrote a flag released

Clock released_to(uintptr_t flag) {
  auto it = flag_clocks.find(flag);
  return it == flag_clocks.end() ? nullptr : it->second;
}

void release_to(uintptr_t flag, const Clock& what) {
  Clock& c = flag_clocks[flag];
  c = join(c, what);
}

Clock everything_up_to_now() {
  ClockSum sum;
  release(self, sum);
  return sum.take();
}

}  // namespace

void reset_flags() { flag_clocks.clear(); }

void atomic_read(void* value, const void* p, size_t bytes, Loc here) {
  memset(value, 0, bytes);
  Region* r = region_of(uintptr_t(p));
  if (!r && !checked_region(uintptr_t(p), bytes, true, "an atomic of", site(here))) return;
  memcpy(value, p, bytes);
  ++state.counters.atomics;
  self->acquired_by_fence = join(self->acquired_by_fence, released_to(uintptr_t(p)));
}

void atomic_write(void* p, const void* value, size_t bytes, Loc) {
  if (!region_of(uintptr_t(p))) return;
  memcpy(p, value, bytes);
  if (self->released_by_fence) release_to(uintptr_t(p), self->released_by_fence);
  ++state.progress;
}

void fence_gpu() {
  acquire(self, self->acquired_by_fence);
  self->released_by_fence = everything_up_to_now();
}

int flag_load(const int* flag, bool acquire_it, Loc here) {
  poll("a flag", here);  // a kernel may spin on it: everyone else goes first
  int value;
  atomic_read(&value, flag, sizeof value, here);
  if (acquire_it) acquire(self, released_to(uintptr_t(flag)));
  return value;
}

void flag_add(int* flag, int value, bool release_it, Loc here) {
  const Mutation m = mutated(release_it ? "red_add_release" : "red_add_relaxed", here, release_it);
  if (m == Mutation::skip) return;
  int old;
  const Clock before = self->acquired_by_fence;  // a red returns nothing, so it acquires nothing
  atomic_read(&old, flag, sizeof old, here);
  self->acquired_by_fence = before;
  if (release_it && m != Mutation::change) release_to(uintptr_t(flag), everything_up_to_now());
  value += old;
  atomic_write(flag, &value, sizeof value, here);
  trace("flag raised", uintptr_t(flag), site(here));
}

/// Acquires and releases. A mutant does neither; left out, it would do other work than asked for.
int flag_atomic(int* flag, const std::function<int(int)>& update, const char* what, Loc here) {
  const bool orders = mutated(what, here) == Mutation::none;
  poll(what, here);
  int old;
  const Clock before = self->acquired_by_fence;
  atomic_read(&old, flag, sizeof old, here);
  self->acquired_by_fence = before;
  if (orders) {
    acquire(self, released_to(uintptr_t(flag)));
    release_to(uintptr_t(flag), everything_up_to_now());
  }
  const int fresh = update(old);
  atomic_write(flag, &fresh, sizeof fresh, here);
  trace("flag updated", uintptr_t(flag), site(here));
  return old;
}

void flag_wait(const int* flag, int at_least, Loc here) {
  const Mutation m = mutated("wait_until", here, true);
  if (m == Mutation::skip) return;
  int value;
  for (;;) {
    atomic_read(&value, flag, sizeof value, here);
    if (value >= at_least) break;
    self->waits_flag = flag;
    self->waits_value = at_least;
    poll("wait_until", here);
  }
  if (m != Mutation::change) acquire(self, released_to(uintptr_t(flag)));
}

/// Undefined from here on: a write, of what computes to NaN.
void discard_l2(void* line, Loc here) {
  constexpr unsigned kLine = 128, kStore = 16;
  const Site at = site(here);
  const uintptr_t a = uintptr_t(line);
  if (a % kLine) {
    report("misaligned", at, [&] {
      return format("discard.L2 of %s: the address must be a multiple of %u", place(a).c_str(),
                    kLine);
    });
    return;
  }
  Region* r = checked_region(a, kLine, true, "discard.L2 of", at);
  if (!r) return;
  for (unsigned i = 0; i < kLine; i += kStore)
    shadow_write(*r, a + i, kStore, at, view_of(self), Proxy::generic, "discards");
  memset(line, 0xFF, kLine);
}

}  // namespace emu

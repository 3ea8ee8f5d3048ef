// The meeting of all threads of a warp or a warpgroup at one instruction.
#pragma once
#include "common/emulator/report.h"

namespace emu {

/// Lets the waiting threads go on; returns what all of them know together.
inline Clock finish(Meeting& m) {
  const Clock all = m.sum.take();
  for (Thread* t : m.waiting) {
    if (all) acquire(t, all);
    wake(t);
  }
  m.waiting.clear();
  m.arrived = 0;
  ++state.progress;
  return all;
}

/// The last of `expected` threads to call runs `last` for all. `orders`: also a memory barrier.
template <class Last>
void meet_all(Meeting& m, unsigned expected, const char* what, Loc here, bool orders, Last last) {
  if (m.arrived == 0)
    m.here = here;
  else if (m.here.line != here.line || m.here.file != here.file)
    report("divergence", site(here), [&] {
      return format("%s here, while %s waits at %s: all threads must run the same instruction",
                    what, who(m.waiting[0]).c_str(), where(m.here).c_str());
    });
  ++m.arrived;
  if (orders) release(self, m.sum);
  if (m.arrived < expected) {
    m.waiting.push_back(self);
    block_self(what, here);
    return;
  }
  last();
  if (const Clock all = finish(m)) acquire(self, all);
}

inline Warp& own_warp() { return self->cta->warps[self->warp()]; }
inline Warpgroup& own_warpgroup() { return self->cta->warpgroups[self->warpgroup()]; }
inline unsigned warp_threads() {
  const unsigned left = state.block_threads - self->warp() * 32;
  return left < 32 ? left : 32;
}

}  // namespace emu

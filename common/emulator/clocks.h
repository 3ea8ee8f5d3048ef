// Vector clocks: what a thread knows of every other one. Index = a thread of the running CTAs or an
// agent (an mbarrier, a warpgroup's wgmma, a thread's TMA stores); value = the last tick known.
// Snapshots are immutable and shared: after __syncthreads a whole block holds one.
#pragma once
#include <cstdint>
#include <memory>
#include <vector>

namespace emu {

using Tick = uint32_t;
using Ticks = std::vector<Tick>;
using Clock = std::shared_ptr<const Ticks>;

constexpr Tick kInFlight = ~Tick{0};  // the tick of a write that has not landed: nobody knows it

/// Element-wise maximum and minimum. Null stands for "knows nothing".
Clock join(const Clock& a, const Clock& b);
Clock meet(const Clock& a, const Clock& b);
/// `a` with one element raised to `at`.
Clock raised(const Clock& a, unsigned id, Tick at, size_t size);

/// Collects what several threads know, as they arrive at a barrier.
class ClockSum {
 public:
  void add(const Clock& known);
  void add(unsigned id, Tick at, size_t size);
  Clock take();  // and start again

 private:
  Ticks ticks_;
  Clock last_;  // most threads bring the same snapshot: added once
};

}  // namespace emu

// Ceilings: the most that a unit of this GPU does when nothing has to be fetched for it, measured
// with the same kind of data and in the same regimes as the steps. GPU builds only.
#pragma once
#include <memory>

#include "common/harness/measure.h"

namespace harness {

/// A kernel that only keeps one unit busy: "ffma", "mma_sync" and "wgmma" with operands in
/// registers (wgmma: shared memory); "hbm", "l2" and "smem" only read; so do "l2_tma", tiles by
/// TMA that no other block reads at that time, and "l2_tiles", those of a product's neighbouring
/// blocks, whose requests for the same line are joined on their way. A launch takes some ms.
class Ceiling {
 public:
  /// Throws gpu::Error where the GPU has no such unit (`has` says so before).
  Ceiling(const std::string& unit, gpu::Stream stream);
  static bool has(const std::string& unit, const GpuInfo& gpu);
  Contender contender() const;  // "ceiling_wgmma"; flop or bytes set
  /// Enqueues a part of a launch, or several: what `trust` slows a copy with, at full power.
  void run(double launches, gpu::Stream stream) const;

 private:
  struct Impl;
  std::shared_ptr<Impl> impl_;
};

}  // namespace harness

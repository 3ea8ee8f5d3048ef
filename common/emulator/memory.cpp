// Memory of the device: the shared-memory windows of the running blocks, global allocations with
// guard zones, and the names that reports use.
#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "common/emulator/report.h"

namespace emu {
namespace {

constexpr size_t kGuard = 16 << 20;  // on both sides of an allocation: near misses are reported

std::map<uintptr_t, Region> allocations;  // by their first byte
Region* recent[4] = {};                   // most accesses go where one of the last few went
unsigned next_recent = 0;

struct Label {
  uint32_t bytes;
  std::string name;
};
std::map<uint32_t, Label> labels;  // by offset in the window: the same in every block of a launch

Cta* shown = nullptr;  // whose static shared memory is in place

Region* allocation_at(uintptr_t a, size_t margin) {
  auto it = allocations.upper_bound(a + margin);
  if (it == allocations.begin()) return nullptr;
  Region& r = (--it)->second;
  return a + margin - r.begin < r.bytes + 2 * margin ? &r : nullptr;
}

}  // namespace

void* device_malloc(size_t bytes, const char* name) {
  const size_t size = std::max<size_t>(bytes, 1);
  char* p = static_cast<char*>(mmap(nullptr, size + 2 * kGuard, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  if (p == MAP_FAILED) throw std::bad_alloc();
  // Neither zero nor a number: whoever reads it before writing gets NaNs.
  memset(p + kGuard, 0xFF, size);
  Region& r = allocations[uintptr_t(p) + kGuard];
  r.begin = uintptr_t(p) + kGuard;
  r.bytes = size;
  r.global = true;
  r.name = name;
  return reinterpret_cast<void*>(r.begin);
}

void device_free(void* p) {
  if (!p) return;
  auto it = allocations.find(uintptr_t(p));
  if (it == allocations.end()) return;
  munmap(reinterpret_cast<char*>(it->first) - kGuard, it->second.bytes + 2 * kGuard);
  allocations.erase(it);
  for (Region*& r : recent) r = nullptr;
}

bool near_global(uintptr_t a) { return allocation_at(a, kGuard) != nullptr; }

void device_initialised(void* p, size_t) {
  if (Region* r = allocation_at(uintptr_t(p), 0)) r->initialised = true;
}

/// A launch is over: everything it wrote is there for the next one.
void settle_global_memory() {
  for (auto& [begin, r] : allocations) {
    if (!r.cells.empty()) r.initialised = true;
    r.cells = {};
  }
}

Cta* cta_of(uintptr_t a) {
  for (Cta* cta : state.slots)
    if (cta && a - uintptr_t(cta->smem) < (size_t{1} << kWindowBits)) return cta;
  return shown && shown->fixed.contains(a) ? shown : nullptr;
}

Region* region_of(uintptr_t a) {
  for (Region* r : recent)
    if (r && r->contains(a)) return r;
  if (Cta* cta = cta_of(a)) return cta->fixed.contains(a) ? &cta->fixed : &cta->dynamic;
  Region* r = allocation_at(a, 0);
  if (r) recent[next_recent++ % 4] = r;
  return r;
}

Region* checked_region(uintptr_t a, size_t bytes, bool global, const char* does, Site at) {
  Region* r = region_of(a);
  if (r && r->global == global && a + bytes <= r->begin + r->bytes && a >= r->begin) return r;
  report("out of bounds", at, [&] {
    if (!global)
      return format("%s %zu bytes of shared memory at offset %ld of %zu", does, bytes,
                    r ? long(a - r->begin) : -1L, self->cta->dynamic.bytes);
    const Region* near = allocation_at(a, kGuard);
    place_named = near;
    if (!near) return format("%s %zu bytes that are in no buffer", does, bytes);
    return format("%s %zu bytes at offset %ld of buffer %s, which has %zu", does, bytes,
                  long(a - near->begin), near->name.c_str(), near->bytes);
  });
  return nullptr;
}

uint32_t offset_of(uintptr_t a) {
  const Cta* cta = cta_of(a);
  if (!cta) return 0;
  if (cta->fixed.contains(a)) return kFixedOffset + uint32_t(a - cta->fixed.begin);
  return uint32_t(a - uintptr_t(cta->smem));
}

char* same_offset(const void* p, const Cta* cta) {
  return cta->smem + offset_of(uintptr_t(p));
}

void* dynamic_smem() { return self->cta->smem + kReserved; }
uint32_t smem_addr(const void* p) { return offset_of(uintptr_t(p)); }

void label(const void* p, size_t bytes, const char* name, int index) {
  const uint32_t offset = offset_of(uintptr_t(p));
  auto it = labels.lower_bound(offset);
  if (it != labels.end() && it->first == offset) return;
  std::string full = name;
  if (index >= 0) full += (bytes == 8 ? "[" : " stage[") + std::to_string(index) + "]";
  labels.emplace_hint(it, offset, Label{uint32_t(bytes), full});
}
/// Names stay for the next launch of the same kernel: not every thread gives them.
void reset_labels() {
  static std::pair<const void*, size_t> of;
  const std::pair<const void*, size_t> now = {state.info.kernel, state.info.dynamic_smem};
  if (now != of) labels.clear();
  of = now;
}

std::string label_at(uint32_t offset) {
  auto it = labels.upper_bound(offset);
  if (it != labels.begin() && offset - (--it)->first < it->second.bytes) {
    const uint32_t at = offset - it->first;
    place_named = true;
    return at ? format("%s + %u bytes", it->second.name.c_str(), at) : it->second.name;
  }
  return offset >= kFixedOffset ? shared_variable_at(offset - kFixedOffset)
                                : format("shared memory + %u", offset - kReserved);
}

std::string place(uintptr_t a) {
  if (cta_of(a)) return label_at(offset_of(a));
  if (Region* r = allocation_at(a, 0)) {
    place_named = true;
    return format("global %s + %zu bytes", r->name.c_str(), size_t(a - r->begin));
  }
  return "?";
}

void trap(Loc here) {
  report("trap", site(here), [] { return std::string("__trap() called"); });
  state.stopped = true;
  for (;;) block_self("__trap", here);
}

// The blocks that run share one thread-local segment (language.h): it holds the static shared
// memory of whichever of them runs, the others keep an image.
void show_fixed(Cta* cta) {
  if (cta == shown) return;
  if (shown)
    memcpy(shown->fixed_image.data(), reinterpret_cast<void*>(shown->fixed.begin),
           shown->fixed.bytes);
  if (cta)
    memcpy(reinterpret_cast<void*>(cta->fixed.begin), cta->fixed_image.data(), cta->fixed.bytes);
  shown = cta;
}

}  // namespace emu

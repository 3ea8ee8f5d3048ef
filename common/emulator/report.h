// Findings: the first of each kind and place is printed in full, the others are counted.
#pragma once
#include <string>

#include "common/emulator/state.h"

namespace emu {

Site site(Loc);                      // registers a place of the source
extern uintptr_t load_base;          // of the program
// One less: the return address may already belong to the next line.
inline Site site(const void* return_address) {
  return Site(uintptr_t(return_address) - load_base - 1);
}
std::string where(Site);             // "kernel.cu:61"
std::string where(Loc);
std::string shared_variable_at(uintptr_t offset);  // "smem_a + 64 bytes"
std::string who(const Thread*);      // "thread 128 (warp 4, lane 0, producer)"
std::string who(unsigned id, Tick at);  // a thread or an agent of the clocks, at that tick
std::string format(const char* pattern, ...) __attribute__((format(printf, 1, 2)));

extern bool place_named;  // the text of the report at hand names a buffer, barrier or variable
bool first_report(const char* kind, Site);
void print_report(const char* kind, Site, const std::string& text, const Thread* by);
void print_counts();  // after a launch that found something
/// `text` is only built when the report is shown.
template <class Text>
void report(const char* kind, Site at, Text text, const Thread* by = self) {
  if (!first_report(kind, at)) return;
  place_named = false;
  const std::string what = text();
  print_report(kind, at, what, by);
}

/// For `set_trace`: what happened, to be told by the first report about the same place.
void trace(const char* what, uintptr_t address, Site);
extern bool tracing;

}  // namespace emu

// Mutation testing: every call of a synchronising wrapper can be skipped or changed at run time.
#pragma once
#include <functional>
#include <string>
#include <vector>

#include "common/emulator/device.h"

namespace emu {

enum class Mutation { none, skip, change };

/// What a wrapper called here has to do instead of its work. `can_change`: it knows a second way to
/// go wrong (a parity flipped, a count off by one).
Mutation mutated_slow(const char* wrapper, Loc here, bool can_change);
extern bool mutating;
inline Mutation mutated(const char* wrapper, Loc here, bool can_change = false) {
  return mutating ? mutated_slow(wrapper, here, can_change) : Mutation::none;
}
/// A report while a mutant runs: it is caught. `named`: the report names what it is about.
void mutation_found(const std::string& report, bool named);

/// Runs `check` (0: right) as it is, then once for every mutation of the calls it made, each in a
/// child process; prints what happened to each. 0: all caught, or argued for in the file
/// `survivors` beside the kernel.
int mutate(const std::function<int()>& check);

}  // namespace emu

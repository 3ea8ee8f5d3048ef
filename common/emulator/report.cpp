#include "common/emulator/report.h"

#include <cxxabi.h>
#include <link.h>
#include <unistd.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <unordered_map>

#include "common/emulator/mutate.h"

namespace emu {
namespace {

constexpr Site kFirstLoc = 0xE0000000u;  // below: offset of a return address in the program
constexpr size_t kMaxShown = 24;

std::vector<Loc> locs;
std::map<std::pair<std::string, Site>, unsigned> seen;
std::vector<std::string> texts;
int total = 0;
bool quiet = false;

std::string base_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

/// Lines that addr2line prints for an offset of the program: function, place, function, place ...
/// from the innermost inlined call outwards.
std::vector<std::string> addr2line(uintptr_t offset) {
  const std::string command =
      format("addr2line -C -f -i -e /proc/%d/exe %#lx 2>/dev/null", getpid(), (long)offset);
  std::vector<std::string> lines;
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char line[4096];
    while (fgets(line, sizeof line, pipe)) {
      lines.emplace_back(line);
      lines.back().pop_back();
    }
    pclose(pipe);
  }
  return lines;
}

/// The innermost place that is the kernel's, not the shim's.
std::string resolve(uintptr_t offset) {
  const auto lines = addr2line(offset);
  for (size_t i = 1; i < lines.size(); i += 2)
    if (lines[i].find("common/emulator/") == std::string::npos &&
        lines[i].find("common/ptx/") == std::string::npos)
      return base_name(lines[i].substr(0, lines[i].find(' ')));
  return "?";
}

struct Variable {
  uintptr_t offset;
  size_t bytes;
  std::string name;
};

/// The __shared__ variables of the program: the symbols of its thread-local segment.
std::vector<Variable> shared_variables() {
  std::vector<Variable> list;
  const std::string command = format("readelf -sW /proc/%d/exe 2>/dev/null", getpid());
  if (FILE* pipe = popen(command.c_str(), "r")) {
    char line[4096], type[32], symbol[2048];
    unsigned long offset, bytes;
    while (fgets(line, sizeof line, pipe))
      if (sscanf(line, " %*d: %lx %lu %31s %*s %*s %*s %2047s", &offset, &bytes, type,
                 symbol) == 4 && !strcmp(type, "TLS")) {
        char* demangled = abi::__cxa_demangle(symbol, nullptr, nullptr, nullptr);
        const std::string name = demangled ? demangled : symbol;
        free(demangled);
        list.push_back({offset, bytes, name.substr(name.rfind("::") + 2)});
      }
    pclose(pipe);
  }
  return list;
}

std::string kernel_name() {
  const auto lines = addr2line(uintptr_t(state.info.kernel) - load_base);
  if (lines.empty()) return "kernel";
  std::string name = lines.front();
  for (const char* noise : {"(anonymous namespace)::", "void "})
    if (const size_t at = name.find(noise); at != name.npos) name.erase(at, strlen(noise));
  return name.substr(0, name.find_first_of("<("));  // of a template, which one the shape tells
}

/// Producer or consumer, from what the threads of its warpgroup have done so far.
const char* role(const Thread* t) {
  bool loads = false, multiplies = false;
  for (const Thread& other : t->cta->threads)
    if (other.warpgroup() == t->warpgroup() || other.warp() == t->warp()) {
      loads |= other.loads;
      multiplies |= other.multiplies;
    }
  return loads == multiplies ? "" : loads ? ", producer" : ", consumer";
}

// Finished by the return of main(): a program that found something never reports success.
void exit_non_zero(int status, void*) {
  if (status == 0 && total) fflush(nullptr), _exit(1);
}

struct Event {
  std::string what, buffer, who;
  Site at;
  uint3 block;
};
std::vector<Event> events;

/// What happened in the block to the same buffer, barrier or stage before, oldest first.
void tell_story(const std::string& text, const Thread* by) {
  std::vector<const Event*> about;
  for (const Event& e : events) {
    const size_t stage = e.buffer.find('[');
    const bool same = text.find(e.buffer) != text.npos ||
                      (stage != e.buffer.npos && text.find(e.buffer.substr(stage)) != text.npos);
    const bool here = !by || memcmp(&e.block, &by->cta->block, sizeof e.block) == 0;
    if (same && here) about.push_back(&e);
  }
  const size_t shown = std::min<size_t>(about.size(), 30);
  fprintf(stderr, "    what happened to it before, the last %zu of %zu events of this block:\n",
          shown, about.size());
  for (auto e = about.end() - long(shown); e != about.end(); ++e)
    fprintf(stderr, "      %-26s %-14s %-14s %s\n", (*e)->what.c_str(), (*e)->buffer.c_str(),
            where((*e)->at).c_str(), (*e)->who.c_str());
}

}  // namespace

bool place_named = false;
uintptr_t load_base = [] {
  uintptr_t found = 0;
  const auto first = [](dl_phdr_info* info, size_t, void* out) {  // the program itself
    return *static_cast<uintptr_t*>(out) = info->dlpi_addr, 1;
  };
  dl_iterate_phdr(first, &found);
  return found;
}();
bool tracing = getenv("EMU_TRACE") && *getenv("EMU_TRACE") == '1';
void set_trace(bool on) { tracing = on; }

std::string format(const char* pattern, ...) {
  char text[2048];
  va_list args;
  va_start(args, pattern);
  vsnprintf(text, sizeof text, pattern, args);
  va_end(args);
  return text;
}

Site site(Loc loc) {
  static std::pair<Loc, Site> cache[1024];  // asked for at every call of a wrapper
  auto& e = cache[(uintptr_t(loc.file) / 8 + loc.line) % 1024];
  if (e.second && e.first.file == loc.file && e.first.line == loc.line) return e.second;
  size_t i = 0;
  while (i < locs.size() && !(locs[i].line == loc.line && locs[i].file == loc.file)) ++i;
  if (i == locs.size()) locs.push_back(loc);
  e = {loc, Site(kFirstLoc + i)};
  return e.second;
}
std::string where(Loc loc) { return base_name(loc.file) + ":" + std::to_string(loc.line); }
std::string where(Site s) {
  if (!s) return "?";
  if (s >= kFirstLoc) return where(locs[s - kFirstLoc]);
  static std::unordered_map<Site, std::string> known;
  auto [it, fresh] = known.try_emplace(s);
  if (fresh) it->second = resolve(s);
  return it->second;
}

std::string shared_variable_at(uintptr_t offset) {
  static const std::vector<Variable> variables = shared_variables();
  for (const Variable& v : variables)
    if (offset - v.offset < v.bytes) {
      place_named = true;
      return offset == v.offset ? v.name
                                : format("%s + %zu bytes", v.name.c_str(), offset - v.offset);
    }
  return format("static shared memory + %zu", size_t(offset));
}

std::string who(const Thread* t) {
  return format("thread %u (warp %u, lane %u%s)", t->linear, t->warp(), t->lane(), role(t));
}
std::string who(unsigned id, Tick at) {
  id &= ~unsigned(kAsyncProxy);
  const unsigned threads = unsigned(state.slots.size()) * state.block_threads;
  const unsigned slot = id < threads ? id / state.block_threads : (id - threads) / agents_per_cta();
  const Cta* cta = slot < state.slots.size() ? state.slots[slot] : nullptr;
  if (!cta) return "a thread of a block that has ended";
  std::string block;  // named where it is another one
  if (self && self->cta != cta)
    block = format(" of block (%u,%u,%u)", cta->block.x, cta->block.y, cta->block.z);
  if (id < threads) {
    const Thread& t = cta->threads[id % state.block_threads];
    if (at < t.first) return format("thread %u of a block that has ended", t.linear);
    return who(&t) + block;
  }
  for (size_t i = 0; i < cta->warpgroups.size(); ++i)
    if (cta->warpgroups[i].agent == id) return format("wgmma of warpgroup %zu", i) + block;
  for (auto& [offset, bar] : cta->mbarriers)
    if (bar.agent == id) return "the copy that completes on " + name_of(bar) + block;
  for (const Thread& t : cta->threads)
    if (t.store_agent == id) return "TMA store of " + who(&t) + block;
  return "?";
}

bool first_report(const char* kind, Site at) {
  ++total;
  return seen[{kind, at}]++ == 0;
}

void print_report(const char* kind, Site at, const std::string& text, const Thread* by) {
  static const bool once = on_exit(exit_non_zero, nullptr) == 0;
  (void)once;
  std::string head = format("%s: %s, kernel %s", kind, state.info.step, kernel_name().c_str());
  if (by)
    head += format(", block (%u,%u,%u), %s", by->cta->block.x, by->cta->block.y, by->cta->block.z,
                   who(by).c_str());
  if (at) head += " at " + where(at);
  head += ": " + text;
  // The same line has several return addresses where it was inlined or unrolled.
  if (at && seen[{kind + where(at), 0}]++) return;
  texts.push_back(head);
  if (texts.size() <= kMaxShown && !quiet) fprintf(stderr, "emulated device: %s\n", head.c_str());
  if (tracing && texts.size() == 1) tell_story(text, by);
  mutation_found(head, place_named);
}

void print_counts() {
  std::map<std::string, unsigned> counts;
  for (auto& [key, n] : seen)
    if (key.second) counts[key.first + " at " + where(key.second)] += n;
  for (auto& [what, n] : counts)
    if (n > 1 && !quiet) fprintf(stderr, "emulated device: %u times %s\n", n, what.c_str());
}

int reports() { return total; }
const std::vector<std::string>& report_texts() { return texts; }
void set_quiet(bool on) { quiet = on; }
void clear_reports() {
  total = 0;
  seen.clear();
  texts.clear();
  events.clear();
}

void trace(const char* what, uintptr_t address, Site at) {
  if (!tracing) return;
  std::string buffer = place(address);
  buffer.resize(std::min(buffer.size(), buffer.find(" +")));
  const Cta* cta = cta_of(address) ? cta_of(address) : self ? self->cta : nullptr;
  Event e{what, buffer, self ? who(self) : "the device", at, cta ? cta->block : uint3{}};
  for (size_t i = events.size(), n = 0; i > 0 && n < 2; --i, ++n)  // A and B take turns
    if (events[i - 1].what == e.what && events[i - 1].buffer == buffer && events[i - 1].at == at)
      return;
  events.push_back(std::move(e));
}

}  // namespace emu

// Shadow memory: every access to shared memory, and every access to global memory that the launch
// writes to, must happen after (in the sense of the vector clocks) whatever it depends on.
#include <algorithm>
#include <cstring>

#include "common/emulator/report.h"

namespace emu {
namespace {

constexpr uint16_t kWho = uint16_t(~kAsyncProxy);

bool is_thread(unsigned id) { return id < state.slots.size() * state.block_threads; }

std::string writer_of(const Cell& c) {
  return who(c.writer & kWho, c.written) + " at " + where(c.write_site);
}

std::string copy_of(const Cell& c) {
  return (is_thread(c.writer & kWho) ? "the cp.async of " : "") + writer_of(c);
}

/// Names the one of the readers that `v` does not know to have finished.
void report_read_race(const View& v, const Cell& c, uintptr_t a, Site at, const char* what) {
  for (int i = 0; i < 3; ++i) {
    if (!c.read[i] || v.knows(c.reader[i], c.read[i])) continue;
    const bool agent = !is_thread(c.reader[i]);
    report(agent ? "overwritten while read" : "race", at, [&] {
      return format("%s %s, read by %s at %s, with no wait or barrier in between", what,
                    place(a).c_str(), who(c.reader[i], c.read[i]).c_str(),
                    where(c.read_site).c_str());
    });
    return;
  }
}

void report_write_race(const Cell& c, uintptr_t a, Site at, const char* what) {
  const bool in_flight = c.written == kInFlight;
  report(in_flight ? "overwritten in flight" : "race", at, [&] {
    if (in_flight)
      return format("%s %s while %s is still in flight", what, place(a).c_str(),
                    copy_of(c).c_str());
    return format("%s %s, written by %s, with no synchronisation in between", what,
                  place(a).c_str(), writer_of(c).c_str());
  });
}

void report_bad_read(const Cell& c, uintptr_t a, Site at) {
  if (!c.written) {
    report("never written", at, [&] { return "reads " + place(a) + ", never written"; });
  } else if (c.written == kInFlight) {
    report("read before it landed", at, [&] {
      return format("reads %s while %s is still in flight", place(a).c_str(), copy_of(c).c_str());
    });
  } else {
    report("race", at, [&] {
      return format("reads %s, written by %s, with no synchronisation in between",
                    place(a).c_str(), writer_of(c).c_str());
    });
  }
}

/// Which of the cell's three places the reader takes; 3: none.
int place_for_reader(const Cell& c, const View& v) {
  int slot = 0;
  while (slot < 3 && c.read[slot] && c.reader[slot] != v.stamp) ++slot;
  if (slot < 3) return slot;
  slot = int(state.roll(3));  // one is forgotten, but no agent for a thread
  if (is_thread(v.stamp)) return is_thread(c.reader[slot]) ? slot : 3;
  for (int i = 0; i < 3; ++i)  // it knows those whose work it has waited for
    if (v.knows(c.reader[i], c.read[i])) slot = i;
  return slot;
}

void stamp_read(Cell& c, int slot, const View& v, Site at) {
  c.reader[slot] = uint16_t(v.stamp);
  c.read[slot] = v.tick;
  c.read_site = at;
}

bool same(const Cell& x, const Cell& y) {
  uint64_t a[4], b[4], differs = 0;
  static_assert(sizeof a == sizeof(Cell));
  memcpy(a, &x, sizeof a), memcpy(b, &y, sizeof b);
  for (int i = 0; i < 4; ++i) differs |= a[i] ^ b[i];
  return !differs;
}

Cell* cells_of(Region& r, uintptr_t a) { return r.cells.data() + (a - r.begin) / 2; }

}  // namespace

bool fenced_between(const View& v, unsigned writer, Tick written, bool init, const Clock* fence) {
  // Either the reader ran a fence after it had seen the write ...
  if (fence && *fence && (**fence)[writer] >= written) return true;
  // ... or the writer ran one after the write, and the reader knows of that.
  if (!is_thread(writer)) return true;
  const unsigned slot = writer / state.block_threads;
  const Thread& t = state.slots[slot]->threads[writer % state.block_threads];
  auto ran = [&](const std::vector<Tick>& fences) {
    auto it = std::lower_bound(fences.begin(), fences.end(), written);
    return it != fences.end() && v.knows(writer, *it);
  };
  return ran(t.proxy_fences) || (init && ran(t.init_fences));
}

void shadow_read(Region& r, uintptr_t a, unsigned bytes, Site at, const View& v, Proxy proxy,
                 const Clock* fence) {
  if (r.cells.empty()) {  // global memory that this launch has not written to
    if (!r.initialised)
      report("never written", at, [&] { return "reads " + place(a) + ", never written"; });
    return;
  }
  Cell* c = cells_of(r, a);
  for (unsigned i = 0; i < bytes; i += 2, ++c) {
    const unsigned writer = c->writer & kWho;
    if (!(c->written && v.knows(writer, c->written)) && !(r.initialised && !c->written)) {
      report_bad_read(*c, a + i, at);
      return;
    }
    if (proxy == Proxy::async && !r.global && !(c->writer & kAsyncProxy) &&
        !fenced_between(v, writer, c->written, false, fence)) {
      report("missing proxy fence", at, [&] {
        return format("reads %s through the async proxy; %s wrote it, and no fence_proxy_async "
                      "ran in between", place(a + i).c_str(), writer_of(*c).c_str());
      });
      return;
    }
    if (c->reader[0] == v.stamp && c->read[0] == v.tick) continue;
    // Elements are mostly wider than a cell, and their cells alike.
    unsigned alike = 1;
    while (i + 2 * alike < bytes && same(*c, c[alike])) ++alike;
    const int slot = place_for_reader(*c, v);
    if (slot < 3)
      for (unsigned n = 0; n < alike; ++n) stamp_read(c[n], slot, v, at);
    i += 2 * (alike - 1), c += alike - 1;
  }
}

void shadow_write(Region& r, uintptr_t a, unsigned bytes, Site at, const View& v, Proxy proxy,
                  const char* what) {
  if (r.cells.empty()) r.cells.resize((r.bytes + 1) / 2);
  const uint16_t writer = uint16_t(v.stamp | (proxy == Proxy::async ? kAsyncProxy : 0));
  bool bad = false;
  Cell* c = cells_of(r, a);
  for (unsigned i = 0; i < bytes; i += 2, ++c) {
    if (!bad) {
      if (c->written && !v.knows(c->writer & kWho, c->written)) {
        report_write_race(*c, a + i, at, what);
        bad = true;
      } else if ((c->read[0] && !v.knows(c->reader[0], c->read[0])) ||
                 (c->read[1] && !v.knows(c->reader[1], c->read[1])) ||
                 (c->read[2] && !v.knows(c->reader[2], c->read[2]))) {
        report_read_race(v, *c, a + i, at, what);
        bad = true;
      }
    }
    c->written = v.tick;
    c->writer = writer;
    c->write_site = at;
    c->read[0] = c->read[1] = c->read[2] = 0;
  }
}

void land(Region& r, uintptr_t a, unsigned bytes, unsigned writer, Tick tick, Proxy proxy) {
  Cell* c = cells_of(r, a);
  for (unsigned i = 0; i < bytes; i += 2, ++c) {
    c->written = tick;
    c->writer = uint16_t(writer | (proxy == Proxy::async ? kAsyncProxy : 0));
  }
}

}  // namespace emu

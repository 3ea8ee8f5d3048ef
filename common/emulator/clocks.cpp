#include "common/emulator/clocks.h"

#include <algorithm>

namespace emu {
namespace {

// A warpgroup's threads combine equal operands one after the other, while other warpgroups do so
// with theirs: the last results are kept.
class Memo {
 public:
  const Clock* find(const Clock& a, const Clock& b, unsigned id = 0, Tick at = 0) const {
    for (const Entry& e : entries_)
      if (e.a == a && e.b == b && e.id == id && e.at == at && e.result) return &e.result;
    return nullptr;
  }
  Clock keep(const Clock& a, const Clock& b, Clock result, unsigned id = 0, Tick at = 0) {
    Entry& e = entries_[next_++ % std::size(entries_)];
    e = {a, b, id, at, std::move(result)};
    return e.result;
  }

 private:
  struct Entry {
    Clock a, b;
    unsigned id;
    Tick at;
    Clock result;
  } entries_[8] = {};
  unsigned next_ = 0;
};

template <class Pick>
Clock combine(const Clock& a, const Clock& b, Memo& memo, Pick pick) {
  if (const Clock* known = memo.find(a, b)) return *known;
  auto result = std::make_shared<Ticks>(*a);
  for (size_t i = 0; i < result->size(); ++i) (*result)[i] = pick((*a)[i], (*b)[i]);
  // Where one operand says it all, it goes on being shared.
  return memo.keep(a, b, *result == *a ? a : *result == *b ? b : result);
}

}  // namespace

Clock join(const Clock& a, const Clock& b) {
  static Memo memo;
  if (!b || a == b) return a;
  if (!a) return b;
  return combine(a, b, memo, [](Tick x, Tick y) { return std::max(x, y); });
}

Clock meet(const Clock& a, const Clock& b) {
  static Memo memo;
  if (!a || a == b) return a;
  if (!b) return b;
  return combine(a, b, memo, [](Tick x, Tick y) { return std::min(x, y); });
}

Clock raised(const Clock& a, unsigned id, Tick at, size_t size) {
  static Memo memo;
  if (a && (*a)[id] >= at) return a;
  if (const Clock* known = memo.find(a, nullptr, id, at)) return *known;
  auto result = a ? std::make_shared<Ticks>(*a) : std::make_shared<Ticks>(size);
  (*result)[id] = at;
  return memo.keep(a, nullptr, result, id, at);
}

void ClockSum::add(const Clock& known) {
  if (!known || known == last_) return;
  last_ = known;
  if (ticks_.empty()) {
    ticks_ = *known;
    return;
  }
  for (size_t i = 0; i < ticks_.size(); ++i) ticks_[i] = std::max(ticks_[i], (*known)[i]);
}

void ClockSum::add(unsigned id, Tick at, size_t size) {
  if (ticks_.empty()) ticks_.resize(size);
  ticks_[id] = std::max(ticks_[id], at);
}

Clock ClockSum::take() {
  last_.reset();
  if (ticks_.empty()) return nullptr;
  auto result = std::make_shared<const Ticks>(std::move(ticks_));
  ticks_ = {};
  return result;
}

}  // namespace emu

#include "common/emulator/clocks.h"

#include <algorithm>

namespace emu {
namespace {

// A warpgroup's threads combine equal operands one after the other: the last result is kept.
struct Memo {
  Clock a, b, result;
};

template <class Pick>
Clock combine(const Clock& a, const Clock& b, Memo& memo, Pick pick) {
  if (memo.a == a && memo.b == b) return memo.result;
  auto result = std::make_shared<Ticks>(*a);
  for (size_t i = 0; i < result->size(); ++i) (*result)[i] = pick((*a)[i], (*b)[i]);
  // Where one operand says it all, it goes on being shared.
  if (*result == *a)
    memo = {a, b, a};
  else if (*result == *b)
    memo = {a, b, b};
  else
    memo = {a, b, result};
  return memo.result;
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
  static unsigned memo_id;
  if (a && (*a)[id] >= at) return a;
  if (memo.result && memo.a == a && memo_id == id && (*memo.result)[id] == at) return memo.result;
  auto result = a ? std::make_shared<Ticks>(*a) : std::make_shared<Ticks>(size);
  (*result)[id] = at;
  memo = {a, nullptr, result};
  memo_id = id;
  return result;
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

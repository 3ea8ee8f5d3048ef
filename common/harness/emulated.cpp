// The emulated device's half of reference.h and device.h: memory is the host's, and what needs a
// clock is refused.
#if defined(LADDER_EMULATED)
#include "common/emulator/device.h"

#include <cstring>

#include "common/gpu/gpu.h"
#include "common/harness/device.h"
#include "common/harness/reference.h"

namespace harness {

const double kHostLimit = 1e18;  // always on the host

void fill(void* data, int64_t count, Inputs inputs, uint64_t seed, int64_t K, Type type) {
  fill({type, true, 1, count, count, 1, 0}, data, inputs, seed, K);
}

namespace {
/// Element number i of those that the matrix holds becomes of(i).
template <class Of>
void fill_with(const Storage& s, void* data, const Of& of) {
  std::vector<char> host(s.bytes());
  gpu::copy_to_host(host.data(), data, host.size());
  const int64_t batches = s.stride ? s.batch : 1;
  int64_t i = 0;
  for (int64_t b = 0; b < batches; ++b)
    for (int64_t outer = 0; outer < s.outer; ++outer)
      for (int64_t inner = 0; inner < s.inner; ++inner)
        store(s.type, host.data(), b * s.stride + outer * s.ld + inner, of(i++));
  gpu::copy_to_device(data, host.data(), host.size());
}
}  // namespace

void fill(const Storage& matrix, void* data, Inputs inputs, uint64_t seed, int64_t K) {
  fill_with(matrix, data, [&](int64_t i) { return value(inputs, seed, uint64_t(i), K); });
}

void fill_old(const Storage& matrix, void* data, uint64_t seed) {
  fill_with(matrix, data, [&](int64_t i) { return old_value(seed, uint64_t(i)); });
}

Damage find_damage(const Storage& s, const void* data, size_t guard) {
  Damage damage;
  if (guard == 0 && !s.has_gaps()) return damage;
  const int size = bytes_of(s.type);
  const auto poisoned = [&](int64_t position) {
    uint32_t bits = ~0u;
    std::memcpy(&bits, static_cast<const char*>(data) + position * size, size_t(size));
    return bits == ~0u;
  };
  const int64_t count = s.count(), band = int64_t(guard) / size;
  for (int64_t i = 1; i <= band && !damage.after; ++i)  // from the matrix outwards
    if (!poisoned(count + i - 1)) damage.after = i;
  for (int64_t i = 1; i <= band && !damage.before; ++i)
    if (!poisoned(-i)) damage.before = i;
  for (int64_t i = 0; s.has_gaps() && i < count && damage.gap < 0; ++i)
    if (!s.holds(i) && !poisoned(i)) damage.gap = i;
  return damage;
}

std::shared_ptr<gpu::Buffer> take_buffer(size_t bytes, const char* name) {
  return std::make_shared<gpu::Buffer>(bytes, name);
}
void use_exact_buffers() {}  // they always are

Verdict compare_on_device(const Problem&, const Data&, Sum) {
  throw gpu::Error("the emulated device has no reference kernel");
}

void require_device(const Program&) {}  // it runs every step
std::string describe_device() {
  return "{\"name\": \"emulated\", \"sm\": \"90a\", \"sms\": " + std::to_string(emu::num_sms()) +
         "}";
}
double free_memory() { return 4.0 * (1 << 30); }
void require_memory(double bytes, const std::string& for_what) {
  if (bytes > free_memory())
    throw gpu::Error("needs " + bytes_text(bytes) + " " + for_what + "; the emulated device has " +
                     bytes_text(free_memory()));
}

void set_schedule(uint64_t seed) { emu::set_seed(unsigned(seed)); }
size_t check_guard(const Size&) { return 0; }
double check_budget(const Program& program) {  // a second or two
  return program.unit == "ffma" ? 1 << 24 : 1 << 28;
}

std::vector<std::pair<std::string, double>> counters() {
  return emu::counters_list(emu::counters());
}

std::string take_findings() {
  const int found = emu::reports();
  std::string text;
  if (found > 0)
    text = std::to_string(found) + " finding" + (found > 1 ? "s" : "") +
           " of the emulated device, first: " + split(emu::report_texts().at(0), '\n')[0];
  emu::clear_reports();
  return text;
}

namespace {
int refuse(const std::string& command) {
  throw UsageError(command + " needs a GPU: times are measured, never emulated");
}
}  // namespace
int bench_command(const Program&, const Options&) { return refuse("bench"); }
int ceilings_command(const Program&, const Options&) { return refuse("ceilings"); }
int tune_command(const Program&, const Options&) { return refuse("tune"); }
int trust_command(const Program&, const Options&) { return refuse("trust"); }

}  // namespace harness
#endif

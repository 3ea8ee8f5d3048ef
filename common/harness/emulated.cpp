// The emulated device's half of reference.h and device.h: memory is the host's, and what needs a
// clock is refused.
#if defined(LADDER_EMULATED)
#include "common/emulator/device.h"

#include "common/gpu/gpu.h"
#include "common/harness/device.h"
#include "common/harness/reference.h"

namespace harness {

const double kHostLimit = 1e18;  // always on the host

void fill(uint16_t* data, int64_t count, Inputs inputs, uint64_t seed, int64_t K) {
  std::vector<uint16_t> host(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) host[size_t(i)] = element(inputs, seed, uint64_t(i), K);
  gpu::copy_to_device(data, host.data(), host.size() * 2);
}

Verdict compare_on_device(const Problem&, Inputs, Sum) {
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
int trust_command(const Program&, const Options&) { return refuse("trust"); }

}  // namespace harness
#endif

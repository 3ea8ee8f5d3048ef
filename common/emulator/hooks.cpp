// Every plain load and store of a kernel arrives here: kernels are compiled with
// -fsanitize=thread and linked without its runtime, so the calls that the compiler plants for that
// sanitizer are ours. Also the few atomics that host code in the same file uses (shared_ptr).
#include "common/emulator/report.h"

namespace emu {

extern uintptr_t stacks_begin, stacks_end;  // scheduler.cpp
bool instrumented = false;                  // kernels were compiled as above

namespace {

inline void access(uintptr_t a, unsigned bytes, bool write, const void* pc) {
  Thread* t = self;
  if (!t) return;
  if (a - stacks_begin < stacks_end - stacks_begin) {  // a local variable
    if (t->acc_low <= a && a < t->acc_high) touch_accumulator(t, a, site(pc));
    return;
  }
  Region* r = nullptr;
  Cta* cta = t->cta;
  if (cta->dynamic.contains(a))
    r = &cta->dynamic;
  else if (cta->fixed.contains(a))
    r = &cta->fixed;
  else if (!(r = region_of(a))) {
    if (a < 4096 || near_global(a))
      checked_region(a, bytes, true, write ? "writes" : "reads", site(pc));
    return;  // constants, parameters, built-in variables
  }
  const Site at = site(pc);
  if (a + bytes > r->begin + r->bytes || a < r->begin) {
    checked_region(a, bytes, r->global, write ? "writes" : "reads", at);
    return;
  }
  if ((bytes & (bytes - 1)) == 0 && bytes <= 16 && a % bytes) {
    report("misaligned", at, [&] {
      return format("%u-byte %s of %s: the address must be a multiple of %u", bytes,
                    write ? "store" : "load", place(a).c_str(), bytes);
    });
  }
  const View v = view_of(t);
  if (write)
    shadow_write(*r, a, bytes, at, v, Proxy::generic);
  else
    shadow_read(*r, a, bytes, at, v, Proxy::generic, nullptr);
  if (r->global)
    log_access(a, bytes, write ? kGlobalStore : kGlobalLoad, at);
  else
    log_access(a - r->begin, bytes, write ? kSharedStore : kSharedLoad, at);
}

}  // namespace
}  // namespace emu

#define HOOK(name, n, write)                                          \
  void __tsan_##name##n(void* p) {                                    \
    emu::access(uintptr_t(p), n, write, __builtin_return_address(0)); \
  }
#define HOOKS(n)                           \
  HOOK(read, n, false) HOOK(write, n, true) \
  HOOK(unaligned_read, n, false) HOOK(unaligned_write, n, true)

#define ATOMIC_OP(bits, name, builtin)                                                  \
  uint##bits##_t __tsan_atomic##bits##_##name(volatile uint##bits##_t* p,               \
                                              uint##bits##_t v, int) {                  \
    return builtin(p, v, __ATOMIC_SEQ_CST);                                             \
  }
#define ATOMICS(bits)                                                                   \
  uint##bits##_t __tsan_atomic##bits##_load(const volatile uint##bits##_t* p, int) {    \
    return __atomic_load_n(p, __ATOMIC_SEQ_CST);                                        \
  }                                                                                     \
  void __tsan_atomic##bits##_store(volatile uint##bits##_t* p, uint##bits##_t v, int) { \
    __atomic_store_n(p, v, __ATOMIC_SEQ_CST);                                           \
  }                                                                                     \
  ATOMIC_OP(bits, exchange, __atomic_exchange_n)                                        \
  ATOMIC_OP(bits, fetch_add, __atomic_fetch_add)                                        \
  ATOMIC_OP(bits, fetch_sub, __atomic_fetch_sub)                                        \
  int __tsan_atomic##bits##_compare_exchange_strong(                                    \
      volatile uint##bits##_t* p, uint##bits##_t* expected, uint##bits##_t v, int, int) { \
    return __atomic_compare_exchange_n(p, expected, v, false, 5, 5);                    \
  }                                                                                     \
  int __tsan_atomic##bits##_compare_exchange_weak(                                      \
      volatile uint##bits##_t* p, uint##bits##_t* expected, uint##bits##_t v, int, int) { \
    return __atomic_compare_exchange_n(p, expected, v, false, 5, 5); /* 5: seq_cst */   \
  }

extern "C" {
HOOKS(1) HOOKS(2) HOOKS(4) HOOKS(8) HOOKS(16)
ATOMICS(8) ATOMICS(16) ATOMICS(32) ATOMICS(64)
void __tsan_atomic_thread_fence(int) {}
void __tsan_init() { emu::instrumented = true; }
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* p, size_t n) {
  emu::access(uintptr_t(p), unsigned(n), false, __builtin_return_address(0));
}
void __tsan_write_range(void* p, size_t n) {
  emu::access(uintptr_t(p), unsigned(n), true, __builtin_return_address(0));
}
}

// Runs a grid: every CUDA thread is a fiber, a few blocks run at once, and what is asynchronous
// lands only when nobody can go on without it.
#include <link.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <stdexcept>

#include "common/emulator/report.h"

namespace emu {

State state;
Thread* self = nullptr;
uintptr_t stacks_begin = 0, stacks_end = 0;
extern bool instrumented;

namespace {

namespace context = boost::context;
constexpr size_t kStack = 128 * 1024 + 17 * 64;  // no power of two: caches have sets

context::fiber scheduler;  // while a thread runs: where to return to
char* windows = nullptr;   // shared memory of all slots
uintptr_t fixed_begin = 0;
size_t fixed_bytes = 0;

struct Pending {
  std::function<void()> deliver;
  Cta* target;
  Site issued;
  const char* what;
  const Thread* issuer;
  uintptr_t into;
};
std::vector<Pending> pending;
std::vector<Thread*> pollers;

/// Hands out the stack of one thread; all stacks are one range, so that hooks know locals.
struct StackOf {
  unsigned id;
  context::stack_context allocate() {
    context::stack_context s;
    s.size = kStack;
    s.sp = reinterpret_cast<char*>(stacks_begin) + (id + 1) * kStack;
    return s;
  }
  void deallocate(context::stack_context&) {}
};

void reserve_memory(unsigned slots, unsigned threads) {
  if (!windows) {
    mallopt(M_MMAP_THRESHOLD, 1 << 30);  // logs and shadow of a block are there for the next
    mallopt(M_TRIM_THRESHOLD, 1 << 30);
    windows = static_cast<char*>(mmap(nullptr, size_t(16) << kWindowBits, PROT_READ | PROT_WRITE,
                                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void*) {
          for (int i = 0; i < info->dlpi_phnum; ++i)
            if (info->dlpi_phdr[i].p_type == PT_TLS && info->dlpi_tls_data) {
              fixed_begin = uintptr_t(info->dlpi_tls_data);
              fixed_bytes = info->dlpi_phdr[i].p_memsz;
            }
          return 1;  // the program itself comes first
        },
        nullptr);
  }
  if (slots > 16) throw std::invalid_argument("more than 16 blocks at once");
  if (stacks_end - stacks_begin >= threads * kStack) return;
  if (stacks_begin) munmap(reinterpret_cast<void*>(stacks_begin), stacks_end - stacks_begin);
  void* p = mmap(nullptr, threads * kStack, PROT_READ | PROT_WRITE,
                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (p == MAP_FAILED) throw std::bad_alloc();
  stacks_begin = uintptr_t(p);
  stacks_end = stacks_begin + threads * kStack;
}

std::unique_ptr<Cta> make_cta(Cluster& cluster, unsigned rank, uint3 block,
                              const std::function<void()>& body) {
  auto cta = std::make_unique<Cta>();
  cta->cluster = &cluster;
  cta->rank = rank;
  cta->slot = cluster.first_slot + rank;
  cta->block = block;
  cta->smem = windows + (size_t(cta->slot) << kWindowBits);
  cta->dynamic.begin = uintptr_t(cta->smem) + kReserved;
  cta->dynamic.bytes = state.info.dynamic_smem;
  cta->dynamic.cells.resize((cta->dynamic.bytes + 1) / 2);
  memset(cta->smem, 0xFF, kReserved + cta->dynamic.bytes);
  cta->fixed.begin = fixed_begin;
  cta->fixed.bytes = fixed_bytes;
  cta->fixed.cells.resize((fixed_bytes + 1) / 2);
  cta->fixed_image.assign(fixed_bytes, char(0xFF));
  cta->warps = std::vector<Warp>((state.block_threads + 31) / 32);
  cta->warpgroups = std::vector<Warpgroup>((state.block_threads + 127) / 128);
  unsigned agent = first_agent(cta->slot);
  for (Warpgroup& w : cta->warpgroups) w.agent = agent++;
  cta->live = state.block_threads;
  cta->threads = std::vector<Thread>(state.block_threads);
  for (unsigned i = 0; i < state.block_threads; ++i) {
    Thread& t = cta->threads[i];
    const dim3& b = state.info.block;
    t.cta = cta.get();
    t.linear = i;
    t.id = cta->slot * state.block_threads + i;
    t.index = {i % b.x, i / b.x % b.y, i / (b.x * b.y)};
    t.first = t.now = state.last_tick[t.id] + 1;
    t.fiber = context::fiber(std::allocator_arg, StackOf{t.id}, [&t, &body](context::fiber&& from) {
      scheduler = std::move(from);
      body();
      t.done = true;
      return std::move(scheduler);
    });
    t.ready = true;
    cta->ready.push_back(&t);
  }
  return cta;
}

/// Starts the cluster with this number in the grid on free slots.
void start_cluster(unsigned number, unsigned first_slot, const std::function<void()>& body) {
  const dim3 &c = state.info.cluster, &g = state.info.grid;
  const unsigned nx = g.x / c.x, ny = g.y / c.y;
  const unsigned x = number % nx * c.x, y = number / nx % ny * c.y, z = number / (nx * ny) * c.z;
  auto cluster = std::make_unique<Cluster>();
  cluster->first_slot = first_slot;
  const unsigned size = c.x * c.y * c.z;
  for (unsigned r = 0; r < size; ++r) {
    const uint3 block = {x + r % c.x, y + r / c.x % c.y, z + r / (c.x * c.y)};
    cluster->ctas.push_back(make_cta(*cluster, r, block, body));
    state.slots[first_slot + r] = cluster->ctas.back().get();
  }
  cluster->live = size * state.block_threads;
  state.clusters.push_back(std::move(cluster));
}

void end_cluster(Cluster* cluster) {
  for (auto& cta : cluster->ctas) {
    count_accesses(*cta);
    for (size_t i = 0; i < pending.size();) {
      if (pending[i].target != cta.get()) {
        ++i;
        continue;
      }
      const Pending p = pending[i];
      pending.erase(pending.begin() + long(i));
      report("copy never waited for", p.issued,
             [&] {
               return format("the block has ended while its %s to %s was in flight", p.what,
                             place(p.into).c_str());
             },
             p.issuer);
    }
    for (Thread& t : cta->threads) state.last_tick[t.id] = t.now;
    show_fixed(nullptr);
    state.slots[cta->slot] = nullptr;
    ++state.counters.blocks;
    state.counters.threads += cta->threads.size();
  }
  auto it = std::find_if(state.clusters.begin(), state.clusters.end(),
                         [&](auto& c) { return c.get() == cluster; });
  state.clusters.erase(it);
}

void thread_ends(Thread* t) {
  for (auto& group : t->store_groups)
    for (auto& store : group)
      report("store never waited for", site(store.here), [&] {
        return "the thread ends while its TMA store may still read " +
               place(uintptr_t(store.smem));
      });
  for (auto& store : t->stores_open)
    report("store never committed", site(store.here),
           [&] {
             return "the thread ends without tma_store_commit_group; the store reads " +
                    place(uintptr_t(store.smem));
           });
  Warpgroup& g = t->cta->warpgroups[t->warpgroup()];
  if (!g.open.empty() || !g.groups.empty()) {
    const Loc here = g.groups.empty() ? g.open[0].here : g.groups.front()[0].here;
    report("wgmma never waited for", site(here),
           [] { return accumulator_text("the thread ends while a wgmma on %s is in flight"); });
  }
  --t->cta->live;
  --t->cta->cluster->live;
  leave_cluster_barrier(t);
}

std::string waiting_for(const Thread& t) {
  std::string s = t.waits_for;
  if (t.waits_on) {
    const Mbarrier& b = *t.waits_on;
    s += format(" for %s, parity %u, at %s (it is in phase %u: %u of %u arrivals and %ld bytes of "
                "copies missing)", name_of(b).c_str(), t.waits_parity, where(t.waits_at).c_str(),
                b.phase, b.pending, b.count, long(b.tx));
  } else if (t.waits_flag) {
    s += format(" for %s >= %d at %s (it is %d)", place(uintptr_t(t.waits_flag)).c_str(),
                t.waits_value, where(t.waits_at).c_str(), *t.waits_flag);
  } else {
    s += " at " + where(t.waits_at);
  }
  return s;
}

void report_deadlock() {
  std::map<std::string, std::vector<const Thread*>> groups;
  unsigned ended = 0;
  for (auto& cluster : state.clusters)
    for (auto& cta : cluster->ctas)
      for (const Thread& t : cta->threads) {
        if (t.done)
          ++ended;
        else
          groups[format("block (%u,%u,%u): ", cta->block.x, cta->block.y, cta->block.z) +
                 waiting_for(t)]
              .push_back(&t);
      }
  // The first one told of is a wait for a barrier where there is one.
  const Thread* shown = groups.begin()->second[0];
  for (auto& [why, threads] : groups)
    if (threads[0]->waits_on) shown = threads[0];
  report("deadlock", site(shown->waits_at), [&] {
    std::string text = waiting_for(*shown);
    text += format("; no thread can go on (%u have ended):", ended);
    size_t lines = 0;
    for (auto& [why, threads] : groups)
      if (++lines <= 12)
        text += format("\n    %zu threads, first %s, in ", threads.size(),
                       who(threads[0]).c_str()) + why;
    return text;
  }, shown);
  state.stopped = true;
}

/// A block with a thread that can run: the one that ran last, else the next.
Cta* pick_cta(Cta* last) {
  const bool stay = last && !last->ready.empty() && !(state.seed && state.roll(16) == 0);
  if (stay) return last;
  const size_t n = state.slots.size();
  const size_t start = state.seed ? state.roll(uint32_t(n)) : last ? last->slot + 1 : 0;
  for (size_t i = 0; i < n; ++i)
    if (Cta* cta = state.slots[(start + i) % n]; cta && !cta->ready.empty()) return cta;
  return nullptr;
}

/// Lets threads look again that spin on a flag or a barrier: those for which something may have
/// changed, or, `anyway`, those that may be after something else than spinning.
bool wake_pollers(bool anyway) {
  const size_t before = pollers.size();
  auto rest = std::partition(pollers.begin(), pollers.end(), [&](Thread* t) {
    return t->polled_at == state.progress && !(anyway && !t->waits_flag && t->idle_polls < 64);
  });
  const std::vector<Thread*> woken(rest, pollers.end());
  pollers.erase(rest, pollers.end());
  for (Thread* t : woken) {
    t->idle_polls = t->polled_at == state.progress ? t->idle_polls + 1 : 0;
    t->polled_at = state.progress;
    wake(t);
  }
  return pollers.size() < before;
}

/// Nothing can run: lets threads that spin look again, else one asynchronous operation land.
bool unblock() {
  if (wake_pollers(false)) return true;
  if (pending.empty()) return wake_pollers(true);
  const size_t i = state.roll(uint32_t(pending.size()));
  const Pending p = std::move(pending[i]);
  pending.erase(pending.begin() + long(i));
  show_fixed(p.target);
  p.deliver();
  ++state.progress;
  return true;
}

void run_grid(const std::function<void()>& body) {
  const dim3 &c = state.info.cluster, &g = state.info.grid;
  const unsigned cluster_size = c.x * c.y * c.z;
  const unsigned total = g.x * g.y * g.z / cluster_size;
  unsigned next = 0;
  Cta* cta = nullptr;
  for (;;) {
    for (unsigned s = 0; s < state.slots.size() && next < total; s += cluster_size)
      if (!state.slots[s]) start_cluster(next++, s, body);
    if (state.clusters.empty()) return;
    cta = pick_cta(cta);
    if (!cta) {
      if (unblock()) continue;
      report_deadlock();
      return;
    }
    if (state.seed) std::swap(cta->ready.front(),
                              cta->ready[state.roll(uint32_t(cta->ready.size()))]);
    Thread* t = cta->ready.front();
    cta->ready.pop_front();
    t->ready = false;
    show_fixed(cta);
    self = t;
    threadIdx = t->index;
    blockIdx = cta->block;
    t->fiber = std::move(t->fiber).resume();
    if (state.stopped) return;
    if (t->done) {
      thread_ends(t);
      self = nullptr;
      if (!cta->cluster->live) {
        end_cluster(cta->cluster);
        cta = nullptr;
      }
    }
    self = nullptr;
  }
}

void check_launch(const LaunchInfo& l) {
  auto fail = [](const std::string& why) { throw std::invalid_argument(why); };
  const unsigned threads = l.block.x * l.block.y * l.block.z;
  const unsigned cluster = l.cluster.x * l.cluster.y * l.cluster.z;
  if (!instrumented)
    fail("the kernel was not compiled with -fsanitize=thread: the emulated device sees no access");
  if (threads == 0 || threads > 1024) fail(format("%u threads in a block: 1 to 1024", threads));
  if (!(l.grid.x && l.grid.y && l.grid.z)) fail("an empty grid");
  if (l.dynamic_smem > kMaxSmem)
    fail(format("%zu bytes of shared memory per block: the most is %zu", l.dynamic_smem, kMaxSmem));
  if (fixed_bytes > kMaxFixed)
    fail(format("%zu bytes of static shared memory: the most is %u", fixed_bytes, kMaxFixed));
  if (cluster == 0 || cluster > 8) fail(format("a cluster of %u blocks: 1 to 8", cluster));
  if (l.grid.x % l.cluster.x || l.grid.y % l.cluster.y || l.grid.z % l.cluster.z)
    fail(format("a grid of %ux%ux%u blocks is no multiple of the cluster of %ux%ux%u", l.grid.x,
                l.grid.y, l.grid.z, l.cluster.x, l.cluster.y, l.cluster.z));
}

}  // namespace

int num_sms() {
  static const int sms = getenv("EMU_SMS") ? atoi(getenv("EMU_SMS")) : 4;
  return sms < 1 ? 1 : sms > 16 ? 16 : sms;
}

static unsigned chosen_seed = getenv("EMU_SEED") ? unsigned(atoi(getenv("EMU_SEED"))) : 0;
void set_seed(unsigned seed) { chosen_seed = seed; }

void launch(const LaunchInfo& info, const std::function<void()>& body) {
  check_launch(info);
  const unsigned cluster = info.cluster.x * info.cluster.y * info.cluster.z;
  const unsigned blocks = info.grid.x * info.grid.y * info.grid.z;
  const unsigned resident = std::max(1u, unsigned(num_sms()) / cluster) * cluster;
  state = State{};
  state.info = info;
  state.block_threads = info.block.x * info.block.y * info.block.z;
  state.slots.assign(std::min(blocks, resident), nullptr);
  state.clock_size = state.slots.size() * (state.block_threads + agents_per_cta());
  state.last_tick.assign(state.clock_size, 0);
  state.seed = chosen_seed;
  state.random = chosen_seed * 2654435761u + 1;
  reserve_memory(unsigned(state.slots.size()), unsigned(state.slots.size()) * state.block_threads);
  pending.clear();
  pollers.clear();
  reset_labels();
  reset_flags();
  blockDim = info.block;
  gridDim = info.grid;
  // The host's own thread-local variables are in the segment that blocks use for shared memory.
  const std::vector<char> host(reinterpret_cast<char*>(fixed_begin),
                               reinterpret_cast<char*>(fixed_begin + fixed_bytes));
  const int before = reports();
  run_grid(body);
  self = nullptr;
  if (reports() > before) print_counts();
  show_fixed(nullptr);
  state.clusters.clear();  // unwinds the threads of a launch that could not end
  pending.clear();
  std::copy(host.begin(), host.end(), reinterpret_cast<char*>(fixed_begin));
  settle_global_memory();
}

void block_self(const char* what, Loc here) {
  self->waits_for = what;
  self->waits_at = here;
  scheduler = std::move(scheduler).resume();
  self->waits_on = nullptr;
  self->waits_flag = nullptr;
}

void wake(Thread* t) {
  if (t->ready) return;
  t->ready = true;
  t->cta->ready.push_back(t);
}

void poll(const char* what, Loc here) {
  pollers.push_back(self);
  block_self(what, here);
}

void add_pending(std::function<void()> deliver, Cta* target, uintptr_t into, Site issued,
                 const char* what) {
  pending.push_back({std::move(deliver), target, issued, what, self, into});
}

}  // namespace emu

// The parts of the emulated device one by one: threads, barriers, flags between blocks, memory,
// what the hardware refuses. Together with emulator_tile, _hopper and _agreement every wrapper of
// common/ptx is called.
#include "common/emulator/mutate.h"
#include "tests/emulator_support.h"

namespace {

std::vector<int> to_host(const gpu::Buffer& b) {
  std::vector<int> v(b.bytes() / 4);
  gpu::copy_to_host(v.data(), b.get(), b.bytes());
  return v;
}

// ---- threads ------------------------------------------------------------------------------------

__global__ void built_ins(int* out) {
  const int block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  out[block * 24 + thread] = block * 100 + thread;
}

__global__ void shuffles(int* out) {
  const int lane = threadIdx.x % 32;
  int sum = lane;
  for (int x = 16; x; x /= 2) sum += __shfl_xor_sync(~0u, sum, x);
  const int first = __shfl_sync(~0u, lane * 10, 3), next = __shfl_down_sync(~0u, lane, 1);
  const int before = __shfl_up_sync(~0u, lane, 1), half_warp = __shfl_sync(~0u, lane, 2, 16);
  const unsigned odd = __ballot_sync(~0u, lane % 2);
  const bool any = __any_sync(~0u, lane == 5), all = __all_sync(~0u, lane < 31);
  out[threadIdx.x] = sum == 496 && first == 30 && next == (lane < 31 ? lane + 1 : 31) &&
                     before == (lane ? lane - 1 : 0) && half_warp == lane / 16 * 16 + 2 &&
                     odd == 0xAAAAAAAA && any && !all;
}

__global__ void shared_by_block(int* out) {
  __shared__ int v[64];
  v[threadIdx.x] = blockIdx.x * 100 + threadIdx.x;
  ptx::cluster_arrive();
  ptx::cluster_wait();
  out[blockIdx.x * 64 + threadIdx.x] = v[63 - threadIdx.x];
}

__global__ void divergent(int* out) {
  if (threadIdx.x < 16)
    __shfl_sync(~0u, 1, 0);
  else
    out[threadIdx.x] = __shfl_sync(~0u, 1, 0);
}

}  // namespace

TEST_CASE("threads and blocks") {
  gpu::Buffer out(64 * 24 * 4, "out");
  CHECK(run(shape(dim3(3, 2, 2), dim3(4, 3, 2)), built_ins, out.get<int>()).count == 0);
  for (int i = 0; i < 12 * 24; ++i) REQUIRE(to_host(out)[i] == i / 24 * 100 + i % 24);
  CHECK(run(shape(dim3(1), dim3(64)), shuffles, out.get<int>()).count == 0);
  for (int i = 0; i < 64; ++i) CHECK(to_host(out)[i] == 1);
  for (unsigned cluster : {1u, 2u, 4u}) {  // static shared memory is each block's own
    for (unsigned seed : {0u, 3u}) {
      emu::set_seed(seed);
      const auto blocks = shape(dim3(8), dim3(64), 0, dim3(cluster));
      CHECK(run(blocks, shared_by_block, out.get<int>()).all() == "");
      for (int i = 0; i < 512; ++i) REQUIRE(to_host(out)[i] == i / 64 * 100 + 63 - i % 64);
    }
  }
  emu::set_seed(0);
  CHECK(run(shape(dim3(1), dim3(32)), divergent, out.get<int>()).has("divergence"));
}

// ---- barriers -----------------------------------------------------------------------------------

namespace {

/// Half of the block fills, the other half reads; `bug` 1: the reader does not wait, 2: the filler
/// arrives for another number of threads.
__global__ void named_barriers(int* out, int bug) {
  __shared__ int v[64];
  if (threadIdx.x < 64) {
    v[threadIdx.x] = threadIdx.x;
    ptx::bar_arrive(3, bug == 2 ? 64 : 128);
  } else {
    if (bug != 1) ptx::bar_sync(3, 128);
    out[threadIdx.x - 64] = v[127 - threadIdx.x];
  }
}

__global__ void some_leave(int* out) {
  if (threadIdx.x >= 96) return;
  __syncthreads();
  out[threadIdx.x] = 1;
}

__global__ void remote_arrivals(int* out, int release) {
  auto* bar = static_cast<uint64_t*>(ptx::dynamic_smem());
  ptx::label(bar, 8, "bar");
  const uint32_t rank = ptx::cluster_ctarank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(bar, 2);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  if (threadIdx.x < 2) {
    if (release)
      ptx::mbarrier_arrive_remote_release_cluster(bar, threadIdx.x);
    else
      ptx::mbarrier_arrive_remote(bar, threadIdx.x);
  }
  while (!ptx::mbarrier_test_wait(bar, 0)) {
  }
  out[blockIdx.x * 32 + threadIdx.x] = 1 + int(rank == blockIdx.x % 2);
  ptx::cluster_sync();
}

/// Each CTA of a pair reads what the other wrote into its own shared memory.
__global__ void reads_the_other(int* out, bool early) {
  auto* mine = static_cast<int*>(ptx::dynamic_smem());
  ptx::label(mine, 128, "mine");
  mine[threadIdx.x] = int(100 * ptx::cluster_ctarank() + threadIdx.x);
  if (!early) ptx::cluster_sync();  // before it, the other may not have written
  const int* theirs = ptx::mapa(mine, ptx::cluster_ctarank() ^ 1);
  out[blockIdx.x * 32 + threadIdx.x] = theirs[31 - threadIdx.x];
  ptx::cluster_sync();  // after it, the other may leave
}

__global__ void copies_to_mbarrier(const int* in, int* out, int bug) {
  auto* smem = static_cast<int*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + 64 * 4);
  ptx::label(smem, 1024, "tile", 0);
  ptx::label(bar, 8, "full", 0);
  if (threadIdx.x == 0) ptx::mbarrier_init(bar, 64);
  __syncthreads();
  ptx::cp_async_ca<4>(&smem[threadIdx.x * 4], &in[threadIdx.x]);
  ptx::cp_async_ca<8>(&smem[threadIdx.x * 4 + 2], &in[threadIdx.x * 2], threadIdx.x % 2 == 0);
  if (bug == 1)
    ptx::mbarrier_arrive(bar);  // says that it has copied, but the copies may be on the way
  else
    ptx::cp_async_mbarrier_arrive_noinc(bar);
  ptx::mbarrier_wait(bar, 0);
  const int other = 63 - threadIdx.x;
  out[threadIdx.x] = smem[other * 4] + smem[other * 4 + 2];
}

/// Lane i copies the first i bytes of 16 and, for i > 16, `more` bytes.
__global__ void copies_of_a_part(const char* in, char* out, int more) {
  char* smem = static_cast<char*>(ptx::dynamic_smem()) + 16 * threadIdx.x;
  const int bytes = threadIdx.x <= 16 ? int(threadIdx.x) : more;
  ptx::cp_async_cg_16_part(smem, in + 16 * threadIdx.x, bytes);
  ptx::cp_async_commit_group();
  ptx::cp_async_wait_group<0>();
  for (int i = 0; i < 16; ++i) out[16 * threadIdx.x + i] = smem[i];
}

}  // namespace

TEST_CASE("shared memory of another CTA") {
  gpu::Buffer out(1024, "out");
  const auto pair = shape(dim3(2), dim3(32), 1024, dim3(2));
  bool early = false;
  for (unsigned seed = 0; seed < 8; ++seed) {
    emu::set_seed(seed);
    CHECK(run(pair, reads_the_other, out.get<int>(), false).count == 0);
    for (int i = 0; i < 32; ++i) REQUIRE(to_host(out)[i] == 100 + 31 - i);
    early |= run(pair, reads_the_other, out.get<int>(), true).count > 0;
  }
  CHECK(early);
}

TEST_CASE("barriers") {
  gpu::Buffer out(1024, "out");
  for (unsigned seed = 0; seed < 3; ++seed) {
    emu::set_seed(seed);
    CHECK(run(shape(dim3(1), dim3(128)), named_barriers, out.get<int>(), 0).count == 0);
    for (int i = 0; i < 64; ++i) REQUIRE(to_host(out)[i] == 63 - i);
    const Findings unordered = run(shape(dim3(1), dim3(128)), named_barriers, out.get<int>(), 1);
    CHECK((unordered.has({"race", "v"}) || unordered.has({"never written", "v"})));
  }
  emu::set_seed(0);
  CHECK(run(shape(dim3(1), dim3(128)), named_barriers, out.get<int>(), 2).has("barrier"));
  CHECK(run(shape(dim3(1), dim3(128)), some_leave, out.get<int>())
            .has({"deadlock", "__syncthreads", "32 have ended"}));
  for (int release : {0, 1}) {
    CHECK(run(shape(dim3(4), dim3(32), 64, dim3(2)), remote_arrivals, out.get<int>(), release)
              .all() == "");
    for (int i = 0; i < 128; ++i) REQUIRE(to_host(out)[i] == 2);
  }
  std::vector<int> numbers(128);
  for (int i = 0; i < 128; ++i) numbers[i] = i;
  gpu::Buffer in(512, "in");
  gpu::copy_to_device(in.get(), numbers.data(), 512);
  CHECK(run(shape(dim3(1), dim3(64), 2048), copies_to_mbarrier, in.get<const int>(),
            out.get<int>(), 0).all() == "");
  for (int i = 0; i < 64; ++i)
    REQUIRE(to_host(out)[i] == (63 - i) + ((63 - i) % 2 == 0 ? 2 * (63 - i) : 0));
  CHECK(run(shape(dim3(1), dim3(64), 2048), copies_to_mbarrier, in.get<const int>(),
            out.get<int>(), 1).has({"read before it landed", "tile stage[0]", "cp.async"}));
  gpu::Buffer part(256 + 16, "part");  // as much as lanes 0 to 16 may read
  gpu::fill(part.get(), 7, part.bytes());
  CHECK(run(shape(dim3(1), dim3(32), 512), copies_of_a_part, part.get<const char>(),
            out.get<char>(), 0).all() == "");
  for (int i = 0; i < 512; ++i)
    REQUIRE(static_cast<const char*>(out.get())[i] == (i / 16 <= 16 && i % 16 < i / 16 ? 7 : 0));
  CHECK(run(shape(dim3(1), dim3(32), 512), copies_of_a_part, part.get<const char>(),
            out.get<char>(), 2).has("out of bounds"));
}

// ---- flags between blocks, atomics --------------------------------------------------------------

namespace {

enum FlagBug { kNone, kNoWait, kRelaxedRelease, kNoBarrier, kNoRaise };

/// Block b adds its number to the sum of the blocks before it, handed on in global memory.
__global__ void chain(int* sums, int* flag, int bug) {
  const int b = blockIdx.x;
  if (bug != kNoWait && threadIdx.x == 0) ptx::wait_until(flag, b);
  __syncthreads();
  sums[(b + 1) * 32 + threadIdx.x] = (b ? sums[b * 32 + threadIdx.x] : 0) + b;
  if (bug != kNoBarrier) __syncthreads();
  if (threadIdx.x == 0 && bug != kNoRaise) {
    if (bug == kRelaxedRelease)
      ptx::red_add_relaxed(flag, 1);
    else
      ptx::red_add_release(flag, 1);
  }
}

/// The same with fences, relaxed flags and a loop that spins.
__global__ void chain_of_fences(int* sums, int* flag) {
  const int b = blockIdx.x;
  if (threadIdx.x == 0) {
    while (ptx::ld_relaxed(flag) < b) {
    }
    __threadfence();
  }
  __syncthreads();
  sums[(b + 1) * 32 + threadIdx.x] = (b ? sums[b * 32 + threadIdx.x] : 0) + b;
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    atomicAdd(flag, 1);
  }
}

__global__ void spin_on_acquire(int* sums, int* flag) {
  if (blockIdx.x == 1) {
    sums[0] = 7;
    ptx::red_add_release(flag, 1);
  } else {
    while (ptx::ld_acquire(flag) == 0) {
    }
    sums[1] = sums[0];
  }
}

__global__ void count_up(int* counter, float* sum) {
  const int ticket = atomicAdd(counter, 1);
  atomicAdd(sum, 0.5f);
  atomicMax(counter + 1, ticket);
  if (ticket == 0) atomicExch(counter + 2, 5);
  atomicCAS(counter + 3, 0, ticket + 1);
}

/// The second warp reads a line that the first one then gives up.
__global__ void discard(int* lines, int* out, int offset, bool wait) {
  if (threadIdx.x >= 32) out[threadIdx.x] = lines[threadIdx.x - 32];
  if (wait) __syncthreads();
  if (threadIdx.x == 0) ptx::discard_l2(reinterpret_cast<char*>(lines) + offset);
}

__global__ void two_writers(int* out) { out[threadIdx.x / 2] = blockIdx.x; }

}  // namespace

TEST_CASE("flags between blocks") {
  gpu::Buffer sums(33 * 32 * 4, "sums"), flag(16, "flag");
  for (unsigned seed = 0; seed < 4; ++seed) {
    emu::set_seed(seed);
    const auto run_chain = [&](int bug) {
      gpu::Buffer fresh(33 * 32 * 4, "sums");
      gpu::fill(flag.get(), 0, flag.bytes());
      const Findings found =
          run(shape(dim3(32), dim3(32)), chain, fresh.get<int>(), flag.get<int>(), bug);
      if (bug == kNone) CHECK(to_host(fresh)[32 * 32] == 31 * 32 / 2);
      return found;
    };
    CHECK(run_chain(kNone).all() == "");
    const Findings early = run_chain(kNoWait);
    CHECK((early.has({"race", "global sums"}) || early.has({"never written", "global sums"})));
    CHECK(run_chain(kRelaxedRelease).has({"race", "global sums"}));
    CHECK(run_chain(kNoBarrier).has({"race", "global sums"}));
    CHECK(run_chain(kNoRaise).has({"deadlock", "wait_until", "global flag"}));
    gpu::fill(flag.get(), 0, flag.bytes());
    CHECK(run(shape(dim3(32), dim3(32)), chain_of_fences, sums.get<int>(), flag.get<int>()).all() ==
          "");
    CHECK(to_host(sums)[32 * 32] == 31 * 32 / 2);
    gpu::fill(flag.get(), 0, flag.bytes());
    CHECK(run(shape(dim3(2), dim3(1)), spin_on_acquire, sums.get<int>(), flag.get<int>()).all() ==
          "");
    CHECK(to_host(sums)[1] == 7);
  }
  emu::set_seed(0);
  gpu::fill(flag.get(), 0, flag.bytes());
  gpu::fill(sums.get(), 0, sums.bytes());
  CHECK(run(shape(dim3(8), dim3(64)), count_up, flag.get<int>(), sums.get<float>()).count == 0);
  CHECK(to_host(flag)[0] == 512);
  CHECK(to_host(flag)[1] == 511);
  CHECK(to_host(flag)[2] == 5);
  CHECK(__int_as_float(to_host(sums)[0]) == 256.0f);
  CHECK(run(shape(dim3(1), dim3(64)), two_writers, sums.get<int>()).has({"race", "global sums"}));
}

TEST_CASE("lines of L2 that are given up") {
  gpu::Buffer lines(2 * 128, "lines"), out(64 * 4, "out");
  gpu::fill(lines.get(), 1, lines.bytes());
  const auto find = [&](int offset, bool wait) {
    return run(shape(dim3(1), dim3(64)), discard, lines.get<int>(), out.get<int>(), offset, wait);
  };
  CHECK(find(0, true).all() == "");
  CHECK(to_host(lines)[31] == -1);
  CHECK(to_host(lines)[32] == 0x01010101);
  CHECK(find(0, false).has({"race", "global lines"}));
  CHECK(find(64, true).has({"misaligned", "discard.L2", "128"}));
  CHECK(find(256, true).has("out of bounds"));
}

// ---- memory and what the hardware refuses -------------------------------------------------------

namespace {

enum Misuse {
  kReadsUnwritten, kReadsPastShared, kMisalignedVector, kMisalignedCopy, kMisalignedMatrix,
  kTooManyRegisters, kUninitialisedBarrier, kTooManyArrivals, kDescriptorOutside, kTrap,
  kUnwaitedTma, kWrongRank
};

__global__ void misuse(const __grid_constant__ CUtensorMap map, float* gmem, int what) {
  auto* smem = static_cast<float*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + 1024);
  uint32_t r[4];
  float acc[32] = {};
  switch (what) {
    case kReadsUnwritten: gmem[0] = smem[5]; break;
    case kReadsPastShared: gmem[0] = smem[5000]; break;
    case kMisalignedVector: {
      float4 v = make_float4(1, 2, 3, 4);
      *reinterpret_cast<float4*>(smem + 1) = v;
      break;
    }
    case kMisalignedCopy: ptx::cp_async_cg_16(smem + 2, gmem); break;
    case kMisalignedMatrix: ptx::ldmatrix_x4(r, smem + 2); break;
    case kTooManyRegisters: ptx::setmaxnreg_inc<264>(); break;
    case kUninitialisedBarrier: ptx::mbarrier_arrive(bar); break;
    case kTooManyArrivals:
      if (threadIdx.x == 0) {
        ptx::mbarrier_init(bar, 1);
        ptx::mbarrier_arrive_expect_tx(bar, 16);
        ptx::mbarrier_arrive(bar);
      }
      break;
    case kDescriptorOutside:
      ptx::wgmma_fence();
      ptx::wgmma_m64n64k16_f16<ptx::Major::k, ptx::Major::k>(acc, 0x3FFF, 0, 0);
      ptx::wgmma_commit_group();
      ptx::wgmma_wait_group<0>(acc);
      break;
    case kTrap: __trap();
    case kUnwaitedTma:
      if (threadIdx.x == 0) {
        ptx::mbarrier_init(bar, 1);
        ptx::fence_mbarrier_init();
        ptx::mbarrier_arrive_expect_tx(bar, 128);
        ptx::tma_load_2d(smem, &map, 0, 0, bar);
      }
      break;
    case kWrongRank: {
      const int coords[] = {0, 0, 0};
      emu::tma_load(smem, &map, coords, 3, bar, 0, emu::Loc::current());
      break;
    }
  }
}

/// A value that a lane still has to write, read by another one.
__global__ void no_syncwarp(int* out, int bug) {
  __shared__ int v[32];
  v[threadIdx.x] = threadIdx.x;
  if (!bug) __syncwarp();
  out[threadIdx.x] = v[31 - threadIdx.x];
}

}  // namespace

TEST_CASE("misuse") {
  gpu::Buffer gmem(4096, "gmem");
  gpu::fill(gmem.get(), 0, 4096);
  const auto map = gpu::tensor_map_2d(gmem.get(), 16, 64, 64, 1, 64, gpu::Swizzle::none);
  const auto finds = [&](int what, std::initializer_list<const char*> parts) {
    const Findings found =
        run(shape(dim3(1), dim3(128), 8192), misuse, map, gmem.get<float>(), what);
    INFO(found.all());
    return found.has(parts);
  };
  CHECK(finds(kReadsUnwritten, {"never written", "shared memory + 20"}));
  CHECK(finds(kReadsPastShared, {"out of bounds", "shared memory"}));
  CHECK(finds(kMisalignedVector, {"misaligned", "16-byte store"}));
  CHECK(finds(kMisalignedCopy, {"misaligned", "cp.async"}));
  CHECK(finds(kMisalignedMatrix, {"misaligned", "ldmatrix"}));
  CHECK(finds(kTooManyRegisters, {"illegal setmaxnreg", "264"}));
  CHECK(finds(kUninitialisedBarrier, {"mbarrier misuse", "before mbarrier_init"}));
  CHECK(finds(kTooManyArrivals, {"mbarrier misuse", "already has its 1 arrivals"}));
  CHECK(finds(kDescriptorOutside, {"out of bounds", "wgmma"}));
  CHECK(finds(kTrap, {"trap"}));
  CHECK(finds(kUnwaitedTma, {"copy never waited for", "TMA load"}));
  CHECK(finds(kWrongRank, {"illegal TMA", "dimensions"}));
  CHECK(run(shape(dim3(1), dim3(32)), no_syncwarp, gmem.get<int>(), 0).count == 0);
  const Findings race = run(shape(dim3(1), dim3(32)), no_syncwarp, gmem.get<int>(), 1);
  CHECK((race.has("race") || race.has("never written")));
}

TEST_CASE("launches and tensor maps that are refused") {
  gpu::Buffer out(4096, "out");
  CHECK_THROWS_AS(run(shape(dim3(1), dim3(1025)), built_ins, out.get<int>()), gpu::Error);
  CHECK_THROWS_AS(run(shape(dim3(0), dim3(32)), built_ins, out.get<int>()), gpu::Error);
  CHECK_THROWS_AS(run(shape(dim3(1), dim3(32), 240000), built_ins, out.get<int>()), gpu::Error);
  CHECK_THROWS_AS(run(shape(dim3(3), dim3(32), 0, dim3(2)), built_ins, out.get<int>()), gpu::Error);
  using gpu::Swizzle;
  CHECK_THROWS_AS(gpu::tensor_map_2d(out.get(), 8, 12, 12, 8, 8, Swizzle::none), gpu::Error);
  CHECK_THROWS_AS(gpu::tensor_map_2d(out.get(), 8, 64, 64, 8, 64, Swizzle::b64), gpu::Error);
  CHECK_THROWS_AS(gpu::tensor_map_2d(out.get<char>() + 8, 8, 64, 64, 8, 8, Swizzle::none),
                  gpu::Error);
}

// ---- counters -----------------------------------------------------------------------------------

namespace {

__global__ void stride_copy(const float* in, float* out, int stride) {
  out[threadIdx.x * stride] = in[threadIdx.x * stride];
}

__global__ void shared_columns(float* out, int pitch) {
  auto* smem = static_cast<float*>(ptx::dynamic_smem());
  smem[threadIdx.x * pitch] = 1.0f;
  __syncthreads();
  out[threadIdx.x] = smem[threadIdx.x * pitch];
}

__global__ void matrices(uint32_t* out, int swizzled) {
  auto* smem = static_cast<char*>(ptx::dynamic_smem());
  for (int i = 0; i < 4; ++i) {
    const float4 v = make_float4(1, 2, 3, 4);
    reinterpret_cast<float4*>(smem)[threadIdx.x + 32 * i] = v;
    reinterpret_cast<float4*>(smem)[threadIdx.x + 32 * (i + 4)] = v;
  }
  __syncthreads();
  const int row = threadIdx.x % 16, chunk = threadIdx.x / 16;  // rows of 128 bytes
  uint32_t r[4], two[2];
  ptx::ldmatrix_x4(r, smem + row * 128 + (swizzled ? chunk ^ (row & 7) : chunk) * 16);
  ptx::ldmatrix_x2(two, smem + threadIdx.x * 16);
  ptx::ldmatrix_x2_trans(two, smem + threadIdx.x * 16);
  float d[4] = {};
  ptx::mma_m16n8k16_bf16(d, r, two);
  out[threadIdx.x] = r[0] + two[0];
}

__global__ void quads(float* out, int pitch) {  // 16 bytes a lane, `pitch` floats apart
  auto* smem = static_cast<float*>(ptx::dynamic_smem());
  for (int i = 0; i < 4; ++i) smem[threadIdx.x * pitch + i] = threadIdx.x + 0.25f * i;
  __syncthreads();
  float r[4];
  ptx::ld_volatile_shared_v4(r, &smem[(threadIdx.x ^ 1) * pitch]);
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = r[i];
}

}  // namespace

TEST_CASE("counters") {
  gpu::Buffer in(1 << 16, "in"), out(1 << 16, "out");
  gpu::fill(in.get(), 0, in.bytes());
  const auto copy = [&](int stride) {
    run(shape(dim3(1), dim3(64)), stride_copy, in.get<const float>(), out.get<float>(), stride);
    return emu::counters();
  };
  // Coalesced: 32 lanes of 4 bytes are 128 bytes, 4 sectors of 32.
  CHECK(copy(1).global_load.requests == 2);
  CHECK(copy(1).global_load.sectors == 2 * 4);
  CHECK(copy(1).global_store.sectors == 2 * 4);
  CHECK(copy(1).global_load.bytes == 64 * 4);
  CHECK(copy(2).global_load.sectors == 2 * 8);
  CHECK(copy(8).global_load.sectors == 2 * 32);
  CHECK(copy(16).global_load.sectors == 2 * 32);
  const auto columns = [&](int pitch) {
    run(shape(dim3(1), dim3(32), 8192), shared_columns, out.get<float>(), pitch);
    return emu::counters();
  };
  CHECK(columns(1).shared_load.wavefronts == 1);
  CHECK(columns(1).shared_store.wavefronts == 1);
  CHECK(columns(2).shared_load.wavefronts == 2);
  CHECK(columns(32).shared_load.wavefronts == 32);
  CHECK(columns(33).shared_load.wavefronts == 1);
  const auto read_quads = [&](int pitch) {
    CHECK(run(shape(dim3(1), dim3(32), 8192), quads, out.get<float>(), pitch).all() == "");
    for (int i = 0; i < 128; ++i) CHECK(out.get<float>()[i] == (i / 4 ^ 1) + 0.25f * (i % 4));
    return emu::counters().shared_load;
  };
  CHECK(read_quads(4).requests == 1);  // one load of 16 bytes, not four
  CHECK(read_quads(4).wavefronts == 4);
  CHECK(read_quads(32).wavefronts == 32);  // all in the same four banks
  const auto load = [&](int swizzled) {
    CHECK(run(shape(dim3(1), dim3(32), 8192), matrices, out.get<uint32_t>(), swizzled).all() == "");
    return emu::counters().ldmatrix;
  };
  CHECK(load(0).ideal == 4 + 2 + 2);
  CHECK(load(1).wavefronts == load(1).ideal);
  CHECK(load(0).wavefronts == 4 * 8 + 2 + 2);  // eight rows in the same four banks
  CHECK(emu::counters().mma_flops == 2 * 16 * 8 * 16);
  for (const auto& [name, value] : emu::counters_list(emu::counters()))
    if (name == "ldmatrix_requests") CHECK(value == 3);
}

// ---- mutation -----------------------------------------------------------------------------------

namespace {

__global__ void exchange(int* out, int twice) {
  __shared__ int v[64];
  v[threadIdx.x] = threadIdx.x;
  __syncthreads();
  if (twice) __syncthreads();
  out[threadIdx.x] = v[63 - threadIdx.x];
}

}  // namespace

TEST_CASE("mutation") {
  gpu::Buffer out(256, "out");
  const auto mutate = [&](int twice) {
    return emu::mutate([&] {
      return run(shape(dim3(1), dim3(64)), exchange, out.get<int>(), twice).count;
    });
  };
  CHECK(mutate(0) == 0);  // the barrier is missed when it is left out
  CHECK(mutate(1) == 1);  // neither of two is: nobody argues for that
}

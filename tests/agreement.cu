// Does the emulated device do what the hardware does? Random cases of the instructions, one hash
// per case. On an H200 this wrote tests/data/agreement.txt; emulator_agreement.cpp runs the same
// source on the emulated device and compares.
//   nvcc -std=c++17 -O2 -I. -gencode arch=compute_90a,code=sm_90a tests/agreement.cu -o agreement
//   ./agreement > tests/data/agreement.txt
#include <cstdio>
#include <string>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/ptx/ptx.h"
#include "tests/agreement_device.h"

namespace agreement {

/// The same numbers on both devices.
struct Random {
  uint32_t state;
  uint32_t operator()(uint32_t below) {
    state = state * 1664525 + 1013904223;
    return uint32_t((uint64_t(state >> 4) * below) >> 28);
  }
};

template <class T>
uint64_t hash(const std::vector<T>& values) {
  uint64_t h = 1469598103934665603ull;
  for (T v : values) h = (h ^ uint64_t(v)) * 1099511628211ull;
  return h;
}

using Emit = void (*)(const std::string& line);

std::string text(const char* kind, int index, uint64_t h) {
  char line[64];
  snprintf(line, sizeof line, "%s %d %016llx", kind, index, static_cast<unsigned long long>(h));
  return line;
}

/// A buffer that kernels write their results to as 32-bit words.
struct Results {
  explicit Results(size_t words) : device(words * 4, "results"), host(words) {}
  uint32_t* get() { return device.get<uint32_t>(); }
  uint64_t take() {
    gpu::synchronize();
    gpu::copy_to_host(host.data(), device.get(), host.size() * 4);
    return hash(host);
  }
  void clear() { gpu::fill(device.get(), 0, host.size() * 4); }
  gpu::Buffer device;
  std::vector<uint32_t> host;
};

/// Word i of the test data: two FP16 integers in [-8, 8], so that sums are exact in any order.
__device__ uint32_t data_word(uint32_t i, bool bf16 = false) {
  uint32_t word = 0;
  for (int e = 0; e < 2; ++e) {
    const uint32_t mixed = (2 * i + e + 1) * 2654435761u;
    const float value = float(int(mixed >> 20) % 17 - 8);
    const uint32_t bits = bf16 ? __float_as_uint(value) >> 16 : ptx::cvt_f16x2(value, 0.0f);
    word |= bits << (16 * e);
  }
  return word;
}

__device__ void fill_shared(void* smem, int bytes) {
  for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) {
    uint4 v;
    v.x = data_word(4 * i), v.y = data_word(4 * i + 1);
    v.z = data_word(4 * i + 2), v.w = data_word(4 * i + 3);
    static_cast<uint4*>(smem)[i] = v;
  }
  ptx::fence_proxy_async();
  __syncthreads();
}

__device__ void dump_shared(const void* smem, int bytes, uint32_t* out) {
  __syncthreads();
  for (int i = threadIdx.x; i < bytes / 16; i += blockDim.x) {
    const uint4 v = static_cast<const uint4*>(smem)[i];
    reinterpret_cast<uint4*>(out)[i] = v;
  }
}

// ---- wgmma --------------------------------------------------------------------------------------

constexpr int WGMMA_BYTES = 160 * 1024;

template <int N, ptx::Major A, ptx::Major B>
__device__ void multiply(float (&acc)[N / 2], uint64_t a, uint64_t b, int scale_d) {
  if constexpr (N == 64) ptx::wgmma_m64n64k16_f16<A, B>(acc, a, b, scale_d);
  if constexpr (N == 128) ptx::wgmma_m64n128k16_f16<A, B>(acc, a, b, scale_d);
  if constexpr (N == 192) ptx::wgmma_m64n192k16_f16<A, B>(acc, a, b, scale_d);
  if constexpr (N == 256) ptx::wgmma_m64n256k16_f16<A, B>(acc, a, b, scale_d);
}

template <int N, ptx::Major A, ptx::Major B>
__global__ void __launch_bounds__(128) wgmma_kernel(uint64_t a, uint64_t b, uint64_t b2,
                                                    uint32_t* out) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  fill_shared(smem, WGMMA_BYTES);
  const uint64_t base = ptx::smem_addr(smem) >> 4;
  float acc[N / 2];
  for (int i = 0; i < N / 2; ++i) acc[i] = 1.0f;
  ptx::wgmma_fence();
  multiply<N, A, B>(acc, a + base, b + base, 0);
  multiply<N, A, B>(acc, a + base, b2 + base, 1);
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(acc);
  for (int i = 0; i < N / 2; ++i) out[threadIdx.x * (N / 2) + i] = __float_as_uint(acc[i]);
}

__global__ void __launch_bounds__(128) wgmma_registers_kernel(uint64_t b, uint32_t* out) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  fill_shared(smem, WGMMA_BYTES);
  uint32_t frag_a[4];
  for (int i = 0; i < 4; ++i) frag_a[i] = data_word(threadIdx.x * 4 + i + uint32_t(b));
  float acc[32] = {};
  ptx::wgmma_fence();
  wgmma_m64n64k16_registers(acc, frag_a, b + (ptx::smem_addr(smem) >> 4));
  ptx::wgmma_commit_group();
  ptx::wgmma_wait_group<0>(acc);
  for (int i = 0; i < 32; ++i) out[threadIdx.x * 32 + i] = __float_as_uint(acc[i]);
}

template <int N, ptx::Major A>
void launch_wgmma(bool mn_b, uint64_t a, uint64_t b, uint64_t b2, uint32_t* out) {
  gpu::LaunchConfig config;
  config.block = dim3(128);
  config.dynamic_smem = WGMMA_BYTES;
  auto* kernel = mn_b ? wgmma_kernel<N, A, ptx::Major::mn> : wgmma_kernel<N, A, ptx::Major::k>;
  gpu::allow_dynamic_smem(kernel, WGMMA_BYTES);
  gpu::launch(0, config, kernel, a, b, b2, out);
}

template <int N>
void launch_wgmma(bool mn_a, bool mn_b, uint64_t a, uint64_t b, uint64_t b2, uint32_t* out) {
  mn_a ? launch_wgmma<N, ptx::Major::mn>(mn_b, a, b, b2, out)
       : launch_wgmma<N, ptx::Major::k>(mn_b, a, b, b2, out);
}

/// Start, leading and stride offsets, base offset and swizzle at random; half of them aligned as a
/// kernel would have them.
uint64_t random_descriptor(Random& random, uint64_t swizzle, bool aligned) {
  const uint64_t start = aligned ? random(8) * 64 : random(512);
  const uint64_t leading = aligned ? (random(8) + 1) * 64 : random(256);
  const uint64_t stride = aligned ? (random(4) + 1) * 64 : random(256);
  const uint64_t base = aligned ? 0 : random(8);
  return start | leading << 16 | stride << 32 | base << 49 | swizzle << 62;
}

void wgmma_cases(Emit emit, int count) {
  Random random{1};
  Results out(128 * 128);
  for (int i = 0; i < count; ++i) {
    out.clear();
    const bool aligned = random(2), mn_a = random(2), mn_b = random(2);
    const uint64_t swizzle = random(4);
    const uint64_t a = random_descriptor(random, swizzle, aligned);
    const uint64_t b = random_descriptor(random, swizzle, aligned);
    const uint64_t b2 = random_descriptor(random, swizzle, aligned);
    switch (random(4)) {
      case 0: launch_wgmma<64>(mn_a, mn_b, a, b, b2, out.get()); break;
      case 1: launch_wgmma<128>(mn_a, mn_b, a, b, b2, out.get()); break;
      case 2: launch_wgmma<192>(mn_a, mn_b, a, b, b2, out.get()); break;
      case 3: launch_wgmma<256>(mn_a, mn_b, a, b, b2, out.get()); break;
    }
    emit(text("wgmma", i, out.take()));
  }
  gpu::LaunchConfig config;
  config.block = dim3(128);
  config.dynamic_smem = WGMMA_BYTES;
  gpu::allow_dynamic_smem(wgmma_registers_kernel, WGMMA_BYTES);
  for (int i = 0; i < count / 6; ++i) {
    out.clear();
    const bool aligned = random(2);
    const uint64_t b = random_descriptor(random, random(4), aligned);
    gpu::launch(0, config, wgmma_registers_kernel, b, out.get());
    emit(text("wgmma_registers", i, out.take()));
  }
}

// ---- TMA ----------------------------------------------------------------------------------------

constexpr int TMA_BYTES = 32 * 1024;

struct Coords {
  int at[5];
};

template <int RANK>
__global__ void __launch_bounds__(128)
    tma_kernel(const __grid_constant__ CUtensorMap in, const __grid_constant__ CUtensorMap out,
               int offset, int bytes, Coords from, Coords to, uint32_t* dump) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + TMA_BYTES);
  fill_shared(smem, TMA_BYTES);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(bar, 1);
    ptx::fence_mbarrier_init();
  }
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(bar, bytes);
    tma_load<RANK>(smem + offset, &in, from.at, bar);
  }
  ptx::mbarrier_wait(bar, 0);
  dump_shared(smem, TMA_BYTES, dump);
  if (threadIdx.x == 0) {
    tma_store<RANK>(&out, smem + offset, to.at);
    ptx::tma_store_commit_group();
    ptx::tma_store_wait_group_read<0>();
  }
}

/// Boxes that lie inside, across the edges or outside; swizzled ones as wide as the swizzle, or
/// with `narrow` narrower.
template <int RANK>
void tma_cases(Emit emit, const char* kind, int count, bool narrow) {
  Random random{uint32_t(100 + RANK + 10 * narrow)};
  const int64_t extent[5] = {RANK == 2 ? 152 : 40, RANK == 2 ? 100 : 12, 7, 5, 3};
  int64_t elements = 1;
  for (int d = 0; d < RANK; ++d) elements *= extent[d];
  std::vector<uint16_t> host(size_t(elements) * 2), zero(size_t(elements) * 2);
  for (size_t i = 0; i < host.size(); ++i) host[i] = uint16_t(2 * i + 1);
  gpu::Buffer in(host.size() * 2, "in"), out(host.size() * 2, "out");
  gpu::copy_to_device(in.get(), host.data(), in.bytes());
  Results dump(TMA_BYTES / 4);
  for (int i = 0; i < count; ++i) {
    const int swizzle = narrow ? 32 << random(3) : random(4) ? 16 << random(4) : 0;
    const int element = random(3) ? 2 : 4;
    const int widest = swizzle >= 32 ? swizzle / 16 : 8;
    int chunks = swizzle >= 32 ? widest : int(random(uint32_t(widest))) + 1;
    if (narrow) chunks = int(random(uint32_t(widest - 1))) + 1;
    int box[5] = {chunks * 16 / element, 1, 1, 1, 1};
    int bytes = chunks * 16;
    for (int d = 1; d < RANK; ++d) {
      const int most = d == 1 ? 24 : 4;
      box[d] = int(random(uint32_t(most))) + 1;
      while (bytes * box[d] > 16384) box[d] = (box[d] + 1) / 2;
      bytes *= box[d];
    }
    // As many elements of 4 bytes fill twice the buffer, so the tensor is half as wide.
    int64_t size[5], stride[5];
    for (int d = 0; d < RANK; ++d) size[d] = extent[d];
    if (element == 4) size[0] = extent[0] / 2;
    if (random(3) == 0) size[0] -= 3;  // not a multiple of 16 bytes: rows are cut inside a chunk
    stride[0] = extent[0] * 2;
    for (int d = 1; d < RANK - 1; ++d) stride[d] = stride[d - 1] * extent[d];
    Coords from{}, to{};
    const int per_16 = 16 / element;
    for (int d = 0; d < RANK; ++d) {
      const int around = d == 0 ? int(extent[0]) / per_16 : int(extent[d]);
      from.at[d] = int(random(uint32_t(around + 8))) - 4;
      to.at[d] = int(random(uint32_t(around + 4)));
    }
    from.at[0] *= per_16, to.at[0] *= per_16;
    const int offset = int(random((TMA_BYTES / 2) / 128)) * 128;
    const CUtensorMap map_in = tensor_map(in.get(), RANK, size, stride, box, element, swizzle);
    const CUtensorMap map_out = tensor_map(out.get(), RANK, size, stride, box, element, swizzle);
    gpu::copy_to_device(out.get(), zero.data(), out.bytes());
    gpu::LaunchConfig config;
    config.block = dim3(128);
    config.dynamic_smem = TMA_BYTES + 1024;
    gpu::launch(0, config, tma_kernel<RANK>, map_in, map_out, offset, bytes, from, to, dump.get());
    uint64_t h = dump.take();
    std::vector<uint16_t> stored(host.size());
    gpu::copy_to_host(stored.data(), out.get(), out.bytes());
    emit(text(kind, i, h ^ hash(stored) * 31));
  }
}

/// Two blocks; each copies one box to the blocks of a random mask.
__global__ void __launch_bounds__(128)
    multicast_kernel(const __grid_constant__ CUtensorMap in, int bytes, Coords from, int mask0,
                     int mask1, uint32_t* dump) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + TMA_BYTES);
  fill_shared(smem, TMA_BYTES);
  const int rank = int(ptx::cluster_ctarank());
  const int boxes = (mask0 >> rank & 1) + (mask1 >> rank & 1);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(bar, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  if (threadIdx.x == 0) {
    if (boxes) ptx::mbarrier_arrive_expect_tx(bar, boxes * bytes);
    if (rank == 0 && mask0)
      ptx::tma_load_2d_multicast(smem, &in, from.at[0], from.at[1], bar, uint16_t(mask0));
    if (rank == 1 && mask1)
      ptx::tma_load_2d_multicast(smem + TMA_BYTES / 2, &in, from.at[1] / 8 * 8, from.at[0], bar,
                                 uint16_t(mask1));
  }
  if (boxes) ptx::mbarrier_wait(bar, 0);
  dump_shared(smem, TMA_BYTES, dump + rank * (TMA_BYTES / 4));
  ptx::cluster_sync();
}

void multicast_cases(Emit emit, int count) {
  Random random{200};
  constexpr int ROWS = 100, COLS = 152;
  std::vector<uint16_t> host(ROWS * COLS);
  for (size_t i = 0; i < host.size(); ++i) host[i] = uint16_t(3 * i + 1);
  gpu::Buffer in(host.size() * 2, "in");
  gpu::copy_to_device(in.get(), host.data(), in.bytes());
  Results dump(2 * TMA_BYTES / 4);
  for (int i = 0; i < count; ++i) {
    const int swizzle = 16 << random(4), chunks = swizzle / 16, rows = int(random(32)) + 1;
    const int64_t size[] = {COLS, ROWS}, stride[] = {COLS * 2};
    const int box[] = {chunks * 8, rows};
    const CUtensorMap map = tensor_map(in.get(), 2, size, stride, box, 2, swizzle);
    const Coords from = {{int(random(20)) * 8 - 16, int(random(120)) - 10, 0, 0, 0}};
    gpu::LaunchConfig config;
    config.grid = config.cluster = dim3(2);
    config.block = dim3(128);
    config.dynamic_smem = TMA_BYTES + 1024;
    gpu::launch(0, config, multicast_kernel, map, chunks * 16 * rows, from, int(random(4)),
                int(random(4)), dump.get());
    emit(text("multicast", i, dump.take()));
  }
}

// ---- ldmatrix, stmatrix, mma --------------------------------------------------------------------

constexpr int MATRIX_BYTES = 8 * 1024;

__global__ void __launch_bounds__(32) matrix_kernel(int form, uint32_t seed, uint32_t* out) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  fill_shared(smem, MATRIX_BYTES);
  const int lane = threadIdx.x;
  const uint32_t mixed = (seed * 64 + lane + 1) * 2654435761u;
  // stmatrix writes rows of its own per lane: where rows overlap the order is not defined.
  const int rows = MATRIX_BYTES / 16;
  char* row = smem + (form == 4 ? (lane * 16 + (seed % 16)) % rows : (mixed >> 12) % rows) * 16;
  uint32_t r[4] = {0, 0, 0, 0}, half_r[2] = {0, 0};
  if (form == 0) ptx::ldmatrix_x4(r, row);
  if (form == 1) ptx::ldmatrix_x4_trans(r, row);
  if (form == 2) ptx::ldmatrix_x2(half_r, row);
  if (form == 3) ptx::ldmatrix_x2_trans(half_r, row);
  if (form == 4) {
    for (int i = 0; i < 4; ++i) r[i] = data_word(mixed % 4096 + i);
    ptx::stmatrix_x4(row, r);
    __syncwarp();
    dump_shared(smem, MATRIX_BYTES, out + 128);
  }
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = i < 2 ? r[i] ^ half_r[i] : r[i];
}

__global__ void __launch_bounds__(32) mma_kernel(int bf16, uint32_t seed, uint32_t* out) {
  const int lane = threadIdx.x;
  uint32_t a[4], b[2];
  float d[4];
  for (int i = 0; i < 4; ++i) a[i] = data_word(seed * 1024 + lane * 8 + i, bf16);
  for (int i = 0; i < 2; ++i) b[i] = data_word(seed * 1024 + lane * 8 + 4 + i, bf16);
  for (int i = 0; i < 4; ++i) d[i] = float(lane * 4 + i);
  for (int times = 0; times < 2; ++times) {
    if (bf16)
      ptx::mma_m16n8k16_bf16(d, a, b);
    else
      ptx::mma_m16n8k16_f16(d, a, b);
  }
  for (int i = 0; i < 4; ++i) out[lane * 4 + i] = __float_as_uint(d[i]);
}

void matrix_cases(Emit emit, int count) {
  Random random{300};
  Results out(128 + MATRIX_BYTES / 4);
  const char* forms[] = {"ldmatrix_x4", "ldmatrix_x4_trans", "ldmatrix_x2", "ldmatrix_x2_trans",
                         "stmatrix_x4"};
  gpu::LaunchConfig config;
  config.block = dim3(32);
  for (int i = 0; i < count; ++i) {
    const int form = i % 7;
    out.clear();
    if (form < 5) {
      config.dynamic_smem = MATRIX_BYTES;
      gpu::launch(0, config, matrix_kernel, form, random(1 << 20), out.get());
      emit(text(forms[form], i, out.take()));
    } else {
      config.dynamic_smem = 0;
      gpu::launch(0, config, mma_kernel, form - 5, random(1 << 20), out.get());
      emit(text(form == 5 ? "mma_f16" : "mma_bf16", i, out.take()));
    }
  }
}

// ---- cp.async -----------------------------------------------------------------------------------

__global__ void __launch_bounds__(64)
    cp_async_kernel(const char* gmem, int form, uint32_t seed, uint32_t* out) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + MATRIX_BYTES);
  fill_shared(smem, MATRIX_BYTES);
  if (threadIdx.x == 0) ptx::mbarrier_init(bar, 64);
  __syncthreads();
  const int bytes = 4 << (form < 3 ? form : 2);
  for (int i = 0; i < 4; ++i) {
    const uint32_t mixed = (seed * 512 + threadIdx.x * 4 + i + 1) * 2654435761u;
    char* to = smem + ((threadIdx.x * 4 + i) * 32 + (mixed >> 8) % (32 / bytes) * bytes);
    const char* from = gmem + (mixed >> 12) % 512 * 16;
    const bool valid = mixed >> 28;
    if (form == 0) ptx::cp_async_ca<4>(to, from, valid);
    if (form == 1) ptx::cp_async_ca<8>(to, from, valid);
    if (form == 2) ptx::cp_async_ca<16>(to, from, valid);
    if (form == 3) ptx::cp_async_cg_16(to, from, valid);
    if (i == 1) ptx::cp_async_commit_group();
  }
  if (seed % 2) {
    ptx::cp_async_commit_group();
    ptx::cp_async_wait_group<0>();
  } else {
    ptx::cp_async_mbarrier_arrive_noinc(bar);
    ptx::mbarrier_wait(bar, 0);
  }
  dump_shared(smem, MATRIX_BYTES, out);
}

void cp_async_cases(Emit emit, int count) {
  Random random{400};
  std::vector<uint16_t> host(4096);
  for (size_t i = 0; i < host.size(); ++i) host[i] = uint16_t(5 * i + 1);
  gpu::Buffer in(host.size() * 2, "in");
  gpu::copy_to_device(in.get(), host.data(), in.bytes());
  Results out(MATRIX_BYTES / 4);
  gpu::LaunchConfig config;
  config.block = dim3(64);
  config.dynamic_smem = MATRIX_BYTES + 64;
  for (int i = 0; i < count; ++i) {
    gpu::launch(0, config, cp_async_kernel, in.get<const char>(), i % 4, random(1 << 20),
                out.get());
    emit(text("cp_async", i, out.take()));
  }
}

// ---- mbarrier sequences -------------------------------------------------------------------------

/// One warp does a random sequence on two barriers; what test_wait says at each point is the
/// result. Arrivals are by some of the lanes; bytes are those of a copy by TMA that is waited for.
__global__ void __launch_bounds__(32)
    mbarrier_kernel(const __grid_constant__ CUtensorMap map, uint32_t seed, uint32_t* out) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bars = reinterpret_cast<uint64_t*>(smem + 24 * 128);
  const int lane = threadIdx.x;
  uint32_t state = seed;
  auto roll = [&](uint32_t below) {  // the same in all lanes
    state = state * 1664525 + 1013904223;
    return (state >> 10) % below;
  };
  // Kept beside the hardware's state, so that the sequence never waits for what can't come.
  int count[2], pending[2], phase[2] = {0, 0};
  for (int b = 0; b < 2; ++b) count[b] = pending[b] = 1 + int(roll(40));
  if (lane == 0) {
    for (int b = 0; b < 2; ++b) ptx::mbarrier_init(&bars[b], count[b]);
    ptx::fence_mbarrier_init();
  }
  __syncwarp();
  uint32_t said = 0;
  for (int step = 0; step < 24; ++step) {
    const int b = int(roll(2));
    const uint32_t action = roll(8);
    if (action < 5) {
      const int arrivals = 1 + int(roll(32)) % pending[b];
      if (lane < arrivals) ptx::mbarrier_arrive(&bars[b]);
      pending[b] -= arrivals;
    } else if (action == 5) {
      if (lane == 0) {
        ptx::mbarrier_arrive_expect_tx(&bars[b], 128);
        ptx::tma_load_2d(smem + step * 128, &map, 0, int(roll(8)), &bars[b]);
      } else {
        roll(8);
      }
      pending[b] -= 1;
      __syncwarp();
      if (pending[b] == 0) ptx::mbarrier_wait(&bars[b], phase[b] & 1);
    } else {
      ptx::mbarrier_wait(&bars[b], (phase[b] & 1) ^ 1);  // the phase before: returns at once
    }
    __syncwarp();
    if (pending[b] == 0) {
      if (action != 5) ptx::mbarrier_wait(&bars[b], phase[b] & 1);  // its bytes may be on the way
      ++phase[b];
      pending[b] = count[b];
    }
    said = said * 2 + ptx::mbarrier_test_wait(&bars[b], roll(2));
    said = said * 2 + ptx::mbarrier_test_wait(&bars[b ^ 1], roll(2));
    out[step * 32 + lane] = said;
    __syncwarp();
  }
  for (int b = 0; b < 2; ++b) {  // no copy is in flight when the block ends
    if (lane == 0)
      for (int i = 0; i < pending[b]; ++i) ptx::mbarrier_arrive(&bars[b]);
    __syncwarp();
    ptx::mbarrier_wait(&bars[b], phase[b] & 1);
  }
}

void mbarrier_cases(Emit emit, int count) {
  Random random{500};
  std::vector<uint16_t> host(64 * 16, 1);
  gpu::Buffer in(host.size() * 2, "in");
  gpu::copy_to_device(in.get(), host.data(), in.bytes());
  const int64_t size[] = {64, 16}, stride[] = {128};
  const int box[] = {64, 1};
  const CUtensorMap map = tensor_map(in.get(), 2, size, stride, box, 2, 0);
  Results out(24 * 32);
  gpu::LaunchConfig config;
  config.block = dim3(32);
  config.dynamic_smem = 4096;
  for (int i = 0; i < count; ++i) {
    gpu::launch(0, config, mbarrier_kernel, map, random(1 << 24), out.get());
    emit(text("mbarrier", i, out.take()));
  }
}

void all_cases(Emit emit) {
  matrix_cases(emit, 700);
  cp_async_cases(emit, 200);
  mbarrier_cases(emit, 400);
  tma_cases<2>(emit, "tma_2d", 400, false);
  tma_cases<3>(emit, "tma_3d", 100, false);
  tma_cases<4>(emit, "tma_4d", 60, false);
  tma_cases<5>(emit, "tma_5d", 60, false);
  tma_cases<2>(emit, "tma_2d_narrow", 60, true);
  multicast_cases(emit, 100);
  wgmma_cases(emit, 600);
}

}  // namespace agreement

#ifndef LADDER_EMULATED
int main() {
  try {
    agreement::all_cases([](const std::string& line) { puts(line.c_str()); });
  } catch (const std::exception& e) {
    fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}
#endif

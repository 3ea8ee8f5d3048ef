// TMA on tensors of three and four dimensions: which elements a box brings, to whom, and which
// elements of it are stored.
#include "tests/emulator_support.h"

namespace {

constexpr int X = 20, Y = 5, Z = 4, W = 3;  // sizes of the tensor, innermost first
constexpr int BOX_X = 8, BOX_Y = 3, BOX_Z = 2;
constexpr int BOX_BYTES = BOX_X * BOX_Y * BOX_Z * int(sizeof(float));

struct At {
  int x, y, z, w;
};

/// The first CTA of two loads the box at `from`, for itself or for both; each that has it stores it
/// at `to`, the second one a box further in z (3-D) or one further in w (4-D).
template <int RANK>
__global__ void move_box(const __grid_constant__ CUtensorMap in,
                         const __grid_constant__ CUtensorMap out, At from, At to, int multicast) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + 1024);
  const int rank = ptx::cluster_ctarank();
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(bar, 1);
    ptx::fence_mbarrier_init();
  }
  ptx::cluster_sync();
  if (threadIdx.x == 0 && (rank == 0 || multicast)) {
    ptx::mbarrier_arrive_expect_tx(bar, BOX_BYTES);
    if (rank == 0 && RANK == 3) {
      if (multicast)
        ptx::tma_load_3d_multicast(smem, &in, from.x, from.y, from.z, bar, 3);
      else
        ptx::tma_load_3d(smem, &in, from.x, from.y, from.z, bar);
    } else if (rank == 0) {
      if (multicast)
        ptx::tma_load_4d_multicast(smem, &in, from.x, from.y, from.z, from.w, bar, 3);
      else
        ptx::tma_load_4d(smem, &in, from.x, from.y, from.z, from.w, bar);
    }
    ptx::mbarrier_wait(bar, 0);
    if (RANK == 3)
      ptx::tma_store_3d(&out, smem, to.x, to.y, to.z + rank * BOX_Z);
    else
      ptx::tma_store_4d(&out, smem, to.x, to.y, to.z, to.w + rank);
    ptx::tma_store_commit_group();
    ptx::tma_store_wait_group_read<0>();
  }
  ptx::cluster_sync();
}

int64_t place(int x, int y, int z, int w) { return ((int64_t(w) * Z + z) * Y + y) * X + x; }

template <int RANK>
void check_move(At from, At to, int multicast) {
  constexpr int outer = RANK == 3 ? 1 : W;
  std::vector<float> in(size_t(X * Y * Z * outer)), want(in.size(), -1), got(in.size());
  for (size_t i = 0; i < in.size(); ++i) in[i] = float(i + 1);
  gpu::Buffer source(in.size() * 4, "source"), target(in.size() * 4, "target");
  gpu::copy_to_device(source.get(), in.data(), source.bytes());
  gpu::copy_to_device(target.get(), want.data(), target.bytes());
  const auto map = [&](const gpu::Buffer& buffer) {
    using gpu::Swizzle;
    if (RANK == 3)
      return gpu::tensor_map(buffer.get(), {X, Y, Z}, {X, X * Y}, {BOX_X, BOX_Y, BOX_Z},
                             Swizzle::none, Type::f32);
    return gpu::tensor_map(buffer.get(), {X, Y, Z, W}, {X, X * Y, X * Y * Z},
                           {BOX_X, BOX_Y, BOX_Z, 1}, Swizzle::none, Type::f32);
  };
  for (int rank = 0; rank <= multicast; ++rank)
    for (int z = 0; z < BOX_Z; ++z)
      for (int y = 0; y < BOX_Y; ++y)
        for (int x = 0; x < BOX_X; ++x) {
          const At f = {from.x + x, from.y + y, from.z + z, from.w};
          const At t = {to.x + x, to.y + y, to.z + z + (RANK == 3 ? rank * BOX_Z : 0),
                        to.w + (RANK == 4 ? rank : 0)};
          const auto inside = [&](const At& at) {
            return at.x >= 0 && at.x < X && at.y >= 0 && at.y < Y && at.z >= 0 && at.z < Z &&
                   at.w >= 0 && at.w < outer;
          };
          if (inside(t))
            want[place(t.x, t.y, t.z, t.w)] = inside(f) ? in[place(f.x, f.y, f.z, f.w)] : 0;
        }
  CHECK(run(shape(dim3(2), dim3(32), 2048, dim3(2)), move_box<RANK>, map(source), map(target), from,
            to, multicast).all() == "");
  gpu::copy_to_host(got.data(), target.get(), target.bytes());
  for (size_t i = 0; i < got.size(); ++i) REQUIRE(got[i] == want[i]);
}

/// Loads all boxes of 64x128 halves of a column, then all again, the second time backwards or not.
__global__ void load_twice(const __grid_constant__ CUtensorMap map, int boxes, int backwards) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + 64 * 128 * sizeof(half));
  if (threadIdx.x > 0) return;
  ptx::mbarrier_init(bar, 1);
  ptx::fence_mbarrier_init();
  for (int i = 0; i < 2 * boxes; ++i) {
    const int box = i < boxes ? i : backwards ? 2 * boxes - 1 - i : i - boxes;
    ptx::mbarrier_arrive_expect_tx(bar, 64 * 128 * sizeof(half));
    ptx::tma_load_2d(smem, &map, 0, box * 128, bar);
    ptx::mbarrier_wait(bar, i & 1);
  }
}

/// One thread loads the first row of a tensor, another one writes to it, with or without a wait.
__global__ void write_after_load(const __grid_constant__ CUtensorMap map, half* rows, int waits) {
  char* smem = static_cast<char*>(ptx::dynamic_smem());
  auto* bar = reinterpret_cast<uint64_t*>(smem + 128);
  if (threadIdx.x == 0) {
    ptx::mbarrier_init(bar, 1);
    ptx::fence_mbarrier_init();
  }
  if (threadIdx.x == 32) rows[64] = rows[65];  // elsewhere: reads before a first write don't count
  __syncthreads();
  if (threadIdx.x == 0) {
    ptx::mbarrier_arrive_expect_tx(bar, 128);
    ptx::tma_load_2d(smem, &map, 0, 0, bar);
  }
  if (threadIdx.x == 0 || (threadIdx.x == 32 && waits)) ptx::mbarrier_wait(bar, 0);
  if (threadIdx.x == 32) rows[0] = rows[65];
}

}  // namespace

TEST_CASE("who has waited for a box may overwrite where it came from") {
  gpu::Buffer rows(2 * 128, "rows");
  gpu::fill(rows.get(), 0, rows.bytes());
  const auto map = gpu::tensor_map_2d(rows.get(), 2, 64, 64, 1, 64, gpu::Swizzle::none);
  const auto config = shape(dim3(1), dim3(64), 1024);
  CHECK(run(config, write_after_load, map, rows.get<half>(), 1).all() == "");
  CHECK(run(config, write_after_load, map, rows.get<half>(), 0).has({"rows", "no wait or barrier"}));
}

TEST_CASE("boxes that come again soon are found, others are not") {
  const int kept = int(emu::kL2PerSm * size_t(emu::num_sms()) / (64 * 128 * sizeof(half)));
  const int boxes = kept + 10;
  gpu::Buffer column(size_t(boxes) * 64 * 128 * sizeof(half), "column");
  gpu::fill(column.get(), 0, column.bytes());
  const auto map =
      gpu::tensor_map_2d(column.get(), boxes * 128, 64, 64, 128, 64, gpu::Swizzle::none);
  for (int backwards : {0, 1}) {
    const auto config = shape(dim3(1), dim3(32), 64 * 128 * sizeof(half) + 64);
    CHECK(run(config, load_twice, map, boxes, backwards).all() == "");
    const int missed = backwards ? boxes + 10 : 2 * boxes;
    CHECK(emu::counters().tma_miss_bytes == size_t(missed) * 64 * 128 * sizeof(half));
  }
}

TEST_CASE("boxes of tensors of three and four dimensions") {
  for (int multicast : {0, 1}) {
    check_move<3>({4, 1, 1, 0}, {8, 2, 0, 0}, multicast);
    check_move<3>({-4, -2, 3, 0}, {12, 0, 2, 0}, multicast);
    check_move<4>({4, 1, 1, 1}, {8, 2, 1, 0}, multicast);
    check_move<4>({-4, -1, -1, 2}, {0, 0, 0, 1}, multicast);  // zeros before the tensor
    check_move<4>({16, 3, 3, 0}, {16, 4, 3, 2}, multicast);   // and after it; clipped
    check_move<4>({0, 0, 0, 3}, {0, 0, 0, 0}, multicast);     // all of it outside
  }
}

// What 25 adds to 23's kernel: who gets which part of which tile, and how those who share a tile
// exchange their sums through a workspace.
#pragma once
#include "common/step.h"

namespace {

constexpr int PARTS = 4;      // of a tile: warpgroups with 64 rows each
constexpr int GROUPS = 32;    // of 8 columns of a tile: a float4 of sums for each thread
constexpr int MIN_IDLE = 16;  // k tiles an SM would idle: for less, cutting does not pay
constexpr int MIN_SHARE = 8;  // k tiles of a share at least

// Output tile, and which of its k tiles one cluster multiplies.
struct Work {
  int tile, first_k_tile, num_k_tiles;
};

// What a cluster has of cut tiles: a stretch is no longer than a tile, so it touches two at most.
struct Pieces {
  Work work[2];
  int count;
};

// How tiles are dealt to clusters. Tiles 0 to cut_tiles - 1 are laid end to end along K, and every
// cluster takes one stretch. The others follow whole and hide the wait for the sums of the first.
struct Schedule {
  int num_k_tiles, num_clusters, sharers;
  int cut_tiles, share, longer;  // k tiles of a stretch; the first `longer` clusters get one more

  __device__ int begin_of(int cluster) const {
    return min(cluster * share + min(cluster, longer), cut_tiles * num_k_tiles);
  }
  __device__ int cluster_of(int k_tile) const {  // whose stretch this k tile is in
    const int in_longer = longer * (share + 1);
    return k_tile < in_longer ? k_tile / (share + 1) : longer + (k_tile - in_longer) / share;
  }
  __device__ void find_pieces(Pieces& pieces, int cluster) const {
    int n = 0;
    for (int k = begin_of(cluster), end = begin_of(cluster + 1); k < end; ++n) {
      const int tile = k / num_k_tiles, start = tile * num_k_tiles;
      pieces.work[n] = {tile, k - start, min(end, start + num_k_tiles) - k};
      k = start + num_k_tiles;
    }
    pieces.count = n;
  }
  __device__ Work work_of(int cluster, const Pieces& pieces, int i) const {
    if (i < pieces.count) return pieces.work[i];
    return {cut_tiles + cluster + (i - pieces.count) * num_clusters, 0, num_k_tiles};
  }
};

Schedule make_schedule(int tiles, int num_k_tiles, int max_clusters) {
  Schedule schedule{};
  schedule.num_k_tiles = num_k_tiles, schedule.sharers = 1;
  const int waves = ceil_div(tiles, max_clusters);
  if ((waves * max_clusters - tiles) * int64_t(num_k_tiles) >= max_clusters * MIN_IDLE) {
    const int cut = tiles % max_clusters, k_tiles = cut * num_k_tiles;
    int sharers = std::max(std::min(k_tiles / MIN_SHARE, max_clusters), cut);
    if (sharers >= 2 * cut) sharers -= sharers % cut;  // 1 piece each
    schedule.cut_tiles = cut, schedule.sharers = sharers;
    schedule.share = k_tiles / sharers, schedule.longer = k_tiles % sharers;
  }
  schedule.num_clusters = std::min(std::max(tiles, schedule.sharers), max_clusters);
  return schedule;
}

// For PARTS of each piece GROUPS x 128 sums, each of 4 floats; and for PARTS of each tile a flag.
struct Workspace {
  float4* sums;
  int* arrived;

  // Where this thread leaves its part of a piece: every 128th float4, one for each 8 columns.
  // cluster + tile numbers the pieces: from each to the next, one of the two goes up by one.
  __device__ float4* sums_of(int cluster, int tile, int part) const {
    return sums + (int64_t(cluster + tile) * PARTS + part) * GROUPS * 128 + threadIdx.x % 128;
  }
};

// Leaves a warpgroup's sums of a piece for all that share the tile.
__device__ void leave_sums(const float (&acc)[GROUPS * 4], const Workspace& workspace, int cluster,
                           int tile, int part, int wg_id) {
  float4* sums = workspace.sums_of(cluster, tile, part);
#pragma unroll
  for (int i = 0; i < GROUPS * 4; i += 4)
    sums[i / 4 * 128] = make_float4(acc[i], acc[i + 1], acc[i + 2], acc[i + 3]);
  ptx::bar_sync(1 + wg_id, 128);
  if (threadIdx.x % 128 == 0) ptx::red_add_release(&workspace.arrived[tile * PARTS + part], 1);
}

// One warpgroup: of n clusters that share a tile, each adds up all sums of an n-th of its columns,
// in the order of K. They can wait for each other, since all clusters of the grid are resident.
__device__ void add_up(const Workspace& workspace, const Schedule& schedule, int cluster, int tile,
                       int part, int wg_id, half* C, int first_m, int first_n, int M, int N) {
  const int first = schedule.cluster_of(tile * schedule.num_k_tiles);
  const int last = schedule.cluster_of((tile + 1) * schedule.num_k_tiles - 1), n = last - first + 1;
  if (n == 1) return;  // not shared: stored already
  const int tid = threadIdx.x % 128;
  int* flag = &workspace.arrived[tile * PARTS + part];
  if (tid == 0) {
    ptx::wait_until(flag, n);
    ptx::red_add_relaxed(flag, 1);  // has seen it
  }
  ptx::bar_sync(1 + wg_id, 128);
  const int row = first_m + tid / 32 * 16 + tid % 32 / 4;
  const int end = (cluster - first + 1) * GROUPS / n;
  for (int j = (cluster - first) * GROUPS / n; j < end; j += 4) {
    float4 sums[4] = {};
    for (int c = first; c <= last; c += 8) {  // 8 clusters by 4 groups, all in flight at once
      float4 loaded[32] = {};
#pragma unroll
      for (int i = 0; i < 32; ++i)
        if (c + i / 4 <= last && j + i % 4 < end)
          loaded[i] = workspace.sums_of(c + i / 4, tile, part)[(j + i % 4) * 128];
#pragma unroll
      for (int i = 0; i < 32; ++i) {
        float4& sum = sums[i % 4];
        sum.x += loaded[i].x, sum.y += loaded[i].y, sum.z += loaded[i].z, sum.w += loaded[i].w;
      }
    }
    for (int i = 0; i < 4 && j + i < end; ++i) {
      const int col = first_n + (j + i) * 8 + tid % 4 * 2;
      const uint32_t top = ptx::cvt_f16x2(sums[i].x, sums[i].y);
      const uint32_t bottom = ptx::cvt_f16x2(sums[i].z, sums[i].w);
      if (row < M && col < N) *reinterpret_cast<uint32_t*>(&C[int64_t(row) * N + col]) = top;
      if (row + 8 < M && col < N)
        *reinterpret_cast<uint32_t*>(&C[int64_t(row + 8) * N + col]) = bottom;
    }
  }
  if (tid == 0 && cluster == first) {  // all have seen it: new for the next launch
    ptx::wait_until(flag, 2 * n);
    *flag = 0;
  }
}

}  // namespace

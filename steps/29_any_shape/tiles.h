// 29: the tiles there are, what a launch tells the kernel, and which tile a problem gets.
#pragma once
#include <array>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "common/step.h"
#include "gemm.h"

namespace {

constexpr int BLOCK_K = 64;
constexpr int NUM_CONSUMERS = 2;
constexpr int NUM_PACE_COUNTERS = 32;            // the first two are used; a line of L2 of their own
constexpr int NUM_COUNTERS = 16 * 1024;          // at the head of the workspace, 64 KB
constexpr int MAX_SPLIT = 16;
constexpr int MAX_CLUSTER_K = 8;
constexpr int SUMS_PAD = 2;  // float4 between rows of partial sums: no bank conflicts

// A CTA's tile: two consumers one below the other, each SLABS times 64 rows.
template <int SLABS_, int BLOCK_N_, int NUM_STAGES_, int C_BUFFERS_, int BLOCKS_PER_SM_>
struct Tile {
  static constexpr int SLABS = SLABS_, BLOCK_N = BLOCK_N_, NUM_STAGES = NUM_STAGES_;
  static constexpr int WG_M = 64 * SLABS, BLOCK_M = NUM_CONSUMERS * WG_M;
  static constexpr int C_BUFFERS = C_BUFFERS_;  // boxes of staging for a consumer
  static constexpr bool C_IN_A = SLABS == 2;    // no room: its own rows of A in the last stage
  static constexpr bool SETMAXNREG = SLABS == 2;
  static constexpr int NUM_THREADS = NUM_CONSUMERS * 128 + (SETMAXNREG ? 128 : 32);
  static constexpr int BLOCKS_PER_SM = BLOCKS_PER_SM_;
};
using Tile128x256 = Tile<1, 256, 4, 2, 1>;  // as step 23
using Tile256x192 = Tile<2, 192, 4, 2, 1>;  // as step 28
using Tile128x128 = Tile<1, 128, 3, 1, 2>;  // small problems: two CTAs share an SM

struct TileFacts {
  const char* name;
  int block_m, block_n, blocks_per_sm;
};
constexpr TileFacts TILES[] = {{"128x256", 128, 256, 1}, {"256x192", 256, 192, 1},
                               {"128x128", 128, 128, 2}};
constexpr int NUM_TILES = 3;

struct GemmArgs {
  CUtensorMap tmap_a, tmap_b, tmap_c;
  void* C;
  int64_t ldc, stride_c;
  int M, N, num_k_tiles;
  float alpha, beta;
  Type type_c;
  bool boxes;  // C leaves by TMA
  bool fours;  // four elements of C may be stored at once
  bool pace;
  bool batched_a, batched_b;  // else one matrix for all
  int cluster_m, group_m;
  int tiles_m, tiles_n, tiles;  // of a cluster; all matrices of the batch
  int cluster_k;                // CTAs of a cluster along K, which share a tile (cluster_m is 1)
  int whole, split;             // tiles from `whole` on are split along K over clusters
  int works, num_clusters;      // pieces of work, and who does them
  float4* partials;
  int* counters;
};

// TILE/cMxK/sS/gG/pP: CTAs of a cluster along M (they share B) and along K (they share a tile), pieces
// that the tiles of the last wave are cut into along K, clusters of a column of tiles, pace.
struct Config {
  int tile = 0, cluster_m = 1, cluster_k = 1, split = 1, group_m = 8, pace = 0;
};

std::string text_of(const Config& c) {
  char text[64];
  std::snprintf(text, sizeof text, "%s/c%dx%d/s%d/g%d/p%d", TILES[c.tile].name, c.cluster_m,
                c.cluster_k, c.split, c.group_m, c.pace);
  return text;
}

// False where the text is no configuration.
bool read_config(const std::string& text, Config& c) {
  char tile[16], end;
  if (std::sscanf(text.c_str(), "%15[0-9x]/c%dx%d/s%d/g%d/p%d%c", tile, &c.cluster_m, &c.cluster_k,
                  &c.split, &c.group_m, &c.pace, &end) != 6)
    return false;
  for (c.tile = 0; c.tile < NUM_TILES && TILES[c.tile].name != std::string(tile);) ++c.tile;
  const auto within = [](int n, int most) { return n >= 1 && n <= most; };
  const bool cluster = c.cluster_k == 1 ? within(c.cluster_m, 2)
                                        : c.cluster_m == 1 && within(c.cluster_k, MAX_CLUSTER_K);
  return c.tile < NUM_TILES && cluster && within(c.split, c.cluster_k == 1 ? MAX_SPLIT : 1) &&
         within(c.group_m, 1024) && (c.pace == 0 || (c.pace == 1 && c.cluster_k == 1));
}

// How a configuration cuts a problem up.
struct Cut {
  int64_t tiles_m, tiles_n, tiles, whole, works;
  int slots, split, cluster_k;
};
Cut cut_of(const GemmParams& p, const Config& c, int sms) {
  Cut cut{};
  const TileFacts& tile = TILES[c.tile];
  cut.tiles_m = ceil_div(p.M, tile.block_m * c.cluster_m);
  cut.tiles_n = ceil_div(p.N, tile.block_n);
  cut.tiles = cut.tiles_m * cut.tiles_n * p.batch;
  const int64_t k_tiles = ceil_div(p.K, BLOCK_K);
  cut.cluster_k = int(std::min<int64_t>(c.cluster_k, k_tiles));
  cut.slots = std::max(1, sms * tile.blocks_per_sm / (c.cluster_m * cut.cluster_k));
  cut.split = int(std::min<int64_t>(c.split, k_tiles));
  cut.whole = cut.split == 1 ? cut.tiles : cut.tiles / cut.slots * cut.slots;
  // Flags are few; more tiles than that do not need a split.
  if ((cut.tiles - cut.whole) * c.cluster_m * NUM_CONSUMERS > NUM_COUNTERS - NUM_PACE_COUNTERS)
    cut.whole = cut.tiles;
  if (cut.whole == cut.tiles) cut.split = 1;
  cut.works = cut.whole + (cut.tiles - cut.whole) * cut.split;
  return cut;
}

// Estimated time in cycles; only compared with itself. What it knows: waves, cycles of the Tensor
// Cores, bytes out of L2, the start of a tile, and what adding up costs.
double estimate(const GemmParams& p, const Config& c, int sms) {
  const Cut cut = cut_of(p, c, sms);
  const TileFacts& tile = TILES[c.tile];
  const int ctas = c.cluster_m * cut.cluster_k;
  const double k_tiles = double(ceil_div(p.K, BLOCK_K)) / cut.cluster_k;
  const double mma = tile.block_m * tile.block_n * BLOCK_K / 2048.0;
  const double bytes = (tile.block_m + tile.block_n / double(c.cluster_m)) * BLOCK_K * 2.0;
  const double share = std::min(1.0, double(cut.works) * ctas / sms);  // SMs that work
  const double shared = tile.blocks_per_sm > 1 && cut.works * ctas > sms ? 2.0 : 1.0;
  const double step = std::max(mma, bytes * share / 42.0) * shared;
  const double start = 2000.0, end = tile.block_m * tile.block_n / 16.0 / shared;
  const double valid = std::min(1.0, double(p.M) / (tile.block_m * c.cluster_m));
  const double sums = valid * tile.block_m * tile.block_n * 4.0;
  const double waves = double(cut.whole / cut.slots) +
                       (cut.split == 1 ? double(cut.whole % cut.slots > 0) : 0.0);
  double time = start + waves * (k_tiles * step + end);
  if (cut.cluster_k > 1) time += 1200.0 + 2 * sums / 40.0;
  if (cut.split > 1) {
    const double pieces = double((cut.tiles - cut.whole) * cut.split);
    const double rounds = double(ceil_div(int64_t(pieces), int64_t(cut.slots)));
    time += rounds * (k_tiles / cut.split * step) + end / cut.split + 3000.0 + 2 * sums / 30.0;
  }
  return time;
}

std::vector<Config> candidates_of(const GemmParams& p, int sms) {
  std::vector<Config> all;
  const int64_t k_tiles = ceil_div(p.K, BLOCK_K);
  for (int tile = 0; tile < NUM_TILES; ++tile)
    for (int cluster_m = 1; cluster_m <= 2; ++cluster_m) {
      if (cluster_m == 2 && p.M <= TILES[tile].block_m) continue;
      Config c{tile, cluster_m, 1, 1, 2048 / (TILES[tile].block_m * cluster_m), 0};
      for (int split : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16}) {
        if (split > 1 && k_tiles / split < 2) continue;
        c.split = split;
        const Cut cut = cut_of(p, c, sms);
        if (cut.split != split) continue;  // nothing left to split
        // L2 holds about 50 MB: past that, clusters that drift apart read from memory again.
        c.pace = split == 1 && cut.tiles >= 16 * cut.slots && p.K >= 8192;
        all.push_back(c);
      }
      c.split = 1, c.pace = 0;
      if (cluster_m > 1) continue;
      for (int cluster_k : {2, 4, 6, 8})
        if (k_tiles >= cluster_k) c.cluster_k = cluster_k, all.push_back(c);
    }
  return all;
}

Config model_choice(const GemmParams& p, int sms) {
  Config best;
  double least = -1;
  for (const Config& c : candidates_of(p, sms))
    if (const double time = estimate(p, c, sms); least < 0 || time < least) best = c, least = time;
  return best;
}

}  // namespace

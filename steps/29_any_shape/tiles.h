// 29: the tiles there are, what a launch tells the kernel, and which tile a problem gets.
#pragma once
#include <array>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <vector>

#include "common/step.h"
#include "gemm.h"

namespace {

constexpr int BLOCK_K = 64;
constexpr int MAX_CONSUMERS = 2;
constexpr int NUM_PACE_COUNTERS = 32;    // the first two are used; a line of L2 of their own
constexpr int NUM_COUNTERS = 16 * 1024;  // at the head of the workspace, 64 KB
constexpr int MAX_SPLIT = 128;
constexpr int MAX_CLUSTER_K = 8;
constexpr int LOW = 64;  // rows at most of a low tile

// A CTA's tile. Consumers one below the other, 64 rows each; or, TRANSPOSED, two side by side, 128
// columns each, of which wgmma computes the transpose: BLOCK_M is then its n, a multiple of 8.
// MAIN_M of its rows lie side by side; where there are more, these EXTRA ones come from the end of
// the matrix: first all tiles' main rows, then all tiles' extra rows.
template <int BLOCK_M_, int BLOCK_N_, bool TRANSPOSED_, int NUM_STAGES_, int MAIN_M_ = BLOCK_M_>
struct Tile {
  static constexpr int BLOCK_M = BLOCK_M_, BLOCK_N = BLOCK_N_, NUM_STAGES = NUM_STAGES_;
  static constexpr int MAIN_M = MAIN_M_, EXTRA = BLOCK_M - MAIN_M;
  static constexpr int ROWS_A = EXTRA > 0 ? MAIN_M + 64 : BLOCK_M;  // that there is room for
  static constexpr bool TRANSPOSED = TRANSPOSED_;
  static constexpr int NUM_CONSUMERS = TRANSPOSED ? 2 : BLOCK_M / 64;
  static constexpr int SLABS = TRANSPOSED ? 2 : 1;  // times 64, of a consumer
  static constexpr int WG_M = TRANSPOSED ? BLOCK_M : 64, WG_N = TRANSPOSED ? 128 : BLOCK_N;
  static constexpr int REGS = TRANSPOSED ? BLOCK_M / 2 : BLOCK_N / 2;  // of a slab
  // Rows that are staged at once.
  static constexpr int PART_M =
      TRANSPOSED == 0 ? 64 : EXTRA > 0 ? 32 : BLOCK_M % 40 == 0 ? 40 : 16;
  // Whether the ring, once it is empty, holds the sums of a tile: then a cluster can share it.
  static constexpr bool SHARED =
      BLOCK_M * BLOCK_N * 4 <= NUM_STAGES * (BLOCK_M + BLOCK_N) * BLOCK_K * 2;
  // And a producer: a warp, or a warpgroup that gives registers away.
  static constexpr bool GIVES = SLABS * REGS > 128;
  static constexpr int PRODUCER = GIVES ? 128 : 32;
  static constexpr int NUM_THREADS = NUM_CONSUMERS * 128 + PRODUCER;
  // Whether a launch may take fewer rows.
  static constexpr bool TALL = BLOCK_M == 200 && EXTRA == 0;
  template <class F>
  static __device__ void with_height(int rows, F f) {
    if (rows == 200) f(std::integral_constant<int, 200>());
    if (rows == 176) f(std::integral_constant<int, 176>());
    if (rows == 168) f(std::integral_constant<int, 168>());
    if (rows == 152) f(std::integral_constant<int, 152>());
    if (rows == 144) f(std::integral_constant<int, 144>());
    if (rows == LOW) f(std::integral_constant<int, LOW>());
  }
};
using Tile128x256 = Tile<128, 256, false, 4>;  // as step 23
using Tile128x128 = Tile<128, 128, false, 6>;  // few tiles, long K
using Tile200x256 = Tile<200, 256, true, 3>;   // as 28_wide_tile.transposed
using Tile192p8x256 = Tile<200, 256, true, 3, 192>;  // the same where boxes of A are 64 rows high
using Tile64x256 = Tile<64, 256, true, 5>;     // few rows: next to nothing of A in shared memory
using Tile64x128 = Tile<64, 128, false, 8>;    // small problems: one consumer

struct TileFacts {
  const char* name;
  int block_m, block_n;
  bool transposed, shared;
  // Microseconds: of a k tile, more of it when all SMs work (L2), of the end of a tile, more of it
  // element by element. Fitted to times of 29 on an H200 with each configuration forced: 30 shapes
  // and the suite.
  double step_us, busy_us, end_us, elements_us;
};
constexpr TileFacts TILES[] = {{"128x256", 128, 256, false, true, 0.672, 0.005, 1.55, 5.0},
                               {"128x128", 128, 128, false, true, 0.34, 0.1, 1.15, 10.0},
                               {"200x256", 200, 256, true, false, 1.02, 0.0, 2.6, 40.0},
                               {"64x256", 64, 256, true, true, 0.44, 0.4, 0.6, 6.0},
                               {"64x128", 64, 128, false, true, 0.23, 0.09, 0.7, 6.0},
                               {"176x256", 176, 256, true, false, 0.905, 0.006, 2.9, 40.0},
                               {"152x256", 152, 256, true, false, 0.75, 0.06, 2.2, 40.0},
                               {"144x256", 144, 256, true, false, 0.705, 0.075, 2.1, 40.0}};
constexpr int NUM_TILES = 8;
constexpr double LOW_STEP_US = 0.63;  // of a low tile: all of B for 64 rows
static_assert(Tile128x256::SHARED && Tile128x128::SHARED && Tile64x256::SHARED &&
              Tile64x128::SHARED, "as TILES says");

struct GemmArgs {
  CUtensorMap tmap_a, tmap_a_extra, tmap_b, tmap_c;
  void* C;
  int64_t ldc, stride_c;
  int M, N, num_k_tiles;
  float alpha, beta;
  Type type_ab, type_c;
  bool boxes;        // C leaves by TMA,
  bool reads_boxes;  // and, with beta, the old one comes by TMA
  bool plain;        // C has 16 bits and is not read
  bool pairs;        // two elements of it may be stored at once
  bool pace;
  bool batched, batched_a, batched_b;  // else one matrix, or one A or B, for all
  int cluster_m, group_m;
  int height, box_m;            // rows of a tile, and of what leaves at once
  int tiles_m, tiles_n, tiles;  // of a cluster; all matrices of the batch
  int high, high_m, lead;       // tiles from `high` and from row high_m on are low
  int higher, higher_m;         // those of rows of tiles from `higher` on are 8 rows lower
  int cluster_k;                // CTAs of a cluster along K, which share a tile (cluster_m is 1)
  int whole, split;             // tiles from `whole` on are split along K over clusters
  int share, longer;            // k tiles of a piece; the first `longer` pieces have one more
  unsigned one_piece;           // 2^32 / pieces, rounded up
  int works, num_clusters;      // pieces of work, and who does them
  float4* partials;
  int* counters;
};

// Tiles of which wgmma's n is the height, for large problems, and those lower than 200x256: a
// height is a number in its kernel, for a K-major A.
bool tall(const TileFacts& t) { return t.transposed && t.block_m > 64; }
bool lower(const TileFacts& t) { return tall(t) && t.block_m < 200; }

// TILE/cMxK/sS/gG/pP: CTAs of a cluster along M (they share B) and along K (they share a tile),
// pieces that the tiles of the last wave are cut into along K, clusters of a column of tiles, pace.
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
  if (c.tile < NUM_TILES && TILES[c.tile].transposed && !lower(TILES[c.tile]) && c.cluster_m > 1)
    return false;
  if (c.tile < NUM_TILES && !TILES[c.tile].shared && c.cluster_k > 1) return false;
  const bool cluster = c.cluster_k == 1 ? within(c.cluster_m, 2)
                                        : c.cluster_m == 1 && within(c.cluster_k, MAX_CLUSTER_K);
  return c.tile < NUM_TILES && cluster && within(c.split, c.cluster_k == 1 ? MAX_SPLIT : 1) &&
         within(c.group_m, 1024) && (c.pace == 0 || (c.pace == 1 && c.cluster_k == 1));
}

// How a configuration cuts a problem up.
struct Cut {
  int64_t tiles_m, tiles_n, tiles, high, higher, whole, works;
  int64_t lead;  // of the low tiles, how many come before all others
  int slots, split, cluster_k;
};
Cut cut_of(const GemmParams& p, const Config& c, int sms) {
  Cut cut{};
  const TileFacts& tile = TILES[c.tile];
  const int64_t k_tiles = ceil_div(p.K, BLOCK_K);
  cut.tiles_m = ceil_div(p.M, tile.block_m * c.cluster_m);
  cut.tiles_n = ceil_div(p.N, tile.block_n);
  cut.tiles = cut.tiles_m * cut.tiles_n * p.batch;
  cut.high = cut.tiles;
  const int64_t rows = cut.tiles_m * c.cluster_m;
  const int64_t last_rows = p.M - (rows - c.cluster_m) * tile.block_m;
  cut.higher = rows;
  const bool k_major_a = p.layout_a == Layout::row_major;
  const int64_t higher = ceil_div(p.M - rows * (tile.block_m - 8), 8);  // if others are 8 rows less
  if (k_major_a && lower(tile) && tile.block_m > 144 && higher > 0 && higher < rows) {
    cut.higher = higher;
  } else if (k_major_a && tall(tile) && p.batch == 1 && cut.tiles_m > 1 && last_rows <= LOW) {
    cut.high = --cut.tiles_m * cut.tiles_n;
    cut.tiles = cut.high + ceil_div(cut.tiles_n, c.cluster_m);
  }
  cut.cluster_k = int(std::min<int64_t>(c.cluster_k, k_tiles));
  // Clusters of more than two do not fill an H200: 120 of its 132 SMs take part.
  const int usable = cut.cluster_k > 2 ? sms * 10 / 11 : sms;
  cut.slots = std::max(1, usable / (c.cluster_m * cut.cluster_k));
  cut.split = int(std::min<int64_t>(c.split, k_tiles));
  cut.whole = cut.split == 1 ? cut.tiles : cut.tiles / cut.slots * cut.slots;
  // Flags are few; more tiles than that do not need a split.
  if ((cut.tiles - cut.whole) * c.cluster_m * MAX_CONSUMERS * ceil_div(cut.split, 16) >
      NUM_COUNTERS - NUM_PACE_COUNTERS)
    cut.whole = cut.tiles;
  if (cut.whole == cut.tiles) cut.split = 1;
  cut.works = cut.whole + (cut.tiles - cut.whole) * cut.split;
  // Low tiles: those that would begin another round come last, the others first.
  if (cut.split == 1 && cut.tiles > cut.slots)
    cut.lead = std::max<int64_t>(cut.tiles - cut.high - cut.tiles % cut.slots, 0);
  return cut;
}

// Whether C may leave by TMA: rows that are multiples of 16 bytes (TMA clips what it stores in
// chunks of 16 bytes).
bool stores_boxes(const GemmParams& p) {
  const int unit = p.type_c == Type::f32 ? 4 : 8;
  return reinterpret_cast<uintptr_t>(p.C) % 16 == 0 && p.ldc % unit == 0 &&
         (p.batch == 1 || p.stride_c % unit == 0) && p.N % unit == 0;
}

// One wave of small tiles, long, on most SMs, without clusters: what neighbours have in common L2
// serves once if they share a TPC. They do when the launch finds all SMs free, so it starts late.
bool starts_late(const GemmParams& p, const Config& c, const Cut& cut, int sms) {
  const TileFacts& tile = TILES[c.tile];
  const bool one_wave = cut.split > 1 ? cut.whole == 0 : cut.tiles <= cut.slots;
  return c.cluster_m * cut.cluster_k == 1 && tile.block_m * tile.block_n <= 128 * 128 && one_wave &&
         cut.works * 4 >= sms * 3 && ceil_div(p.K, BLOCK_K) / cut.split >= 32;
}

// Estimated time in microseconds on an H200: the launch, waves of tiles or what memory takes, and
// what adding up costs.
double estimate(const GemmParams& p, const Config& c, int sms) {
  const Cut cut = cut_of(p, c, sms);
  const TileFacts& tile = TILES[c.tile];
  const double k_tiles = double(ceil_div(p.K, BLOCK_K));
  const double busy = std::min(1.0, double(cut.works) * c.cluster_m * cut.cluster_k / sms);
  // Rows that start off 128 bytes are read as two lines: L2 then sets the pace.
  const auto lines = [](int64_t ld) { return ld * 2 % 128 ? 2.0 : 1.0; };
  const double loads = tile.block_m * lines(p.lda) + tile.block_n * lines(p.ldb) / c.cluster_m;
  const bool late = starts_late(p, c, cut, sms);
  const double shared = late && tile.block_m == 128 ? 0.0 : c.cluster_m == 2 ? 0.19 : 1.0;
  const double step =
      std::max(tile.step_us + tile.busy_us * busy * shared,
               busy * (tall(tile) ? 0.00106 : 0.00125) * loads);
  // FP32 and beta: twice the bytes of C, or C as well, for every 32,768 elements.
  const bool f32 = p.type_c == Type::f32, reads = p.beta != 0.0f;
  const double more = (!f32 ? 0.0 : lower(tile) ? 2.0 : 1.5) + (!reads ? 0.0 : f32 ? 2.7 : 1.1);
  const double end = tile.end_us + (stores_boxes(p) ? more * tile.block_m * tile.block_n / 32768.0
                                                    : tile.elements_us);
  // The cluster with the most to do. Low tiles lie at both ends of the order.
  const double rows = double(ceil_div(p.M, tile.block_m * c.cluster_m)) * c.cluster_m;
  const double less = std::max(0.0, rows - double(cut.higher)) * 8 / (rows * tile.block_m);
  const double high_us = k_tiles / cut.cluster_k * step * (1 - less) + end;
  const double low_us = k_tiles * LOW_STEP_US + end * LOW / tile.block_m;
  double compute = 0;
  for (const int64_t border : {int64_t{0}, cut.lead, cut.high + cut.lead, cut.whole}) {
    const int64_t first = border % cut.slots;
    const auto below = [&](int64_t n) { return (n - first + cut.slots - 1) / cut.slots; };
    const int64_t low =
        below(cut.lead) + below(cut.whole) - below(std::min(cut.high + cut.lead, cut.whole));
    compute = std::max(compute, double(below(cut.whole) - low) * high_us + double(low) * low_us);
  }
  if (cut.split > 1) compute += k_tiles / cut.split * step + tile.end_us;
  const double bytes =
      2.0 * double(p.batch) *
      (double(p.M) * p.K + double(p.K) * p.N + double(p.M) * p.N * (f32 ? 2 : 1) * (reads ? 2 : 1));
  const double memory = bytes / (4.5e6 * (0.64 + 0.36 * busy)) + end;
  double time = (late ? 1.6 : 1.0) + 0.05 * (c.cluster_m - 1) + std::max(compute, memory);
  // Of 64 KB of sums, what is there.
  const double sums = std::min(1.0, double(p.M) / (tile.block_m * c.cluster_m)) * tile.block_m *
                      tile.block_n / 16384.0;
  if (cut.cluster_k > 1) time += 1.0 + 2.9 * sums;
  if (cut.split > 1) time += 3.3 + 2.6 * sums;
  return time;
}

std::vector<Config> candidates_of(const GemmParams& p, int sms) {
  std::vector<Config> all;
  const int64_t k_tiles = ceil_div(p.K, BLOCK_K);
  for (int tile = 0; tile < NUM_TILES; ++tile)
    for (int cluster_m = 1; cluster_m <= 2; ++cluster_m) {
      const TileFacts& facts = TILES[tile];
      const int block_m = facts.block_m;
      if (block_m > 64 && p.M <= 64) continue;
      if (block_m == 64 && facts.transposed && p.M > 64) continue;
      // A B of more than 128 MB, or for next to no rows: fewer and wider tiles stream it faster,
      // but where small ones start late.
      const bool streams = p.M <= 32 || (p.M <= 64 && p.K * p.N >= int64_t{1} << 26);
      const bool narrow = block_m == 64 && !facts.transposed && streams && stores_boxes(p);
      if (cluster_m == 2 && (p.M <= block_m || (facts.transposed && !lower(facts)))) continue;
      if (facts.transposed && !stores_boxes(p)) continue;
      if (lower(facts) && p.layout_a != Layout::row_major) continue;
      const int rows = block_m * cluster_m;
      const int group_rows = facts.transposed && !lower(facts) ? 2400 : 2048;
      Config c{tile, cluster_m, 1, 1, (group_rows + rows / 2) / rows, 0};
      const Cut whole = cut_of(p, c, sms);
      if (narrow && starts_late(p, c, whole, sms)) all.push_back(c);
      if (narrow) continue;
      if (lower(facts) && whole.tiles > 3 * whole.slots) continue;  // more waves: not measured
      // The higher ones of two heights in one round of tiles: nobody has two of them.
      const int64_t higher = whole.higher < whole.tiles_m * cluster_m ? whole.higher * block_m : 0;
      if (higher >= 1024 && higher <= 2800) c.group_m = int(ceil_div(higher, rows));
      // Past what L2 keeps (an H200 has 63 MB), clusters that drift apart read from memory again.
      c.pace = whole.tiles >= 4 * whole.slots && p.K >= 4096;
      all.push_back(c);
      c.pace = 0;
      for (int split : {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128}) {
        c.split = split;
        const Cut cut = cut_of(p, c, sms);
        if (lower(facts) || k_tiles / split < 2 || cut.split != split ||
            cut.works - cut.whole > cut.slots ||
            cut.whole > (facts.transposed ? 16 : 3) * cut.slots)
          continue;
        all.push_back(c);  // all parts of a tile run at the same time
      }
      c.split = 1;
      for (int cluster_k : {2, 3, 4, 6, 8}) {
        if (!facts.shared || cluster_m > 1 || k_tiles < cluster_k) continue;
        c.cluster_k = cluster_k;
        if (const Cut cut = cut_of(p, c, sms); cut.tiles <= cut.slots) all.push_back(c);
      }
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

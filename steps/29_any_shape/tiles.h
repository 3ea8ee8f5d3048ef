// 29: the tiles there are, what a launch tells the kernel, and which tile a problem gets.
#pragma once
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>
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
constexpr int LEAST_HEIGHT = 144;  // of a tile whose height is a number of the launch

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
  template <int HEIGHT = BLOCK_M, class F>
  static __device__ void with_height(int rows, F f) {
    if (rows == HEIGHT) f(std::integral_constant<int, HEIGHT>());
    if constexpr (HEIGHT > LEAST_HEIGHT) with_height<HEIGHT - 8>(rows, f);
  }
};
using Tile128x256 = Tile<128, 256, false, 4>;  // as step 23
using Tile128x128 = Tile<128, 128, false, 6>;  // few tiles, long K
using Tile200x256 = Tile<200, 256, true, 3>;   // as 28_wide_tile.transposed
using Tile192p8x256 = Tile<200, 256, true, 3, 192>;  // the same where boxes of A are 64 rows high
using Tile64x256 = Tile<64, 256, true, 5>;     // few rows: next to nothing of A in shared memory
using Tile64x128 = Tile<64, 128, false, 8>;    // small problems: one consumer

struct TileFacts {
  int block_m, block_n;
  bool transposed, shared;
  // Microseconds: of a k tile, more of it when all SMs work (L2), of the end of a tile, more of it
  // element by element. Fitted to times of 29 on an H200 with each configuration forced: 30 shapes
  // and the suite.
  double step_us, busy_us, end_us, elements_us;
};
constexpr TileFacts TILES[] = {{128, 256, false, true, 0.672, 0.005, 1.55, 5.0},
                               {128, 128, false, true, 0.322, 0.034, 1.26, 10.0},
                               {200, 256, true, false, 1.02, 0.0, 2.9, 40.0},
                               {64, 256, true, true, 0.318, 0.56, 1.0, 6.0},
                               {64, 128, false, true, 0.188, 0.107, 0.52, 6.0}};
constexpr int NUM_TILES = 5;
constexpr double LOWER_US = 0.0008;  // as busy_us, of 200x256, for each row that it has less
static_assert(Tile128x256::SHARED && Tile128x128::SHARED && Tile64x256::SHARED &&
              Tile64x128::SHARED, "as TILES says");

// What is divided by often, and where loads wait for it: one multiplication instead of the forty
// instructions of a division, for n below 2^16 and divisors up to 2^15.
struct Divisor {
  int by = 1;
  unsigned inverse = 0;  // 2^31 / by, rounded up; 0: too large
  Divisor() = default;
  explicit Divisor(int64_t n) : by(int(std::max<int64_t>(n, 1))) {
    if (by <= 1 << 15) inverse = unsigned(ceil_div(int64_t{1} << 31, int64_t{by}));
  }
};
__device__ int operator/(int n, const Divisor& d) {
  return n < 1 << 16 && d.inverse ? int(uint64_t(n) * d.inverse >> 31) : n / d.by;
}

struct GemmArgs {
  CUtensorMap tmap_a, tmap_b, tmap_c;
  CUtensorMap tmap_a_extra, tmap_c_few;  // A: of the EXTRA rows, or of a tile 8 rows lower; C: of 8
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
  int height;                   // rows of a tile
  int tiles_m, tiles_n, tiles;  // of a cluster; all matrices of the batch
  int higher, higher_m;         // from row `higher` of tiles on they are 8 rows lower
  int cluster_k;                // CTAs of a cluster along K, which share a tile (cluster_m is 1)
  int whole, split;             // tiles from `whole` on are split along K over clusters
  int pieces;                   // of a tile that is shared or split
  int share, longer;            // k tiles of a piece; the first `longer` pieces have one more
  unsigned one_piece;           // 2^32 / pieces, rounded up
  int works, num_clusters;      // pieces of work, and who does them
  Divisor ctas, tail, group, rows, last_rows;  // of a cluster; tiles in pieces; tiles of a group;
                                               // rows of tiles of a group, of the last one
  float4* partials;
  int* counters;
};

// 200x256, for large problems: wgmma's n is its height. For a K-major A that is a number of the
// launch, any multiple of 8 from LEAST_HEIGHT on.
bool tall(const TileFacts& t) { return t.transposed && t.block_m > 64; }

// TILE/cMxK/sS/gG/pP: CTAs of a cluster along M (they share B) and along K (they share a tile),
// pieces that the tiles of the last wave are cut into along K, clusters of a column of tiles, pace.
// TILE may be 144x256 to 200x256: M is cut into as many rows of tiles as that height asks for, and
// then they are as high as that makes them.
struct Config {
  int tile = 0, cluster_m = 1, cluster_k = 1, split = 1, group_m = 8, pace = 0, height = 200;
};

std::string text_of(const Config& c) {
  char text[64];
  const TileFacts& tile = TILES[c.tile];
  std::snprintf(text, sizeof text, "%dx%d/c%dx%d/s%d/g%d/p%d", tall(tile) ? c.height : tile.block_m,
                tile.block_n, c.cluster_m, c.cluster_k, c.split, c.group_m, c.pace);
  return text;
}

// False where the text is no configuration.
bool read_config(const std::string& text, Config& c) {
  int columns;
  char end;
  if (std::sscanf(text.c_str(), "%dx%d/c%dx%d/s%d/g%d/p%d%c", &c.height, &columns, &c.cluster_m,
                  &c.cluster_k, &c.split, &c.group_m, &c.pace, &end) != 7)
    return false;
  const auto is = [&](const TileFacts& t) {
    return columns == t.block_n && (c.height == t.block_m || (tall(t) && c.height < t.block_m &&
                                                              c.height >= LEAST_HEIGHT));
  };
  for (c.tile = 0; c.tile < NUM_TILES && !is(TILES[c.tile]);) ++c.tile;
  if (c.tile == NUM_TILES) return false;
  const auto within = [](int n, int most) { return n >= 1 && n <= most; };
  const TileFacts& tile = TILES[c.tile];
  if (tile.transposed && !tall(tile) && c.cluster_m > 1) return false;
  if (!tile.shared && c.cluster_k > 1) return false;
  const bool cluster = c.cluster_k == 1 ? within(c.cluster_m, 2)
                                        : c.cluster_m == 1 && within(c.cluster_k, MAX_CLUSTER_K);
  return cluster && within(c.split, c.cluster_k == 1 ? MAX_SPLIT : 1) && within(c.group_m, 1024) &&
         (c.pace == 0 || (c.pace == 1 && c.cluster_k == 1));
}

// How a configuration cuts a problem up.
struct Cut {
  int64_t tiles_m, tiles_n, tiles, whole, works;
  int64_t higher;  // rows of tiles of `height`: those after them are 8 rows lower
  int height, slots, split, cluster_k;
};
Cut cut_of(const GemmParams& p, const Config& c, int sms) {
  Cut cut{};
  const TileFacts& tile = TILES[c.tile];
  const int64_t k_tiles = ceil_div(p.K, BLOCK_K);
  cut.height = tile.block_m;
  const bool any_height = tall(tile) && p.layout_a == Layout::row_major;
  cut.tiles_m = ceil_div(p.M, (any_height ? c.height : tile.block_m) * c.cluster_m);
  const int64_t rows = cut.tiles_m * c.cluster_m;
  cut.higher = rows;
  if (any_height) {
    cut.height = int(std::max<int64_t>(LEAST_HEIGHT, ceil_div(p.M, rows * 8) * 8));
    if (cut.height > LEAST_HEIGHT) cut.higher = ceil_div(p.M - rows * (cut.height - 8), 8);
  }
  cut.tiles_n = ceil_div(p.N, tile.block_n);
  cut.tiles = cut.tiles_m * cut.tiles_n * p.batch;
  cut.cluster_k = int(std::min<int64_t>(c.cluster_k, k_tiles));
  // Clusters of 1, 2, .. CTAs that an H200 holds at once: they lie within a GPC.
  constexpr int AT_ONCE[] = {132, 66, 39, 30, 22, 17, 15, 15};
  cut.slots = std::max(1, AT_ONCE[c.cluster_m * cut.cluster_k - 1] * sms / 132);
  cut.split = int(std::min<int64_t>(c.split, k_tiles));
  cut.whole = cut.split == 1 ? cut.tiles : cut.tiles / cut.slots * cut.slots;
  // Flags are few; more tiles than that do not need a split.
  if ((cut.tiles - cut.whole) * c.cluster_m * MAX_CONSUMERS * ceil_div(cut.split, 16) >
      NUM_COUNTERS - NUM_PACE_COUNTERS)
    cut.whole = cut.tiles;
  if (cut.whole == cut.tiles) cut.split = 1;
  cut.works = cut.whole + (cut.tiles - cut.whole) * cut.split;
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

// Whether B passes by next to no rows: L2 then fetches the next k tile of a row with this one.
bool streams_ahead(const GemmParams& p, const Config& c, const Cut& cut, int sms) {
  return p.M <= 32 && p.layout_b == Layout::col_major && cut.split == 1 &&
         starts_late(p, c, cut, sms);
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
  const double rows = double(cut.tiles_m) * c.cluster_m;
  const double height = cut.height - 8 * (1 - double(cut.higher) / rows);  // the mean
  const double loads = height * lines(p.lda) + tile.block_n * lines(p.ldb) / c.cluster_m;
  const bool late = starts_late(p, c, cut, sms);
  const double shared = late && tile.block_m == 128 ? 0.0
                        : c.cluster_m == 1          ? 1.0
                        : tall(tile)                ? 0.19
                                                    : 0.48;
  const double step_us = tall(tile) ? tile.step_us * height / 200 : tile.step_us;
  const double busy_us =
      tall(tile) ? LOWER_US * (200 - height) + 0.02 * (c.cluster_m - 1) : tile.busy_us;
  const double step = std::max(step_us + busy_us * busy * shared,
                               busy * (tall(tile) ? 0.00106 : 0.00125) * loads);
  // FP32 and beta: twice the bytes of C, or C as well, for every 32,768 elements.
  const bool f32 = p.type_c == Type::f32, reads = p.beta != 0.0f;
  const bool mixed = double(cut.higher) < rows;
  const double more = (!f32 ? 0.0 : mixed ? 2.0 : 1.5) + (!reads ? 0.0 : f32 ? 2.7 : 1.1);
  const double end = tile.end_us + (stores_boxes(p) ? more * tile.block_m * tile.block_n / 32768.0
                                                    : tile.elements_us);
  // The cluster with the most to do.
  double compute =
      double(ceil_div(cut.whole, cut.slots)) * (std::ceil(k_tiles / cut.cluster_k) * step + end);
  if (cut.split > 1)
    compute += std::ceil(k_tiles / cut.split) * step + (tall(tile) ? tile.end_us : 0.0);
  const double bytes =
      2.0 * double(p.batch) *
      (double(p.M) * p.K + double(p.K) * p.N + double(p.M) * p.N * (f32 ? 2 : 1) * (reads ? 2 : 1));
  double time = late ? 2.0 : 1.9;
  if (cut.split > 1)  // memory and the multiplication wait for each other, now this, now that
    time += std::pow(std::pow(compute, 6) + std::pow(bytes / 4.6e6 + end, 6), 1.0 / 6);
  else
    time += std::max(compute, bytes / 4.3e6 + end);
  if (c.cluster_m == 2) time += tile.block_m == 64 ? -0.15 : 0.05;
  // Of 64 KB of sums, what is there.
  const double sums = std::min(1.0, double(p.M) / (tile.block_m * c.cluster_m)) * tile.block_m *
                      tile.block_n / 16384.0;
  if (cut.cluster_k > 1) time += 0.32 * cut.cluster_k + 3.1 * sums;
  if (cut.split > 1) time += 2.5 + 0.003 * cut.split + 2.8 * sums * busy;
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
      const bool any_height = tall(facts) && p.layout_a == Layout::row_major;
      if (cluster_m == 2 && (p.M <= block_m || (facts.transposed && !any_height))) continue;
      if (cluster_m == 2 && any_height && p.lda % 64) continue;  // slower
      if (facts.transposed && !stores_boxes(p)) continue;
      const int rows = block_m * cluster_m, group_rows = facts.transposed ? 2400 : 2048;
      Config c{tile, cluster_m, 1, 1, (group_rows + rows / 2) / rows};
      const Cut plain = cut_of(p, c, sms);
      if (narrow) {
        if (starts_late(p, c, plain, sms)) all.push_back(c);
        continue;
      }
      // Many waves of 64 rows: wider ones load less.
      if (block_m == 64 && p.M > 64 && plain.tiles > 6 * plain.slots) continue;
      const auto add_whole = [&](Config whole) {
        const Cut cut = cut_of(p, whole, sms);
        // The higher ones of two heights in one round of tiles: nobody has two of them.
        const int64_t higher = cut.higher < cut.tiles_m * cluster_m ? cut.higher * cut.height : 0;
        if (higher >= 1024 && higher <= 2800 && cut.tiles <= 3 * cut.slots)
          whole.group_m = int(ceil_div(cut.higher, cluster_m));
        // Past what L2 keeps (an H200 has 63 MB), clusters that drift apart read from memory again.
        whole.pace = cut.tiles >= 4 * cut.slots && p.K >= 4096;
        all.push_back(whole);
      };
      if (any_height) {  // each number of rows of tiles; groups of 2,400 rows at most, all alike
        const int64_t groups = ceil_div(p.M, 2400);
        int64_t before = 0;
        for (int height = block_m; height >= LEAST_HEIGHT; --height) {
          const int64_t clusters = ceil_div(p.M, height * cluster_m);
          if (clusters == std::exchange(before, clusters)) continue;
          Config even = c;
          even.height = std::max(LEAST_HEIGHT, int(ceil_div(p.M, clusters * cluster_m)));
          even.group_m = int(ceil_div(clusters, groups));
          add_whole(even);
        }
        if (cluster_m == 2) continue;
      } else {
        add_whole(c);
      }
      for (int split : {2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 20, 24, 32, 40, 48, 64, 96, 128}) {
        c.split = split;
        const Cut cut = cut_of(p, c, sms);
        if (k_tiles / split < 2 || cut.split != split || cut.works - cut.whole > cut.slots ||
            cut.whole > (facts.transposed && !any_height ? 16 : 3) * cut.slots)
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

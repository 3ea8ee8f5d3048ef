// 29: from accumulators to C. Boxes leave by TMA, and with beta the old ones come through the ring;
// rows that are no multiple of 16 bytes leave element by element through shared memory; parts of a
// tile that was split along K are added up in L2.
#pragma once
#include "tiles.h"

namespace {

constexpr int BOX = 64;           // rows and columns of a box of C in shared memory: 8 KB
constexpr int CHUNK_N = 32;       // columns of FP32 in the same 8 KB
constexpr int PITCH = 128 + 4;    // of 8 rows of 128 columns in FP32: no bank conflicts
constexpr int MAX_POLLS_PARTS = 50;   // then a part leaves its share to the last one

// Rows of the tile from row `row` on.
template <class Tile>
__device__ int height_at(const GemmArgs& args, int row) {
  if (!Tile::TALL) return Tile::BLOCK_M;
  return args.height - (row >= args.higher_m ? 8 : 0);
}
// Of those, the ones that are staged at once from row part_m of the tile on.
template <class Tile>
__device__ int rows_of(const GemmArgs& args, int row, int part_m) {
  return min(Tile::PART_M, height_at<Tile>(args, row) - part_m);
}
// They move at once, or 8 rows at a time where the tile ends within them.
struct BoxOfC {
  const CUtensorMap* map;
  int rows, all_rows;
};
template <class Tile>
__device__ BoxOfC box_of_c(const GemmArgs& args, int row, int part_m) {
  const int rows = Tile::TALL ? rows_of<Tile>(args, row, part_m) : Tile::PART_M;
  if (rows < Tile::PART_M) return {&args.tmap_c_few, 8, rows};
  return {&args.tmap_c, Tile::PART_M, rows};
}

// One pair of columns, rounded to C's type.
__device__ uint32_t rounded(Type type, float lo, float hi) {
  return type == Type::bf16 ? ptx::cvt_bf16x2(lo, hi) : ptx::cvt_f16x2(lo, hi);
}
__device__ float old_c(const GemmArgs& args, int64_t at) {
  if (args.type_c == Type::f32) return static_cast<const float*>(args.C)[at];
  const uint16_t bits = static_cast<const uint16_t*>(args.C)[at];
  return args.type_c == Type::bf16 ? __uint_as_float(uint32_t(bits) << 16)
                                   : __half2float(__ushort_as_half(bits));
}
__device__ void store_c(const GemmArgs& args, int64_t at, float value) {
  if (args.type_c == Type::f32)
    static_cast<float*>(args.C)[at] = value;
  else
    static_cast<uint16_t*>(args.C)[at] = uint16_t(rounded(args.type_c, value, 0.0f));
}

// alpha * sum + beta * old of a pair of columns, rounded.
__device__ uint32_t updated(const GemmArgs& args, float lo, float hi, uint32_t old) {
  const bool bf16 = args.type_c == Type::bf16;
  const float x = bf16 ? __uint_as_float(old << 16) : __half2float(__ushort_as_half(uint16_t(old)));
  const float y = bf16 ? __uint_as_float(old & 0xFFFF0000)
                       : __half2float(__ushort_as_half(uint16_t(old >> 16)));
  return rounded(args.type_c, args.alpha * lo + args.beta * x, args.alpha * hi + args.beta * y);
}

// Where chunk `chunk` (16 bytes) of a row of 128 bytes lies, with the 128-byte swizzle.
__device__ int swizzled(int row, int chunk) { return row * 8 + (chunk ^ row % 8); }
// Where element (row, col) of 64x32 in FP32 lies: written by 4 rows and 8 columns at a time, and
// read by rows, without bank conflicts. Eight rows further is 8 * 32 elements further.
__device__ int place_f32(int row, int col) { return row * 32 + (col ^ row % 4 * 8); }

// The thread in its warpgroup. The shuffle hides that it is the same in every tile: what follows
// from it would otherwise be kept over the main loop, and spilled.
__device__ int thread_now() {
  return __shfl_sync(~0u, threadIdx.x, threadIdx.x % 32) % 128;
}

// Where row `r` of the tile whose first is `row` lies.
template <class Tile>
__device__ int row_of(const GemmArgs& args, int row, int r) {
  if (Tile::EXTRA == 0 || r < Tile::MAIN_M) return row + r;
  return args.tiles_m * Tile::MAIN_M + row / (Tile::MAIN_M / 8) + r - Tile::MAIN_M;
}

// How a consumer's part of C is cut: PART_M rows of SLABS boxes at a time, 128 bytes of a row each.
template <class Tile, bool F32>
struct Parts {
  static constexpr int BOX_N = F32 ? 32 : 64, PART_N = Tile::SLABS * BOX_N;
  static constexpr int ACROSS = Tile::WG_N / PART_N;
  static constexpr int COUNT = (Tile::WG_M - Tile::EXTRA) / Tile::PART_M * ACROSS;
  __device__ static int row(int part) { return part / ACROSS * Tile::PART_M; }
  __device__ static int col(int part) { return part % ACROSS * PART_N; }
};

// The part of C from row part_m and column part_n of a consumer's on, as its boxes lie in shared
// memory; ADD: to the old ones. In 16 bits stmatrix turns fragments into rows or, transposed,
// columns, and ldmatrix the old ones back.
template <class Tile, bool ADD>
__device__ void stage_16_bits(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                              uint4* boxes, const uint4* old, int part_m, int part_n) {
  const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x % 128 / 32;
#pragma unroll
  for (int j = 0; j < (Tile::TRANSPOSED ? Tile::PART_M / 8 : BOX / 16); ++j) {
    // 16 columns of a warp's 16 rows or, transposed, of 8 rows in either box.
    const int r = Tile::TRANSPOSED ? j * 8 + lane_id % 8 : warp_id * 16 + lane_id % 16;
    const int chunk = Tile::TRANSPOSED ? warp_id * 2 + lane_id / 8 % 2 : j * 2 + lane_id / 16;
    const int at = (Tile::TRANSPOSED ? lane_id / 16 * Tile::PART_M * 8 : 0) + swizzled(r, chunk);
    uint32_t frag_c[4], old_c[4] = {};
    if (ADD && Tile::TRANSPOSED) ptx::ldmatrix_x4_trans(old_c, &old[at]);
    if (ADD && !Tile::TRANSPOSED) ptx::ldmatrix_x4(old_c, &old[at]);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int slab = Tile::TRANSPOSED ? i / 2 : 0;
      const int reg = Tile::TRANSPOSED ? (part_m / 8 + j) * 4 + i % 2 * 2
                                       : (part_n + j * 16) / 2 + 2 * i;
      const float lo = acc[slab][reg], hi = acc[slab][reg + 1];
      frag_c[i] = ADD ? updated(args, lo, hi, old_c[i])
                      : rounded(args.type_c, args.alpha * lo, args.alpha * hi);
    }
    if constexpr (Tile::TRANSPOSED) ptx::stmatrix_x4_trans(&boxes[at], frag_c);
    else ptx::stmatrix_x4(&boxes[at], frag_c);
  }
}

// In FP32 a thread writes two neighbours of a row or, transposed, one element of each row. (That
// two rows of the former may meet in the same banks costs no time that could be measured.)
template <class Tile, bool ADD>
__device__ void stage_f32(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                          uint4* boxes, const uint4* old, int part_m, int part_n) {
  const int tid = thread_now(), lane_id = tid % 32, warp_id = tid / 32;
  const float alpha = args.alpha, beta = args.beta;
  if constexpr (Tile::TRANSPOSED) {  // a slab in two boxes, a warp's 16 columns in one of them
#pragma unroll
    for (int j = 0; j < Tile::PART_M / 8; ++j)
#pragma unroll
      for (int i = 0; i < 4; ++i) {  // rows 2 * (lane % 4), +1; columns lane / 4, +8
        const int r = warp_id / 2 * Tile::PART_M + j * 8 + lane_id % 4 * 2 + i % 2;
        const int chunk = warp_id % 2 * 4 + i / 2 * 2 + lane_id / 16;
        const int at = swizzled(r, chunk) * 4 + lane_id / 4 % 4;
        float x = alpha * acc[part_n / 64][(part_m / 8 + j) * 4 + i];
        if (ADD) x += beta * reinterpret_cast<const float*>(old)[at];
        reinterpret_cast<float*>(boxes)[at] = x;
      }
  } else {
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int i = 0; i < 2; ++i) {  // rows lane / 4, +8
        const int r = warp_id * 16 + lane_id / 4 + i * 8;
        const int at = swizzled(r, j * 2 + lane_id % 4 / 2) * 2 + lane_id % 2;
        const float* from = &acc[0][part_n / 2 + j * 4 + i * 2];
        float2 x = make_float2(alpha * from[0], alpha * from[1]);
        if (ADD) {
          const float2 y = reinterpret_cast<const float2*>(old)[at];
          x.x += beta * y.x, x.y += beta * y.y;
        }
        reinterpret_cast<float2*>(boxes)[at] = x;
      }
  }
}

// A consumer's part of C by TMA: rmem -> smem -> gmem. ADD: take() is where the old C of the next
// part lies, give() gives that stage of the ring back.
template <class Tile, bool F32, bool ADD, int SIZE, class Take, class Give>
__device__ void store_boxes(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                            uint4 (&staging)[2][SIZE], int wg_id, int row, int col, int batch,
                            Take take, Give give) {
  using P = Parts<Tile, F32>;
  const int tid = threadIdx.x % 128;
#pragma unroll
  for (int part = 0; part < P::COUNT; ++part) {
    if (Tile::TALL && rows_of<Tile>(args, row, P::row(part)) <= 0) break;
    uint4* boxes = staging[part % 2];
    if (part > 0) {  // the kernel has waited for the first one, while wgmma still ran
      if (tid == 0) ptx::tma_store_wait_group_read<1>();  // the part before last has left
      ptx::bar_sync(1 + wg_id, 128);
    }
    const uint4* old = nullptr;
    if (ADD) old = take() + wg_id * SIZE;
    if constexpr (F32)
      stage_f32<Tile, ADD>(acc, args, boxes, old, P::row(part), P::col(part));
    else
      stage_16_bits<Tile, ADD>(acc, args, boxes, old, P::row(part), P::col(part));
    ptx::fence_proxy_async();  // TMA reads what ordinary stores have written
    ptx::bar_sync(1 + wg_id, 128);
    if (ADD) give();
    if (tid == 0) {
      const BoxOfC c = box_of_c<Tile>(args, row, P::row(part));
      for (int r = 0; r < c.all_rows; r += c.rows)
        for (int box = 0; box < Tile::SLABS; ++box)
          ptx::tma_store_3d(c.map, boxes + (box * Tile::PART_M + r) * 8,
                            col + P::col(part) + box * P::BOX_N, row + P::row(part) + r, batch);
      ptx::tma_store_commit_group();
    }
  }
}

// The old C of a tile: a part of both consumers for each stage of the ring, where B would lie.
template <class Tile, bool F32, class Storage, class Take>
__device__ void load_old_c(const GemmArgs& args, Storage& smem, int row, int col, int batch,
                           Take take) {
  using P = Parts<Tile, F32>;
  constexpr int BOX_SIZE = Tile::PART_M * 8, BOXES = Tile::NUM_CONSUMERS * Tile::SLABS;
#pragma unroll 1
  for (int part = 0; part < P::COUNT; ++part) {
    const BoxOfC c = box_of_c<Tile>(args, row, P::row(part));
    if (c.all_rows <= 0) break;
    const int stage = take(BOXES * c.all_rows * 8 * int(sizeof(uint4)));
    auto* to = reinterpret_cast<uint4*>(smem.b[stage]);
    for (int i = 0; i < BOXES * (c.all_rows / c.rows); ++i) {
      const int box = i % BOXES, r = i / BOXES * c.rows;
      const int x = P::col(part) + box % Tile::SLABS * P::BOX_N, wg = box / Tile::SLABS;
      ptx::tma_load_3d(to + box * BOX_SIZE + r * 8, c.map,
                       col + x + (Tile::TRANSPOSED ? wg * Tile::WG_N : 0),
                       row + P::row(part) + r + (Tile::TRANSPOSED ? 0 : wg * Tile::WG_M), batch,
                       &smem.full_bar[stage]);
    }
  }
}

// The same element by element, with beta: 64x32 at a time or, transposed, 8x128, in FP32, from the
// FIRST such chunk on. A warp stores 32 columns of a row.
template <class Tile, int FIRST, int SIZE>
__device__ void store_elements(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                               uint4 (&staging)[2][SIZE], int wg_id, int row, int col, int batch) {
  constexpr int ROWS = Tile::TRANSPOSED ? 8 : BOX;
  constexpr int COLS = Tile::TRANSPOSED ? Tile::WG_N : CHUNK_N;
  constexpr int IN_FLIGHT = Tile::TRANSPOSED ? 1 : 4;  // registers
  const int tid = threadIdx.x % 128, lane_id = tid % 32, warp_id = tid / 32;
  float* chunk = reinterpret_cast<float*>(&staging[0][0]);
#pragma unroll
  for (int i = FIRST; i < Tile::WG_M / ROWS * (Tile::WG_N / COLS); ++i) {
    if (Tile::TALL && i * ROWS >= height_at<Tile>(args, row)) break;
    if (i > FIRST) ptx::bar_sync(1 + wg_id, 128);  // the chunk before has been read
#pragma unroll
    for (int j = 0; j < (Tile::TRANSPOSED ? Tile::SLABS : CHUNK_N / 8); ++j) {
      if constexpr (Tile::TRANSPOSED) {  // slab j: rows 2 * (lane % 4), +1; columns lane / 4, +8
        float* to = chunk + lane_id % 4 * 2 * PITCH + j * 64 + warp_id * 16 + lane_id / 4;
        to[0] = acc[j][4 * i], to[PITCH] = acc[j][4 * i + 1];
        to[8] = acc[j][4 * i + 2], to[PITCH + 8] = acc[j][4 * i + 3];
      } else {
        const int reg = (i * CHUNK_N + j * 8) / 2, r = warp_id * 16 + lane_id / 4;
        float* to = &chunk[place_f32(r, j * 8 + lane_id % 4 * 2)];
        reinterpret_cast<float2*>(to)[0] = make_float2(acc[0][reg], acc[0][reg + 1]);
        reinterpret_cast<float2*>(to)[8 * 16] = make_float2(acc[0][reg + 2], acc[0][reg + 3]);
      }
    }
    ptx::bar_sync(1 + wg_id, 128);
    const int r0 = Tile::TRANSPOSED ? row_of<Tile>(args, row, i * ROWS) : row;
    const int c0 = col + (Tile::TRANSPOSED ? 0 : i * COLS);
#pragma unroll 1
    for (int c = lane_id; c < min(COLS, args.N - c0); c += 32) {
      const int rows = min(ROWS, args.M - r0);
      int64_t at = batch * args.stride_c + int64_t(r0 + warp_id) * args.ldc + c0 + c;
#pragma unroll 1
      for (int first = warp_id; first < rows; first += 4 * IN_FLIGHT) {  // rows of this warp
        float value[IN_FLIGHT];
        int64_t to = at;
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k, to += 4 * args.ldc)
          value[k] = args.beta != 0.0f && first + 4 * k < rows ? args.beta * old_c(args, to) : 0.0f;
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; ++k, at += 4 * args.ldc) {
          const int r = first + 4 * k;
          const float sum = chunk[Tile::TRANSPOSED ? r * PITCH + c : place_f32(r, c)];
          if (r < rows) store_c(args, at, args.alpha * sum + value[k]);
        }
      }
    }
  }
}

// A consumer's part of C.
template <class Tile, int SIZE, class Take, class Give>
__device__ void store(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                      uint4 (&staging)[2][SIZE], int wg_id, int row, int col, int batch, Take take,
                      Give give) {
  const auto boxes = [&](auto f32, auto add) {
    store_boxes<Tile, f32, add>(acc, args, staging, wg_id, row, col, batch, take, give);
  };
  const std::true_type yes;
  const std::false_type no;
  const bool f32 = args.type_c == Type::f32;
  if (!args.boxes)
    return store_elements<Tile, 0>(acc, args, staging, wg_id, row, col, batch);
  if constexpr (Tile::EXTRA > 0) {
    store_elements<Tile, Tile::MAIN_M / 8>(acc, args, staging, wg_id, row, col, batch);
    ptx::bar_sync(1 + wg_id, 128);  // the chunk has been read
  }
  if (args.reads_boxes)
    f32 ? boxes(yes, yes) : boxes(no, yes);
  else
    f32 ? boxes(yes, no) : boxes(no, no);
}

// The sums of a consumer in float4s, as its threads hold them: item i is what thread i % 128 has of
// group i / 128, which is 8 columns of its part or, transposed, 8 rows of a slab.
template <class Tile>
struct Sums {
  static constexpr int GROUPS = Tile::SLABS * Tile::REGS / 4;
  static constexpr int ITEMS = GROUPS * 128;

  // Groups with something of C in them.
  static __device__ int groups_of(const GemmArgs& args, int row, int col) {
    const int rows = Tile::TALL ? min(height_at<Tile>(args, row), args.M - row) : args.M - row;
    const int cols = args.N - col;
    if (rows <= 0 || cols <= 0) return 0;
    return min(GROUPS, Tile::TRANSPOSED ? Tile::SLABS * ceil_div(rows, 8) : ceil_div(cols, 8));
  }
  // Row and column of the first element of an item; the second is beside it or, transposed, below,
  // the other two are 8 rows or, transposed, 8 columns further.
  static __device__ int2 place_of(int i) {
    const int group = i / 128, warp_id = i % 128 / 32, lane_id = i % 32;
    if constexpr (Tile::TRANSPOSED)
      return {group / Tile::SLABS * 8 + lane_id % 4 * 2,
              group % Tile::SLABS * 64 + warp_id * 16 + lane_id / 4};
    else
      return {warp_id * 16 + lane_id / 4, group * 8 + lane_id % 4 * 2};
  }
};

// A consumer's sums to shared or global memory; groups `own` to `others`, its own share, to `kept`.
template <class Tile>
__device__ void store_sums(float (&acc)[Tile::SLABS][Tile::REGS], float4* sums, int groups,
                           float4* kept = nullptr, int own = 0, int others = 0) {
  const int tid = thread_now();
  const auto item = [&](int g) {
    const float* from = &acc[g % Tile::SLABS][g / Tile::SLABS * 4];
    return make_float4(from[0], from[1], from[2], from[3]);
  };
#pragma unroll
  for (int g = 0; g < Sums<Tile>::GROUPS; ++g)  // two loops: stores with predicates, no branches
    if (g < groups && (g < own || g >= others)) sums[g * 128 + tid] = item(g);
#pragma unroll
  for (int g = 0; g < Sums<Tile>::GROUPS; ++g)
    if (g >= own && g < others) kept[(g - own) * 128 + tid] = item(g);
#pragma unroll
  for (int i = 0; i < Tile::SLABS * Tile::REGS; ++i)  // frees the registers for what follows
    acc[i / Tile::REGS][i % Tile::REGS] = 0.0f;
}

__device__ void add_to(float4& sum, const float4& more) {
  sum.x += more.x, sum.y += more.y, sum.z += more.z, sum.w += more.w;
}

// Adds item i of pieces `first` to `last`, 16 in flight.
template <class SumsOf>
__device__ void add_item(float4& sum, SumsOf sums_of, int first, int last, int i) {
#pragma unroll 1
  for (; first < last; first += 16) {
    float4 loaded[16] = {};
#pragma unroll
    for (int p = 0; p < 16; ++p)
      if (first + p < last) loaded[p] = sums_of(first + p)[i];
#pragma unroll
    for (int p = 0; p < 16; ++p) add_to(sum, loaded[p]);
  }
}

// One item to C.
template <class Tile>
__device__ void store_item(const GemmArgs& args, const float4& sum, int i, int row, int col,
                           int64_t matrix) {
  constexpr int RIGHT = Tile::TRANSPOSED ? 8 : 1, BELOW = Tile::TRANSPOSED ? 1 : 8;
  const int2 place = Sums<Tile>::place_of(i);
  const int r = row_of<Tile>(args, row, place.x), c = col + place.y;
  const int64_t at = matrix + r * args.ldc + c;
  const float v[2][2] = {{sum.x, Tile::TRANSPOSED ? sum.z : sum.y},
                         {Tile::TRANSPOSED ? sum.y : sum.z, sum.w}};
  if (args.plain) {  // 16 bits, beta = 0
    auto* to = static_cast<uint16_t*>(args.C) + at;
#pragma unroll
    for (int below = 0; below < 2; ++below, to += BELOW * args.ldc) {
      const uint32_t pair =
          rounded(args.type_c, args.alpha * v[below][0], args.alpha * v[below][1]);
      if (r + below * BELOW >= args.M) continue;
      if (!Tile::TRANSPOSED && args.pairs) {
        if (c < args.N) *reinterpret_cast<uint32_t*>(to) = pair;
      } else {
        if (c < args.N) to[0] = uint16_t(pair);
        if (c + RIGHT < args.N) to[RIGHT] = uint16_t(pair >> 16);
      }
    }
    return;
  }
#pragma unroll 1
  for (int e = 0; e < 4; ++e) {
    const int below = e / 2 * BELOW, right = e % 2 * RIGHT;
    const int64_t to = at + below * args.ldc + right;
    const float value = e == 0 ? v[0][0] : e == 1 ? v[0][1] : e == 2 ? v[1][0] : v[1][1];
    if (r + below < args.M && c + right < args.N)
      store_c(args, to,
              args.alpha * value + (args.beta != 0.0f ? args.beta * old_c(args, to) : 0.0f));
  }
}

// Four lanes have two columns each of four groups of 8; now each has all 8 of one group.
__device__ void turn_round(uint32_t (&pair)[4], int lane_id) {
  const auto trade = [lane_id](uint32_t& a, uint32_t& b, int lane) {
    const bool first = lane_id & lane;
    const uint32_t got = __shfl_xor_sync(~0u, first ? a : b, lane);
    (first ? a : b) = got;
  };
  trade(pair[0], pair[2], 2), trade(pair[1], pair[3], 2);
  trade(pair[0], pair[1], 1), trade(pair[2], pair[3], 1);
}

// Items i, i + 128 .. below i + more to C, by whole warpgroups: in 16 bytes where rows allow it.
template <class Tile, int ITEMS>
__device__ void store_items(const GemmArgs& args, float4 (&sum)[ITEMS], int i, int more, int row,
                            int col, int64_t matrix) {
  if (Tile::TRANSPOSED || ITEMS < 4 || !args.plain || !args.boxes) {
#pragma unroll 1
    for (int left = min(ITEMS * 128, more); left > 0; left -= 128, i += 128) {
      store_item<Tile>(args, sum[0], i, row, col, matrix);
#pragma unroll
      for (int j = 1; j < ITEMS; ++j) sum[j - 1] = sum[j];  // rather than ITEMS times that code
    }
    return;
  }
  const int group = i % 4;  // of four, this lane's; a share begins with a whole one
  const int2 place = Sums<Tile>::place_of((i + group * 128) / 4 * 4);
  const int r = row + place.x, c = col + place.y;
  auto* to = static_cast<uint16_t*>(args.C) + matrix + r * args.ldc + c;
#pragma unroll
  for (int below = 0; below < 2; ++below, to += 8 * args.ldc)
#pragma unroll
    for (int j = 0; j + 3 < ITEMS; j += 4) {
      uint32_t pair[4];
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const float4& v = sum[j + k];
        pair[k] = rounded(args.type_c, args.alpha * (below ? v.z : v.x),
                          args.alpha * (below ? v.w : v.y));
      }
      turn_round(pair, i);
      if ((group + j) * 128 < more && r + below * 8 < args.M && c + j * 8 < args.N)
        *reinterpret_cast<uint4*>(to + j * 8) = make_uint4(pair[0], pair[1], pair[2], pair[3]);
    }
}

// n / pieces of a tile, for n below 2^17: a division takes a hundred cycles.
__device__ int divided(int n, const GemmArgs& args) {
  return int(uint64_t(n) * args.one_piece >> 32);
}

// The first item of a share: whole groups or, of more pieces than groups, lines of 128 bytes.
__device__ int begin_of(int share, int groups, const GemmArgs& args) {
  const bool whole = args.pieces <= groups;
  return divided(whole ? groups * share + args.pieces - 1 : groups * 16 * share, args)
         << (whole ? 7 : 3);
}

// Adds up items `begin` to `end`, whole groups, ITEMS of them at a time, and stores them to C: the
// sums of piece `share`, which lie at `own`, then those of the next one, and so on round to the one
// before. As many loads in flight as there are registers for: one trip to L2 will mostly do.
template <class Tile, int ITEMS, class SumsOf>
__device__ void add_groups(const GemmArgs& args, const float4* own, SumsOf sums_of, int share,
                           int begin, int end, int row, int col, int64_t matrix) {
  constexpr int AT_ONCE = (Tile::TRANSPOSED || Tile::BLOCK_N > 128 || ITEMS == 8 ? 16 : 24) / ITEMS;
  const int tid = thread_now();
#pragma unroll 1
  for (int first = begin; first < end; first += ITEMS * 128) {
    const int i = first + tid, more = end - first;
    float4 sum[ITEMS] = {};
#pragma unroll
    for (int j = 0; j < ITEMS; ++j)
      if (j * 128 < more) sum[j] = own[i + j * 128];
    int piece = share;
#pragma unroll 1
    for (int others = args.pieces - 1; others > 0; others -= AT_ONCE) {
      float4 loaded[AT_ONCE][ITEMS] = {};
#pragma unroll
      for (int p = 0; p < AT_ONCE; ++p) {
        if (p >= others) break;
        piece = piece + 1 == args.pieces ? 0 : piece + 1;
        const float4* from = sums_of(piece) + i;
#pragma unroll
        for (int j = 0; j < ITEMS; ++j)
          if (j * 128 < more) loaded[p][j] = from[j * 128];
      }
#pragma unroll
      for (int p = 0; p < AT_ONCE; ++p)
#pragma unroll
        for (int j = 0; j < ITEMS; ++j) add_to(sum[j], loaded[p][j]);
    }
    store_items<Tile>(args, sum, i, more, row, col, matrix);
  }
}

// Adds up share `share` of a consumer's sums, items `begin` to `end`, and stores it to C.
// sums_of(piece) is where a piece lies, but for number `share`, at `own`. A share of less than a
// group is cut along K again: each slice of the warpgroup adds some of the pieces, in the order of
// K, the first one the slices.
template <class Tile, class SumsOf>
__device__ void add_share(const GemmArgs& args, const float4* own, SumsOf sums_of, float4* scratch,
                          int wg_id, int share, int begin, int end, int row, int col, int batch) {
  const int64_t matrix = batch * args.stride_c;
  const int size = end - begin;
  if (size % 128 == 0) {  // whole groups, or lines for each thread
    const auto add = [&](auto items) {
      add_groups<Tile, decltype(items)::value>(args, own, sums_of, share, begin, end, row, col,
                                               matrix);
    };
    if constexpr (!Tile::GIVES) {  // else no registers for more than one
      if (size > 512 && (args.pieces == 2 || !Tile::TRANSPOSED))
        return add(std::integral_constant<int, 8>());
      if (size > 256) return add(std::integral_constant<int, 4>());
      if (size > 128) return add(std::integral_constant<int, 2>());
    }
    return add(std::integral_constant<int, 1>());
  }
  const int tid = thread_now(), pieces = args.pieces;
  int halvings = 0;
  while (halvings < 4 && size << halvings <= 64) ++halvings;
  const int slices = 1 << halvings, width = 128 >> halvings, slice = tid >> (7 - halvings);
#pragma unroll 1
  for (int i0 = begin; i0 < end; i0 += width) {
    const int i = i0 + (tid & (width - 1));
    float4 sum = {};
    if (i < end)
      add_item(sum, sums_of, pieces * slice >> halvings, pieces * (slice + 1) >> halvings, i);
    if (slices > 1) {
      scratch[tid] = sum;
      ptx::bar_sync(1 + wg_id, 128);
      for (int s = 1; s < slices && slice == 0; ++s) add_to(sum, scratch[tid + s * width]);
      ptx::bar_sync(1 + wg_id, 128);  // the next share may come
    }
    if (slice == 0 && i < end) store_item<Tile>(args, sum, i, row, col, matrix);
  }
}

// The CTAs of a cluster have a piece of the same tile each: through each other's shared memory.
template <class Tile>
__device__ void add_up_in_cluster(float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                                  void* ring, void* scratch, int piece, int wg_id, int row, int col,
                                  int batch) {
  const int groups = Sums<Tile>::groups_of(args, row, col);
  float4* sums = static_cast<float4*>(ring) + wg_id * Sums<Tile>::ITEMS;
  store_sums<Tile>(acc, sums, groups);
  ptx::cluster_sync();
  const auto sums_of = [&](int p) -> const float4* {
    return p == piece ? sums : ptx::mapa(sums, p);  // its own by the short way
  };
  const int begin = begin_of(piece, groups, args), end = begin_of(piece + 1, groups, args);
  add_share<Tile>(args, sums, sums_of, static_cast<float4*>(scratch), wg_id, piece, begin, end, row,
                  col, batch);
}

// One of `split` pieces of a tile goes to L2. Then each piece's warpgroup adds up one share, which
// it has kept in shared memory where there is room. Nobody relies on the others being resident: who
// has waited long enough leaves its share to the last one. Sums that have been added need not go to
// memory: where memory sets the pace, loads would wait for that.
// A flag for each 16 shares, on which thread 0, 1 .. of a piece count:
//   bits 0-7 pieces that have arrived, 8-15 that have left, 16-31 shares that were left
template <class Tile, int SIZE>
__device__ void add_up(float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                       int (&shared_shares)[MAX_SPLIT / 16], uint4 (&scratch)[2][SIZE],
                       int tail_tile, int piece, int part, int wg_id, int row, int col, int batch) {
  constexpr int IN_VAIN = 1 << 16;  // beside shares: waited
  const int parts = args.cluster_m * Tile::NUM_CONSUMERS, split = args.split;
  const int groups = Sums<Tile>::groups_of(args, row, col);
  float4* first = args.partials + int64_t(tail_tile * split * parts + part) * Sums<Tile>::ITEMS;
  const auto in_l2 = [&](int p) { return first + p * parts * Sums<Tile>::ITEMS; };
  const int begin = begin_of(piece, groups, args), end = begin_of(piece + 1, groups, args);
  auto* own = reinterpret_cast<float4*>(scratch);
  const bool keeps = end - begin <= 2 * SIZE && split <= groups;  // more: slices need scratch
  store_sums<Tile>(acc, in_l2(piece), groups, own, begin / 128, (keeps ? end : begin) / 128);
  ptx::bar_sync(1 + wg_id, 128);
  const int tid = thread_now(), flags = ceil_div(split, 16), share = 1 << piece % 16;
  int* flag = &args.counters[NUM_PACE_COUNTERS + (tail_tile * parts + part) * flags + tid];
  const bool mine = tid == piece / 16;  // this thread's flag has the share of this piece
  int old = 0;
  if (tid < flags) {
    int shares = mine ? share : 0;
    old = ptx::atom_add_acq_rel(flag, mine ? 1 : 1 + (1 << 8));
    if ((old & 0xFF) + 1 == split) {
      shares |= old >> 16 & 0xFFFF;  // the last one: with what others have left
    } else if (mine) {
      int now = old + 1;
#pragma unroll 1
      for (int i = 0; i < MAX_POLLS_PARTS && (now & 0xFF) < split; ++i) now = ptx::ld_acquire(flag);
      if ((now & 0xFF) < split) shares = IN_VAIN;
    }
    shared_shares[tid] = shares;
  }
  ptx::bar_sync(1 + wg_id, 128);
  if (shared_shares[piece / 16] & IN_VAIN) {
    for (int i = begin + tid; keeps && i < end; i += 128) in_l2(piece)[i] = own[i - begin];
    ptx::bar_sync(1 + wg_id, 128);
    if (mine)
      shared_shares[tid] = (ptx::atom_or_acq_rel(flag, share << 16) & 0xFF) < split ? 0 : share;
    ptx::bar_sync(1 + wg_id, 128);
  }
  if (mine) old = atomicAdd(flag, 1 << 8);
  for (int word = 0; word < flags; ++word)
    for (int left = shared_shares[word]; left; left &= left - 1) {
      const int s = word * 16 + __ffs(left) - 1;
      const bool kept = keeps && s == piece;
      const int from = begin_of(s, groups, args), to = begin_of(s + 1, groups, args);
      add_share<Tile>(args, kept ? own - begin : in_l2(s), in_l2, own, wg_id, s, from, to, row, col,
                      batch);
      if (split > groups) continue;
      ptx::bar_sync(1 + wg_id, 128);  // all have read
      for (int p = tid / 32; p < split; p += 4)
        for (int i = from + tid % 32 * 8; i < to && !(kept && p == piece); i += 32 * 8)
          ptx::discard_l2(in_l2(p) + i);
    }
  if (tid < flags && (old >> 8 & 0xFF) + 1 == split) *flag = 0;  // for next time
}

}  // namespace

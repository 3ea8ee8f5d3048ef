// 29: from accumulators to C. Whole boxes leave by TMA; everything else (beta, rows that are no
// multiple of 16 bytes) element by element through shared memory; parts of a tile that was split
// along K are added up in L2.
#pragma once
#include "tiles.h"

namespace {

constexpr int BOX = 64;           // rows and columns of a box of C in shared memory: 8 KB
constexpr int CHUNK_N = 32;       // columns of FP32 in the same 8 KB
constexpr int PITCH = 128 + 4;    // of 8 rows of 128 columns in FP32: no bank conflicts
constexpr int MAX_POLLS_PARTS = 50;   // then a part leaves its share to the last one

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

// The part of C from row part_m and column part_n of a consumer's on, as its boxes lie in shared
// memory. In 16 bits stmatrix turns fragments into rows or, transposed, columns. Transposed, a part
// is a box of each slab, or of one slab alone.
template <class Tile, int BOXES, int SIZE>
__device__ void stage_16_bits(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                              uint4 (*boxes)[SIZE], int part_m, int part_n) {
  constexpr int EIGHTS = Tile::PART_M / 8;  // of rows
  const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x % 128 / 32;
#pragma unroll
  for (int j = 0; j < (Tile::TRANSPOSED ? (EIGHTS * BOXES + 1) / 2 : BOX / 16); ++j) {
    uint32_t frag_c[4];
#pragma unroll
    for (int r = 0; r < 4; ++r) {
      const int slab = !Tile::TRANSPOSED ? 0 : BOXES == 2 ? r / 2 : part_n / 64;
      // The ninth eight of an odd number of them is never sent.
      const int eight = part_m / 8 + (BOXES == 2 ? j : min(2 * j + r / 2, EIGHTS - 1));
      const int reg = Tile::TRANSPOSED ? eight * 4 + r % 2 * 2 : (part_n + j * 16) / 2 + 2 * r;
      frag_c[r] = rounded(args.type_c, args.alpha * acc[slab][reg],
                          args.alpha * acc[slab][reg + 1]);
    }
    if constexpr (Tile::TRANSPOSED) {  // 16 columns of a box for a warp: 8 rows of two, or 16 of one
      const int chunk = warp_id * 2 + lane_id / 8 % 2, second = lane_id / 16;
      uint4* box = boxes[BOXES == 2 ? second : 0];
      const int r = (BOXES == 2 ? j : 2 * j + second) * 8 + lane_id % 8;
      ptx::stmatrix_x4_trans(&box[swizzled(r, chunk)], frag_c);
    } else {
      const int chunk = j * 2 + lane_id / 16;
      ptx::stmatrix_x4(&boxes[0][swizzled(warp_id * 16 + lane_id % 16, chunk)], frag_c);
    }
  }
}

// In FP32 a thread writes two neighbours of a row or, transposed, one element of each row.
template <class Tile, int SIZE>
__device__ void stage_f32(const float (&acc)[Tile::SLABS][Tile::REGS], float alpha,
                          uint4 (*boxes)[SIZE], int part_m, int part_n) {
  const int tid = thread_now(), lane_id = tid % 32, warp_id = tid / 32;
  if constexpr (Tile::TRANSPOSED) {  // a slab in two boxes, a warp's 16 columns in one of them
#pragma unroll
    for (int j = 0; j < Tile::PART_M / 8; ++j)
#pragma unroll
      for (int r = 0; r < 4; ++r) {  // rows 2 * (lane % 4), +1; columns lane / 4, +8
        const int chunk = warp_id % 2 * 4 + r / 2 * 2 + lane_id / 16;
        const int at = swizzled(j * 8 + lane_id % 4 * 2 + r % 2, chunk);
        reinterpret_cast<float*>(&boxes[warp_id / 2][at])[lane_id / 4 % 4] =
            alpha * acc[part_n / 64][(part_m / 8 + j) * 4 + r];
      }
  } else {  // rows lane / 4, +8. Odd rows begin 16 columns further: no bank conflicts
    const bool odd = lane_id / 4 % 2;
#pragma unroll
    for (int j = 0; j < 4; ++j)
#pragma unroll
      for (int r = 0; r < 2; ++r) {
        const int reg = part_n / 2 + j * 4 + r * 2, other = part_n / 2 + (j ^ 2) * 4 + r * 2;
        const int chunk = j * 2 + lane_id % 4 / 2, at_row = warp_id * 16 + lane_id / 4 + r * 8;
        const int at = swizzled(at_row, chunk ^ (odd ? 4 : 0));
        reinterpret_cast<float2*>(&boxes[0][at])[lane_id % 2] =
            make_float2(alpha * (odd ? acc[0][other] : acc[0][reg]),
                        alpha * (odd ? acc[0][other + 1] : acc[0][reg + 1]));
      }
  }
}

// A consumer's part of C by TMA, PART_M rows of one or two boxes at a time, 128 bytes of a row each:
// rmem -> smem -> gmem. Two buffers, or one where two boxes take all the room there is.
template <class Tile, bool F32, int ROOM, int SIZE>
__device__ void store_boxes(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                            uint4 (&staging)[ROOM][SIZE], int wg_id, int row, int col, int batch) {
  constexpr int BOXES = !Tile::TRANSPOSED ? 1 : F32 ? 2 : ROOM / 2, BUFFERS = ROOM / BOXES;
  constexpr int BOX_N = F32 ? 32 : 64, PART_N = BOXES * BOX_N, ACROSS = Tile::WG_N / PART_N;
  const int tid = threadIdx.x % 128;
#pragma unroll
  for (int part = 0; part < Tile::WG_M / Tile::PART_M * ACROSS; ++part) {
    const int part_m = part / ACROSS * Tile::PART_M, part_n = part % ACROSS * PART_N;
    uint4 (*boxes)[SIZE] = &staging[part % BUFFERS * BOXES];
    if (part > 0) {  // the kernel has waited for the first one, while wgmma still ran
      if (tid == 0) ptx::tma_store_wait_group_read<BUFFERS - 1>();  // who had them before has left
      ptx::bar_sync(1 + wg_id, 128);
    }
    if constexpr (F32)
      stage_f32<Tile>(acc, args.alpha, boxes, part_m, part_n);
    else
      stage_16_bits<Tile, BOXES>(acc, args, boxes, part_m, part_n);
    ptx::fence_proxy_async();  // TMA reads what ordinary stores have written
    ptx::bar_sync(1 + wg_id, 128);
    if (tid == 0) {
      for (int box = 0; box < BOXES; ++box)
        ptx::tma_store_3d(&args.tmap_c, boxes[box], col + part_n + box * BOX_N, row + part_m, batch);
      ptx::tma_store_commit_group();
    }
  }
}

// The same element by element, with beta: 64x32 at a time or, transposed, 8x128, in FP32. A warp
// stores 32 columns of a row.
template <class Tile, int ROOM, int SIZE>
__device__ void store_elements(const float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                               uint4 (&staging)[ROOM][SIZE], int wg_id, int row, int col,
                               int batch) {
  constexpr int ROWS = Tile::TRANSPOSED ? 8 : BOX, COLS = Tile::TRANSPOSED ? 128 : CHUNK_N;
  constexpr int IN_FLIGHT = Tile::TRANSPOSED ? 1 : 4;  // registers
  const int tid = threadIdx.x % 128, lane_id = tid % 32, warp_id = tid / 32;
  float* chunk = reinterpret_cast<float*>(staging);
#pragma unroll
  for (int i = 0; i < Tile::WG_M / ROWS * (Tile::WG_N / COLS); ++i) {
    if (i > 0) ptx::bar_sync(1 + wg_id, 128);  // the chunk before has been read
#pragma unroll
    for (int j = 0; j < (Tile::TRANSPOSED ? 2 : CHUNK_N / 8); ++j) {
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
    const int r0 = row + (Tile::TRANSPOSED ? i * ROWS : 0);
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

// A consumer's accumulators as rows, in shared or global memory; only rows of C.
template <class Tile>
__device__ void store_sums(float (&acc)[Tile::SLABS][Tile::REGS], float4* sums, int rows) {
  constexpr int LD = Tile::WG_N + 4 * SUMS_PAD;
  const int lane_id = threadIdx.x % 32, warp_id = threadIdx.x % 128 / 32;
  if constexpr (Tile::TRANSPOSED) {  // rows 8 * j + 2 * (lane % 4), +1; columns lane / 4, +8
    float* to = reinterpret_cast<float*>(sums) + lane_id % 4 * 2 * LD + warp_id * 16 + lane_id / 4;
#pragma unroll
    for (int i = 0; i < Tile::REGS; ++i)
      if (const int r = i / 4 * 8 + i % 2; r + lane_id % 4 * 2 < rows)
        for (int slab = 0; slab < Tile::SLABS; ++slab)
          to[r * LD + slab * 64 + i % 4 / 2 * 8] = acc[slab][i];
  } else {
#pragma unroll
    for (int half_row = 0; half_row < 2; ++half_row) {
      const int r = warp_id * 16 + lane_id / 4 + half_row * 8;
      float* to = reinterpret_cast<float*>(sums) + r * LD + lane_id % 4 * 2;
      if (r < rows)
#pragma unroll
        for (int j = 0; j < Tile::REGS / 4; ++j)
          *reinterpret_cast<float2*>(to + j * 8) =
              make_float2(acc[0][j * 4 + half_row * 2], acc[0][j * 4 + half_row * 2 + 1]);
    }
  }
#pragma unroll
  for (int i = 0; i < Tile::SLABS * Tile::REGS; ++i)  // frees the registers for what follows
    acc[i / Tile::REGS][i % Tile::REGS] = 0.0f;
}

// Adds up share `share` of `shares` of a consumer's `rows` rows, all pieces in the order of K, and
// stores it to C. sums_of(piece) is where a piece lies.
template <class Tile, class SumsOf>
__device__ void add_share(const GemmArgs& args, SumsOf sums_of, int pieces, int share, int rows,
                          int row, int col, int batch) {
  constexpr int FOURS = Tile::WG_N / 4;
  const int all = max(rows, 0) * FOURS;  // at most 4,096
  const int begin = all * share / pieces, end = all * (share + 1) / pieces;
  for (int i0 = begin + threadIdx.x % 128; i0 < end; i0 += 4 * 128) {
    float4 sum[4] = {};
    for (int p = 0; p < pieces; p += 4) {  // 16 loads in flight
      float4 loaded[16] = {};
#pragma unroll
      for (int q = 0; q < 16; ++q) {
        const int i = i0 + q % 4 * 128;
        if (p + q / 4 < pieces && i < end)
          loaded[q] = sums_of(p + q / 4)[i / FOURS * (FOURS + SUMS_PAD) + i % FOURS];
      }
#pragma unroll
      for (int q = 0; q < 16; ++q) {
        sum[q % 4].x += loaded[q].x, sum[q % 4].y += loaded[q].y;
        sum[q % 4].z += loaded[q].z, sum[q % 4].w += loaded[q].w;
      }
    }
#pragma unroll
    for (int q = 0; q < 4; ++q) {
      const int i = i0 + q * 128, r = row + i / FOURS, c = col + i % FOURS * 4;
      const int64_t at = batch * args.stride_c + r * args.ldc + c;
      float v[4] = {sum[q].x, sum[q].y, sum[q].z, sum[q].w};
      if (i >= end) continue;
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        v[e] *= args.alpha;
        if (args.beta != 0.0f && c + e < args.N) v[e] += args.beta * old_c(args, at + e);
      }
      if (args.fours && c < args.N && args.type_c != Type::f32) {
        *reinterpret_cast<uint2*>(static_cast<uint16_t*>(args.C) + at) =
            make_uint2(rounded(args.type_c, v[0], v[1]), rounded(args.type_c, v[2], v[3]));
      } else {
#pragma unroll
        for (int e = 0; e < 4; ++e)
          if (c + e < args.N) store_c(args, at + e, v[e]);
      }
    }
  }
}

// The CTAs of a cluster have a piece of the same tile each: through each other's shared memory.
template <class Tile>
__device__ void add_up_in_cluster(float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                                  void* ring, int piece, int wg_id, int row, int col, int batch) {
  const int rows = min(Tile::WG_M, args.M - row);
  float4* sums = static_cast<float4*>(ring) + wg_id * Tile::WG_M * (Tile::WG_N / 4 + SUMS_PAD);
  store_sums<Tile>(acc, sums, rows);
  ptx::cluster_sync();
  const auto sums_of = [&](int p) -> const float4* { return ptx::mapa(sums, p); };
  add_share<Tile>(args, sums_of, args.cluster_k, piece, rows, row, col, batch);
}

// One of `split` pieces of a tile goes to L2. Then each piece's warpgroup adds up one share. Nobody
// relies on the others being resident: who has waited long enough leaves its share to the last one.
//   flag: bits 0-7 pieces that have arrived, 8-15 that have left, 16-31 shares that were left
template <class Tile>
__device__ void add_up(float (&acc)[Tile::SLABS][Tile::REGS], const GemmArgs& args,
                       int* shared_shares, int tail_tile, int piece, int part, int wg_id, int row,
                       int col, int batch) {
  const int parts = args.cluster_m * NUM_CONSUMERS, split = args.split;
  const int rows = min(Tile::WG_M, args.M - row);
  const auto sums_of = [&](int p) {
    return args.partials + ((int64_t(tail_tile) * split + p) * parts + part) *
                               (Tile::WG_M * (Tile::WG_N / 4 + SUMS_PAD));
  };
  store_sums<Tile>(acc, sums_of(piece), rows);
  int* flag = &args.counters[NUM_PACE_COUNTERS + tail_tile * parts + part];
  ptx::bar_sync(1 + wg_id, 128);
  if (threadIdx.x % 128 == 0) {
    int shares = 1 << piece, old = ptx::atom_add_acq_rel(flag, 1);
    if ((old & 0xFF) + 1 == split) {
      shares |= old >> 16;  // the last one: with what others have left
    } else {
      for (int i = 0; i < MAX_POLLS_PARTS && (old & 0xFF) < split; ++i) old = ptx::ld_acquire(flag);
      if ((old & 0xFF) < split) {
        old = ptx::atom_or_acq_rel(flag, 1 << (16 + piece));
        if ((old & 0xFF) < split) shares = 0;
      }
    }
    *shared_shares = shares;
  }
  ptx::bar_sync(1 + wg_id, 128);
  int left_before = 0;
  if (threadIdx.x % 128 == 0) left_before = ptx::atom_add_acq_rel(flag, 1 << 8) >> 8 & 0xFF;
  for (int share = 0; share < split; ++share)
    if (*shared_shares >> share & 1)
      add_share<Tile>(args, sums_of, split, share, rows, row, col, batch);
  if (threadIdx.x % 128 == 0 && left_before + 1 == split) *flag = 0;  // for next time
}

}  // namespace

// 29_any_shape: the one to use. Any M, N, K, layout, leading dimension, FP16 or BF16, alpha, beta.
// base: 28_wide_tile
// arch: 90a
// unit: wgmma
// New: tiles and a choice for each shape (tiles.h); operands K- or MN-major; few tiles are
//      split along K (epilogue.h); rows that TMA cannot take are padded first (pad.cu); gemm().
// Shapes: all; batches too.
#include "tiles.h"

#include "epilogue.h"
#include "multiply.h"
#include "pad.cu"

namespace {

constexpr int WGMMA_K = 16;
constexpr int BOX_BYTES = BOX * BLOCK_K * sizeof(half);  // 64 rows of 128 bytes, either major
constexpr int PACE = 4;        // k tiles between two looks at the others
constexpr int SLACK = 0;       // looks that a cluster may be ahead of the mean
constexpr int MAX_POLLS = 32;  // then it goes on: nothing but speed depends on the pace

template <class Tile>
struct SharedStorage {  // 1,024-byte aligned buffers first, as the swizzle needs
  // K-major [BLOCK_M][64], else [box][64][64]; of a box of EXTRA rows 16 bytes in 128 are used.
  half a[Tile::NUM_STAGES][Tile::ROWS_A * BLOCK_K];
  half b[Tile::NUM_STAGES][Tile::BLOCK_N * BLOCK_K];  // K-major [BLOCK_N][64], else [box][64][64]
  // [consumer][buffer][box][row][128 bytes]
  uint4 c[Tile::NUM_CONSUMERS][2][Tile::SLABS * Tile::PART_M * 8];
  uint64_t full_bar[Tile::NUM_STAGES];
  uint64_t empty_bar[Tile::NUM_STAGES];
  int shares[Tile::NUM_CONSUMERS][MAX_SPLIT / 16];

  __device__ void label() {
    for (int stage = 0; stage < Tile::NUM_STAGES; ++stage) {
      ptx::label(a[stage], sizeof(a[stage]), "A", stage);
      ptx::label(b[stage], sizeof(b[stage]), "B", stage);
      ptx::label(&full_bar[stage], sizeof(uint64_t), "full_bar", stage);
      ptx::label(&empty_bar[stage], sizeof(uint64_t), "empty_bar", stage);
    }
    ptx::label(c, sizeof(c), "C");
    ptx::label(shares, sizeof(shares), "shares");
  }
};

// Matrix descriptor of 64-element wide boxes with the 128-byte swizzle: groups of 8 rows are 1,024
// bytes apart, boxes 8,192 (which only an MN-major operand of more than 64 looks at).
__device__ uint64_t matrix_desc(const void* tile) {
  return uint64_t(ptx::smem_addr(tile) & 0x3FFFF) >> 4 | uint64_t(BOX_BYTES >> 4) << 16 |
         uint64_t(1024 >> 4) << 32 | uint64_t{1} << 62;
}

// The descriptor `bytes` further on in the same tile: only the start address differs.
__device__ uint64_t advance(uint64_t desc, int bytes) {
  return (desc & ~uint64_t{0xFFFFFFFF}) | (uint32_t(desc) + (bytes >> 4));
}
// Bytes from one k16 to the next: along a row of 64 k, or 16 rows of 64 m or n down.
__device__ constexpr int k16_bytes(ptx::Major major) {
  return major == ptx::Major::k ? WGMMA_K * sizeof(half) : WGMMA_K * BOX * sizeof(half);
}

// The `index`-th piece of work of a cluster: whole tiles first, then those that are split along K.
struct Work {
  int tile, piece, k_begin, k_tiles;
};
__device__ Work work_at(int index, int cta_k, const GemmArgs& args) {
  int tile = index, piece = cta_k;
  if (index >= args.whole) {
    const int tail = args.tiles - args.whole;
    piece = (index - args.whole) / args.tail, tile = index - piece * tail;
  } else if (args.cluster_k == 1) {
    return {tile, 0, 0, args.num_k_tiles};
  }
  const int begin = piece * args.share + min(piece, args.longer);
  return {tile, piece, begin, args.share + (piece < args.longer)};
}

// First row and column of this CTA's part of a tile, and its matrix. Columns of group_m clusters;
// every other group walks them backwards.
struct Origin {
  int m, n, batch;
};
__device__ Origin origin_of(int tile, int cta_m, int block_m, int block_n, const GemmArgs& args) {
  const int batch = args.batched ? tile / (args.tiles_m * args.tiles_n) : 0;
  const int in_matrix = tile - batch * args.tiles_m * args.tiles_n;
  const int group = in_matrix / args.group, group_m = group * args.group_m;
  const int in_group = in_matrix - group_m * args.tiles_n;
  const bool last = args.tiles_m - group_m < args.group_m;
  const int rows = last ? args.last_rows.by : args.group_m;
  const int column = last ? in_group / args.last_rows : in_group / args.rows;
  const int tile_m = group_m + in_group - column * rows;
  const int tile_n = group % 2 == 0 ? column : args.tiles_n - 1 - column;
  const int row = tile_m * args.cluster_m + cta_m;
  return {row * block_m - 8 * max(0, row - args.higher), tile_n * block_n, batch};
}

// The k tile of B from k on. The CTAs of a cluster load it together, each its half of n, or every
// other box.
template <class Tile, ptx::Major MAJOR_B>
__device__ void load_b(const GemmArgs& args, half* b, uint64_t* full_bar, int n, int k, int batch,
                       int cta_m) {
  const auto load = [&](int offset, int x, int y) {
    if (args.cluster_m == 1)
      ptx::tma_load_3d(&b[offset], &args.tmap_b, x, y, batch, full_bar);
    else
      ptx::tma_load_3d_multicast(&b[offset], &args.tmap_b, x, y, batch, full_bar, 0b11);
  };
  if constexpr (MAJOR_B == ptx::Major::k)
    load(cta_m * (Tile::BLOCK_N / 2) * BLOCK_K, k, n + cta_m * (Tile::BLOCK_N / 2));
  else
    for (int box = cta_m; box < Tile::BLOCK_N / BOX; box += args.cluster_m)
      load(box * BOX * BLOCK_K, n + box * BOX, k);
}

// Done: counts up to the end, and holds nobody back. The last one leaves zeros.
__device__ void leave_pace(const GemmArgs& args, uint32_t iter) {
  const int all = ceil_div(args.works, args.num_clusters) * args.num_k_tiles / PACE + 1;
  ptx::red_add_relaxed(&args.counters[0], all - int(iter) / PACE);
  if (ptx::atom_add_acq_rel(&args.counters[1], 1) == args.num_clusters - 1) {  // nobody looks
    ptx::red_add_relaxed(&args.counters[0], -all * args.num_clusters);
    ptx::red_add_relaxed(&args.counters[1], -args.num_clusters);
  }
}

template <class Tile, ptx::Major MAJOR_A, ptx::Major MAJOR_B>
__global__ void __launch_bounds__(Tile::NUM_THREADS, 1)
    gemm_kernel(const __grid_constant__ GemmArgs args) {
  using Storage = SharedStorage<Tile>;
  constexpr int NUM_STAGES = Tile::NUM_STAGES;
  const int height = Tile::TALL ? args.height : Tile::BLOCK_M, main_m = height - Tile::EXTRA;
  auto& smem = *static_cast<Storage*>(ptx::dynamic_smem());
  const int tid = threadIdx.x, cluster_m = args.cluster_m;
  const int wg_id = __shfl_sync(~0u, tid / 128, 0);  // known to be uniform: descriptors stay scalar
  const int cta_rank = ptx::cluster_ctarank();
  const int cta_m = args.cluster_k > 1 ? 0 : cta_rank;
  const int cta_k = Tile::SHARED ? cta_rank - cta_m : 0;
  const int first_work = int(blockIdx.x) / args.ctas;

  if (tid == Tile::NUM_CONSUMERS * 128) {
    ptx::prefetch_tensormap(&args.tmap_a);
    ptx::prefetch_tensormap(&args.tmap_b);
    if (args.boxes) ptx::prefetch_tensormap(&args.tmap_c);
  }
  if (tid == 0) {
    smem.label();
    for (int stage = 0; stage < NUM_STAGES; ++stage) {
      ptx::mbarrier_init(&smem.full_bar[stage], 1);
      ptx::mbarrier_init(&smem.empty_bar[stage], Tile::NUM_CONSUMERS * cluster_m);
    }
    ptx::fence_mbarrier_init();
  }
  if (cluster_m * args.cluster_k == 1)
    __syncthreads();
  else
    ptx::cluster_sync();  // no CTA sends before the other's barriers exist
  ptx::griddepcontrol_launch_dependents();  // the next launch may prepare, as this one does

  int stage = 0, phase = 0;  // of the ring, which never stops between tiles
  if (wg_id == Tile::NUM_CONSUMERS) {  // producer: one thread keeps the ring full
    if constexpr (Tile::GIVES) ptx::setmaxnreg_dec<40>();
    if (__shfl_sync(~0u, tid / 32, 0) == Tile::NUM_CONSUMERS * 4 && ptx::elect_one()) {
      uint32_t iter = 0;  // k tiles so far
      int seen = 0;       // what all clusters had counted when this one last looked
      const auto take = [&](int bytes) {  // the next stage, once all CTAs have read it
        ptx::mbarrier_wait(&smem.empty_bar[stage], phase ^ 1);
        ptx::mbarrier_arrive_expect_tx(&smem.full_bar[stage], bytes);
        const int taken = stage;
        if (++stage == NUM_STAGES) stage = 0, phase ^= 1;
        return taken;
      };
      for (int index = first_work; index < args.works; index += args.num_clusters) {
        const Work work = work_at(index, cta_k, args);
        const Origin at = origin_of(work.tile, cta_m, main_m, Tile::BLOCK_N, args);
        const int rows = height_at<Tile>(args, at.m);
        const CUtensorMap* tmap_a = rows < height ? &args.tmap_a_extra : &args.tmap_a;
        const int batch_a = args.batched_a ? at.batch : 0, batch_b = args.batched_b ? at.batch : 0;
        const int k_step = index / args.num_clusters % 2 ? -BLOCK_K : BLOCK_K;  // any order will do
        int k = (work.k_begin + (k_step < 0 ? work.k_tiles - 1 : 0)) * BLOCK_K;
        if (iter == 0) ptx::griddepcontrol_wait();  // from here on it touches global memory
        for (int i = work.k_tiles; i > 0; --i, ++iter, k += k_step) {
          const int into = take((rows + Tile::BLOCK_N) * BLOCK_K * int(sizeof(half)));
          uint64_t* full_bar = &smem.full_bar[into];
          if constexpr (MAJOR_A == ptx::Major::k)
            ptx::tma_load_3d(smem.a[into], tmap_a, k, at.m, batch_a, full_bar);
          else
#pragma unroll 1  // few registers
            for (int box = 0; box < Tile::MAIN_M / BOX; ++box)
              ptx::tma_load_3d(&smem.a[into][box * BOX * BLOCK_K], tmap_a,
                               at.m + box * BOX, k, batch_a, full_bar);
          if constexpr (Tile::EXTRA > 0)
            ptx::tma_load_3d(&smem.a[into][Tile::MAIN_M * BLOCK_K], &args.tmap_a_extra,
                             row_of<Tile>(args, at.m, Tile::MAIN_M), k, batch_a, full_bar);
          load_b<Tile, MAJOR_B>(args, smem.b[into], full_bar, at.n, k, batch_b, cta_m);
          if (args.pace && cta_rank == 0 && iter % PACE == PACE - 1) {
            ptx::red_add_relaxed(&args.counters[0], 1);
            const int counted = iter / PACE;  // by this cluster, when it last looked
            for (int j = 0; j < MAX_POLLS && seen < (counted - SLACK) * args.num_clusters; ++j)
              seen = ptx::ld_relaxed(&args.counters[0]);
            seen = ptx::ld_relaxed(&args.counters[0]);  // not needed before next time
          }
        }
        if (args.reads_boxes && index < args.whole) {  // its old C, as if it were more k tiles
          if (args.type_c == Type::f32)
            load_old_c<Tile, true>(args, smem, at.m, at.n, at.batch, take);
          else
            load_old_c<Tile, false>(args, smem, at.m, at.n, at.batch, take);
        }
      }
      if (args.pace && cta_rank == 0) leave_pace(args, iter);
    }
    __syncwarp();  // the barriers at the end take whole warps
    if (args.cluster_k > 1) ptx::cluster_sync();  // that of add_up_in_cluster
  } else {  // consumer warpgroups
    if constexpr (Tile::GIVES) ptx::setmaxnreg_inc<232>();
    float acc[Tile::SLABS][Tile::REGS] = {};  // never read; ptxas 12 wants a value (C7515)
    const auto release = [&](int stage) {  // in all CTAs (B came from all)
      if (tid % 128 < cluster_m)
        ptx::mbarrier_arrive_remote(&smem.empty_bar[stage], cta_k + tid % 128);
    };
    int before = 0;  // the stage that the group before reads
    // D = left * right: A * B, or B^T * A^T. The type only decides which instruction it is.
    const auto multiply_tile = [&](auto type, auto n, int k_tiles) {
      constexpr auto LEFT = Tile::TRANSPOSED ? MAJOR_B : MAJOR_A;
      constexpr auto RIGHT = Tile::TRANSPOSED ? MAJOR_A : MAJOR_B;
      for (int i = 0; i < k_tiles; ++i) {
        ptx::mbarrier_wait(&smem.full_bar[stage], phase);
        const half *a = smem.a[stage], *b = smem.b[stage];
        const uint64_t left = matrix_desc((Tile::TRANSPOSED ? b : a) +
                                          wg_id * (Tile::SLABS * BOX * BLOCK_K));
        const uint64_t right = matrix_desc(Tile::TRANSPOSED ? a : b);
        ptx::wgmma_fence();
#pragma unroll
        for (int k16 = 0; k16 < BLOCK_K / WGMMA_K; ++k16)
#pragma unroll
          for (int slab = 0; slab < Tile::SLABS; ++slab)
            multiply<decltype(type)::value, LEFT, RIGHT, decltype(n)::value>(
                acc[slab], advance(left, slab * BOX_BYTES + k16 * k16_bytes(LEFT)),
                advance(right, k16 * k16_bytes(RIGHT)), i > 0 || k16 > 0);
        ptx::wgmma_commit_group();
        ptx::wgmma_wait_group<1>(acc);  // the group before has read its stage: release that
        if (i > 0) release(before);
        before = stage;
        if (++stage == NUM_STAGES) stage = 0, phase ^= 1;
      }
    };
    const auto multiply_rows = [&](auto type, int rows, int k_tiles) {  // wgmma's n is a constant
      if constexpr (Tile::TALL)
        Tile::with_height(rows, [&](auto n) { multiply_tile(type, n, k_tiles); });
      else
        multiply_tile(type, std::integral_constant<int, Tile::REGS * 2>(), k_tiles);
    };
    ptx::griddepcontrol_wait();
    for (int index = first_work; index < args.works; index += args.num_clusters) {
      const Work now = work_at(index, cta_k, args);
      const int m = origin_of(now.tile, cta_m, main_m, Tile::BLOCK_N, args).m;
      const int rows = height_at<Tile>(args, m);
      if (args.type_ab == Type::f16)
        multiply_rows(std::integral_constant<Type, Type::f16>(), rows, now.k_tiles);
      else
        multiply_rows(std::integral_constant<Type, Type::bf16>(), rows, now.k_tiles);
      // Again: kept over the main loop it would be spilled. The shuffle hides that it is the same.
      const Work work = work_at(__shfl_sync(~0u, index, 0), cta_k, args);
      const Origin at = origin_of(work.tile, cta_m, main_m, Tile::BLOCK_N, args);
      const int row = at.m + (Tile::TRANSPOSED ? 0 : wg_id * Tile::WG_M);
      const int col = at.n + (Tile::TRANSPOSED ? wg_id * Tile::WG_N : 0);
      // The first part of C needs its buffer: the tile before has left it.
      if (tid % 128 == 0) ptx::tma_store_wait_group_read<0>();
      ptx::bar_sync(1 + wg_id, 128);
      ptx::wgmma_wait_group<0>(acc);
      release(before);

      // Not known to be uniform here: the main loop's descriptors need the scalar registers.
      const int wg = __shfl_sync(~0u, tid, tid % 32) / 128;
      if (Tile::SHARED && args.cluster_k > 1) {
        ptx::bar_sync(3, Tile::NUM_CONSUMERS * 128);  // the ring is free: no more will be loaded
        add_up_in_cluster<Tile>(acc, args, smem.a, smem.c[wg], work.piece, wg, row, col, at.batch);
        break;
      }
      if (work.tile >= args.whole) {
        add_up<Tile>(acc, args, smem.shares[wg], smem.c[wg], work.tile - args.whole, work.piece,
                     cta_m * Tile::NUM_CONSUMERS + wg, wg, row, col, at.batch);
        __syncwarp();  // what follows may count on whole warps: descriptors stay scalar
        continue;
      }
      const auto take = [&] {  // a stage of the old C
        ptx::mbarrier_wait(&smem.full_bar[stage], phase);
        return reinterpret_cast<const uint4*>(smem.b[stage]);
      };
      const auto give = [&] {
        release(stage);
        if (++stage == NUM_STAGES) stage = 0, phase ^= 1;
      };
      store<Tile>(acc, args, smem.c[wg_id], wg_id, row, col, at.batch, take, give);
    }
    if (tid % 128 == 0)
      ptx::tma_store_wait_group_read<0>();  // shared memory must outlive the stores that read it
  }
  if (args.cluster_m * args.cluster_k > 1) {  // and whatever other CTAs send or read here
    ptx::cluster_arrive_relaxed();
    ptx::cluster_wait();
  }
}

}  // namespace

#include "launch.h"

REGISTER_STEP(gemm_why_not, prepare, gemm_candidates);

// 29, host side: from parameters to launches. Included by kernel.cu, after the kernel.
#pragma once
#include "tuned.h"

namespace {

int64_t rounded_up(int64_t n, int64_t unit) { return ceil_div(n, unit) * unit; }
bool aligned(const void* p, int64_t bytes) { return reinterpret_cast<uintptr_t>(p) % bytes == 0; }

// A or B as it lies in memory: `rows` of `cols` contiguous elements, and where TMA reads it.
struct Operand {
  const void* data;
  int64_t rows, cols, ld, stride, batch;
  bool pad;          // to the workspace first, at `offset`
  int64_t tma_ld, tma_stride;
  size_t offset = 0;

  Operand(const void* data, int64_t rows, int64_t cols, int64_t ld, int64_t stride, int64_t batch)
      : data(data), rows(rows), cols(cols), ld(ld), stride(stride), batch(stride ? batch : 1) {
    const int64_t one_row = rows == 1 ? rounded_up(cols, 8) : ld;  // no second row: any distance
    const int64_t one_matrix = this->batch == 1 ? rows * one_row : stride;
    pad = !aligned(data, 16) || one_row % 8 || one_matrix % 8;
    tma_ld = pad ? rounded_up(cols, 8) : one_row;
    tma_stride = pad ? rows * tma_ld : one_matrix;
  }
  size_t bytes() const { return pad ? size_t(batch * rows * tma_ld * 2) : 0; }
  CUtensorMap map(const void* base, int box_rows, Type type, int box_cols = BOX,
                  int l2_bytes = 128) const {
    return gpu::tensor_map(base, {cols, rows, batch}, {tma_ld, tma_stride}, {box_cols, box_rows, 1},
                           gpu::Swizzle::b128, type, l2_bytes);
  }
};
Operand operand_a(const GemmParams& p) {
  const bool row = p.layout_a == Layout::row_major;
  return {p.A, row ? p.M : p.K, row ? p.K : p.M, p.lda, p.batch > 1 ? p.stride_a : 0, p.batch};
}
Operand operand_b(const GemmParams& p) {
  const bool row = p.layout_b == Layout::row_major;
  return {p.B, row ? p.K : p.N, row ? p.N : p.K, p.ldb, p.batch > 1 ? p.stride_b : 0, p.batch};
}

Config config_of(const GemmParams& p) {
  Config config;
  const char* forced = std::getenv("LADDER_GEMM_CONFIG");
  if (!(forced && read_config(forced, config)) && !read_config(tuned_config(p), config))
    return model_choice(p, gpu::num_sms());
  if (tall(TILES[config.tile]) && p.layout_a != Layout::row_major)
    config.cluster_m = 1, config.height = 200;
  return config;
}

using Kernel = void (*)(const GemmArgs);
struct KernelFacts {
  Kernel kernel;
  int threads, block_m, part_m;
  size_t smem;
};
template <class Tile, ptx::Major A, ptx::Major B>
KernelFacts facts_of() {
  return {gemm_kernel<Tile, A, B>, Tile::NUM_THREADS, Tile::BLOCK_M, Tile::PART_M,
          sizeof(SharedStorage<Tile>)};
}
template <class Tile, class TileForMn = Tile>
KernelFacts kernel_of(const GemmParams& p) {
  using ptx::Major;
  const bool k_major_b = p.layout_b == Layout::col_major;
  if (p.layout_a == Layout::col_major)
    return k_major_b ? facts_of<TileForMn, Major::mn, Major::k>()
                     : facts_of<TileForMn, Major::mn, Major::mn>();
  return k_major_b ? facts_of<Tile, Major::k, Major::k>()
                   : facts_of<Tile, Major::k, Major::mn>();
}
KernelFacts kernel_of(const GemmParams& p, const Config& config) {
  switch (config.tile) {
    case 0: return kernel_of<Tile128x256>(p);
    case 1: return kernel_of<Tile128x128>(p);
    case 3: return kernel_of<Tile64x256>(p);
    case 4: return kernel_of<Tile64x128>(p);
    default: return kernel_of<Tile200x256, Tile192p8x256>(p);
  }
}

// All that a call needs, but for the pointers into the workspace.
struct Plan {
  GemmParams p;
  Config config;
  Cut cut;
  Operand a, b;
  size_t partials = 0, bytes = 0;  // offset of the partial sums; size of the workspace

  explicit Plan(const GemmParams& p) : p(p), a(operand_a(p)), b(operand_b(p)) {
    if (p.alpha == 0.0f) return;
    config = config_of(p);
    cut = cut_of(p, config, gpu::num_sms());
    const TileFacts& tile = TILES[config.tile];
    const auto take = [&](size_t n) {
      if (bytes == 0) bytes = NUM_COUNTERS * sizeof(int);
      const size_t at = bytes;
      bytes += size_t(rounded_up(int64_t(n), 256));
      return at;
    };
    if (config.pace) take(0);
    if (cut.split > 1)
      partials = take(size_t(cut.tiles - cut.whole) * cut.split * config.cluster_m *
                      kernel_of(p, config).block_m * tile.block_n * sizeof(float));
    if (a.pad) a.offset = take(a.bytes());
    if (b.pad) b.offset = take(b.bytes());
  }

  GemmArgs args(char* workspace) const {
    GemmArgs args{};
    const int64_t stride_c = p.batch > 1 ? p.stride_c : 0;
    args.C = p.C, args.ldc = p.ldc, args.stride_c = stride_c;
    args.M = int(p.M), args.N = int(p.N), args.num_k_tiles = int(ceil_div(p.K, BLOCK_K));
    args.alpha = p.alpha, args.beta = p.beta;
    args.type_ab = p.type_ab, args.type_c = p.type_c;
    if (p.alpha == 0.0f) return args;
    const TileFacts& tile = TILES[config.tile];
    const int cluster_m = config.cluster_m;
    const bool k_major_a = p.layout_a == Layout::row_major;
    const bool k_major_b = p.layout_b == Layout::col_major;
    const void* a_data = a.pad ? workspace + a.offset : a.data;
    args.tmap_a = a.map(a_data, k_major_a ? cut.height : BLOCK_K, p.type_ab);
    args.tmap_a_extra = k_major_a ? a.map(a_data, std::max(8, cut.height - 8), p.type_ab)
                                  : a.map(a_data, BLOCK_K, p.type_ab, 8);
    args.tmap_b = b.map(b.pad ? workspace + b.offset : b.data,
                        k_major_b ? tile.block_n / cluster_m : BLOCK_K, p.type_ab, BOX,
                        streams_ahead(p, config, cut, gpu::num_sms()) ? 256 : 128);
    args.boxes = stores_boxes(p);
    args.reads_boxes = args.boxes && p.beta != 0.0f && cut.cluster_k == 1;
    args.plain = p.type_c != Type::f32 && p.beta == 0.0f;
    args.pairs = aligned(p.C, 4) && p.ldc % 2 == 0 && stride_c % 2 == 0 && p.N % 2 == 0;
    args.height = cut.height;
    const auto map_c = [&](int rows) {
      return gpu::tensor_map(p.C, {p.N, p.M, p.batch}, {p.ldc, stride_c ? stride_c : p.M * p.ldc},
                             {p.type_c == Type::f32 ? BOX / 2 : BOX, rows, 1}, gpu::Swizzle::b128,
                             p.type_c);
    };
    if (args.boxes) args.tmap_c = map_c(kernel_of(p, config).part_m), args.tmap_c_few = map_c(8);
    args.pace = config.pace, args.batched = p.batch > 1;
    args.batched_a = a.batch > 1, args.batched_b = b.batch > 1;
    args.cluster_m = cluster_m, args.group_m = config.group_m;
    args.tiles_m = int(cut.tiles_m), args.tiles_n = int(cut.tiles_n), args.tiles = int(cut.tiles);
    args.higher = int(cut.higher), args.higher_m = args.higher * cut.height;
    args.whole = int(cut.whole), args.split = cut.split, args.cluster_k = cut.cluster_k;
    const int pieces = args.pieces = std::max(cut.split, cut.cluster_k);
    args.share = args.num_k_tiles / pieces, args.longer = args.num_k_tiles % pieces;
    args.one_piece = unsigned(ceil_div(int64_t{1} << 32, int64_t(pieces)));
    args.works = int(cut.works), args.num_clusters =
        int(cut.cluster_k > 1 ? cut.works : std::min<int64_t>(cut.works, cut.slots));
    args.ctas = Divisor(cluster_m * args.cluster_k), args.tail = Divisor(cut.tiles - cut.whole);
    args.group = Divisor(int64_t(args.group_m) * args.tiles_n);
    args.rows = Divisor(args.group_m), args.last_rows = Divisor(args.tiles_m % args.group_m);
    args.partials = reinterpret_cast<float4*>(workspace + partials);
    args.counters = reinterpret_cast<int*>(workspace);
    return args;
  }

  static void pad(const Operand& from, char* workspace, gpu::Stream stream) {
    gpu::LaunchConfig launch;
    const int64_t vectors = from.batch * from.rows * ceil_div(from.cols, 8);
    launch.block = dim3(PAD_THREADS);
    launch.grid = dim3(unsigned(
        std::min<int64_t>(ceil_div(vectors, PAD_THREADS), 8 * gpu::num_sms())));
    gpu::launch(stream, launch, pad_kernel, static_cast<const uint16_t*>(from.data),
                reinterpret_cast<uint4*>(workspace + from.offset), from.rows, int(from.cols),
                from.ld, from.stride, from.batch);
  }

  void run(const GemmArgs& args, char* workspace, gpu::Stream stream) const {
    gpu::LaunchConfig launch;
    if (p.alpha == 0.0f) {
      launch.block = dim3(PAD_THREADS);
      launch.grid = dim3(unsigned(std::min<int64_t>(ceil_div(p.batch * p.M * p.N, PAD_THREADS),
                                                    8 * gpu::num_sms())));
      return gpu::launch(stream, launch, scale_kernel, args, p.batch);
    }
    if (a.pad) pad(a, workspace, stream);
    if (b.pad) pad(b, workspace, stream);
    const KernelFacts facts = kernel_of(p, config);
    launch.block = dim3(unsigned(facts.threads));
    const int ctas = config.cluster_m * cut.cluster_k;
    launch.cluster = dim3(unsigned(ctas));
    launch.grid = dim3(unsigned(args.num_clusters * ctas));
    launch.dynamic_smem = facts.smem;
    launch.early = !starts_late(p, config, cut, gpu::num_sms());
    gpu::allow_dynamic_smem(facts.kernel, facts.smem);
    gpu::launch(stream, launch, facts.kernel, args);
  }
};

}  // namespace

std::string gemm_why_not(const GemmParams& p) {
  const int64_t limit = (int64_t{1} << 31) - 1024;
  if (p.M < 1 || p.N < 1 || p.K < 1 || p.batch < 1) return "M, N, K and batch must be at least 1";
  if (p.M > limit || p.N > limit || p.K > limit || p.batch > limit)
    return "M, N, K and batch must be below 2^31 - 1024";
  if (p.type_ab == Type::f32) return "takes FP16 and BF16 operands, not FP32";
  if (p.bias || p.activation != Activation::none) return "takes no bias and no activation";
  const auto least = [](Layout l, int64_t rows, int64_t cols) {
    return l == Layout::row_major ? cols : rows;
  };
  const auto too_small = [](const char* name, int64_t least_ld) {
    return std::string(name) + " must be at least " + std::to_string(least_ld);
  };
  if (const int64_t n = least(p.layout_a, p.M, p.K); p.lda < n) return too_small("lda", n);
  if (const int64_t n = least(p.layout_b, p.K, p.N); p.ldb < n) return too_small("ldb", n);
  if (p.ldc < p.N) return too_small("ldc", p.N);
  if (p.stride_a < 0 || p.stride_b < 0) return "strides must not be negative";
  if (const int64_t n = (p.M - 1) * p.ldc + p.N; p.batch > 1 && p.stride_c < n)
    return too_small("stride_c", n);
  Config config;
  const char* forced = std::getenv("LADDER_GEMM_CONFIG");
  if (forced && !read_config(forced, config))
    return std::string("LADDER_GEMM_CONFIG=") + forced + " is no configuration";
  if (ceil_div(p.M, 128) * ceil_div(p.N, 128) > limit / p.batch / 16)
    return "more than 2^27 tiles";
  return "";
}

size_t gemm_workspace_bytes(const GemmParams& p) {
  return gemm_why_not(p).empty() ? Plan(p).bytes : 0;
}

gpu::Status gemm(const GemmParams& p, void* workspace, size_t workspace_bytes, gpu::Stream stream) {
  try {
    if (!gemm_why_not(p).empty()) return cudaErrorInvalidValue;
    const Plan plan(p);
    auto* bytes = static_cast<char*>(workspace);
    if (plan.bytes && (plan.bytes > workspace_bytes || !workspace || !aligned(workspace, 256)))
      return cudaErrorInvalidValue;
    plan.run(plan.args(bytes), bytes, stream);
    return cudaSuccess;
  } catch (const gpu::Error& error) {
    return error.status;
  }
}

// Every sum is made in one order, whoever makes it.
bool gemm_is_reproducible(const GemmParams&) { return true; }

std::string gemm_config(const GemmParams& p) { return text_of(config_of(p)); }

std::vector<std::string> gemm_candidates(const GemmParams& p) {
  const int sms = gpu::num_sms();
  std::vector<Config> all = candidates_of(p, sms);
  std::stable_sort(all.begin(), all.end(), [&](const Config& x, const Config& y) {
    return estimate(p, x, sms) < estimate(p, y, sms);
  });
  std::vector<std::string> texts = {gemm_config(p)};
  for (const Config& c : all)
    if (texts.size() < 16 && text_of(c) != texts[0]) texts.push_back(text_of(c));
  return texts;
}

namespace {

// The step: the same call with a workspace of its own, tensor maps made once.
Launch prepare(const Problem& p) {
  const Plan plan(p);
  const auto workspace = std::make_shared<gpu::Buffer>(plan.bytes, "workspace");
  auto* bytes = workspace->get<char>();
  gpu::fill(bytes, 0, std::min(plan.bytes, NUM_COUNTERS * sizeof(int)));
  const GemmArgs args = plan.args(bytes);
  return [=](gpu::Stream stream) { plan.run(args, workspace->get<char>(), stream); };
}

}  // namespace

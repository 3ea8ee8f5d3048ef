// 29 sm80, host side: rows that cp.async can take, and which tile a problem gets. Included by
// variant_sm80.cu, after the kernel.
#pragma once
#include <cstdlib>
#include <vector>

// Copies the rows of a batch of matrices to rows that begin at multiples of 16 bytes. A warp takes
// 256 elements of a row at a time, two bytes a lane: what it reads may begin anywhere.
__global__ void pad_kernel(const half* in, int64_t ld, int64_t stride, half* out, int64_t padded_ld,
                           int64_t rows, int64_t cols, int64_t batch) {
  const int64_t warps = int64_t(gridDim.x) * blockDim.x / 32, parts = ceil_div(cols, 256);
  int64_t piece = (int64_t(blockIdx.x) * blockDim.x + threadIdx.x) / 32;
  for (; piece < rows * batch * parts; piece += warps) {
    const int64_t row = piece / parts, col = piece % parts * 256 + threadIdx.x % 32;
    const half* from = in + row / rows * stride + row % rows * ld + col;
    half v[8];
#pragma unroll
    for (int i = 0; i < 8; ++i)  // all eight are on the way before the first is stored
      if (col + i * 32 < cols) v[i] = from[i * 32];
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (col + i * 32 < cols) out[row * padded_ld + col + i * 32] = v[i];
  }
}

bool by_chunks(const void* base, int64_t ld, int64_t stride) {  // do all rows start at 16 bytes?
  return reinterpret_cast<uintptr_t>(base) % 16 == 0 && ld % 8 == 0 && stride % 8 == 0;
}

// What brings `rows` x `cols` elements of 16 bits into a form that the kernel takes: nothing, or
// the pad kernel, whose result takes the matrix's place in base, ld and stride.
Launch pad(const half*& base, int64_t& ld, int64_t& stride, int64_t rows, int64_t cols,
           int64_t batch, const char* name) {
  if (by_chunks(base, ld, stride)) return [](gpu::Stream) {};
  const int64_t padded_ld = ceil_div(cols, 8) * 8;
  if (stride == 0) batch = 1;  // shared by all
  const auto padded = std::make_shared<gpu::Buffer>(batch * rows * padded_ld * sizeof(half), name);
  gpu::LaunchConfig config;
  const int64_t pieces = batch * rows * ceil_div(cols, 256);  // a warp each
  config.grid = dim3(unsigned(std::min<int64_t>(ceil_div(pieces, 8), gpu::num_sms() * 8)));
  config.block = dim3(8 * 32);
  const half* in = base;
  const int64_t in_ld = ld, in_stride = stride;
  base = padded->get<half>(), ld = padded_ld, stride = stride ? rows * padded_ld : 0;
  return [=](gpu::Stream stream) {
    gpu::launch(stream, config, pad_kernel, in, in_ld, in_stride, padded->get<half>(), padded_ld,
                rows, cols, batch);
  };
}

// What `prepare` must know of a tile.
struct Choice {
  const char* name;
  double cost;  // of an element of C, where the wide tile's is 1: smaller ones reuse less (H200)
  int block_m, block_n, threads;
  size_t smem;
  void (*kernel)(Params);
};
template <class Tile, Type TYPE>
Choice choice(const char* name, double cost, const Problem& p) {
  static constexpr decltype(Choice::kernel) kernels[2][2] = {
      {gemm_kernel<Tile, ROW, ROW, TYPE>, gemm_kernel<Tile, ROW, COL, TYPE>},
      {gemm_kernel<Tile, COL, ROW, TYPE>, gemm_kernel<Tile, COL, COL, TYPE>}};
  return {name, cost, Tile::BLOCK_M, Tile::BLOCK_N, Tile::NUM_THREADS, sizeof(SharedStorage<Tile>),
          kernels[p.layout_a == COL][p.layout_b == COL]};
}
template <class Tile>
Choice choice(const char* name, double cost, const Problem& p) {
  return p.type_ab == Type::f16 ? choice<Tile, Type::f16>(name, cost, p)
                                : choice<Tile, Type::bf16>(name, cost, p);
}

int64_t num_tiles(const Problem& p, const Choice& c) {
  return ceil_div(p.M, c.block_m) * ceil_div(p.N, c.block_n) * p.batch;
}

// The tiles that fit this GPU; first the one with which the SM that has most to do has least to do.
std::vector<Choice> choices(const Problem& p) {
  std::vector<Choice> all = {choice<Wide>("128x256", 1.0, p), choice<Square>("128x128", 1.1, p),
                             choice<Small>("64x64", 1.6, p)};
  if (gpu::max_smem_per_block() < int(all[0].smem)) all.erase(all.begin());
  const auto time = [&](const Choice& c) {
    return double(ceil_div(num_tiles(p, c), gpu::num_sms())) * c.block_m * c.block_n * c.cost;
  };
  std::stable_sort(all.begin(), all.end(),
                   [&](const Choice& a, const Choice& b) { return time(a) < time(b); });
  return all;
}

const Choice* find(const std::vector<Choice>& all, const std::string& name) {
  for (const Choice& c : all)
    if (c.name == name) return &c;
  return nullptr;
}

const char* forced_tile() { return std::getenv("LADDER_GEMM_CONFIG"); }  // as for 29; or null

Choice choose(const Problem& p) {
  const std::vector<Choice> all = choices(p);
  const Choice* best = find(all, forced_tile() ? forced_tile() : tuned_config(p));
  return best ? *best : all[0];
}

std::vector<std::string> candidates(const Problem& p) {
  std::vector<std::string> names;
  for (const Choice& c : choices(p)) names.push_back(c.name);
  return names;
}

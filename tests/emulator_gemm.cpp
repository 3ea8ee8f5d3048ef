// step: 29_any_shape
// gemm() as an engineer calls it: what it refuses, what it leaves, each configuration forced.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "tests/catch.h"
#include "steps/29_any_shape/tiles.h"
#include "tests/gemm_support.h"

namespace {

constexpr Layout ROW = Layout::row_major, COL = Layout::col_major;

/// Runs it on the emulated device: right every time, same bits, no finding, counters left at 0.
void check(GemmCase& problem, int runs) {
  emu::set_quiet(true);
  emu::clear_reports();
  Workspace workspace(gemm_workspace_bytes(problem.p));
  std::vector<float> first;
  for (int run = 0; run < runs; ++run) {
    problem.clear();
    REQUIRE(gemm(problem.p, workspace.get(), workspace.bytes(), 0) == cudaSuccess);
    CHECK(problem.wrong() == 0);
    if (run == 0) first = problem.result();
  }
  const std::vector<float> second = problem.result();
  CHECK(std::memcmp(first.data(), second.data(), first.size() * 4) == 0);
  for (const std::string& text : emu::report_texts()) CHECK(text == "");
  std::vector<int> counters(std::min<size_t>(workspace.bytes() / 4, 16 * 1024));
  gpu::copy_to_host(counters.data(), workspace.get(), counters.size() * 4);
  CHECK(std::count(counters.begin(), counters.end(), 0) == std::ptrdiff_t(counters.size()));
}

}  // namespace

TEST_CASE("gemm: every configuration that can be forced") {
  int turn = 0;  // each layout and type with each configuration, sizes by turns
  for (const char* config :
       {"128x256/c1x1/s1/g8/p0", "128x256/c2x1/s1/g2/p1", "128x256/c2x1/s3/g1/p0",
        "200x256/c1x1/s1/g2/p0", "200x256/c1x1/s3/g12/p0", "200x256/c1x1/s1/g12/p1",
        "64x256/c1x1/s1/g2/p1", "64x256/c1x3/s1/g2/p0", "64x256/c1x1/s4/g2/p0",
        "128x128/c1x1/s16/g8/p0", "128x128/c2x1/s1/g2/p1",
        "128x128/c2x1/s5/g8/p0", "128x128/c1x4/s1/g8/p0", "128x256/c1x3/s1/g8/p0",
        "64x128/c1x1/s1/g8/p0", "64x128/c2x1/s1/g2/p1", "64x128/c2x1/s3/g8/p0",
        "64x128/c1x5/s1/g8/p0"}) {
    INFO(config);
    const Forced forced(config);
    for (Layout a : {ROW, COL})
      for (Layout b : {ROW, COL})
        for (Type type : {Type::f16, Type::bf16}) {
          GemmCase problem(++turn % 9 % 2 ? gemm_params(264, 392, 328, a, b, type)
                                          : gemm_params(131, 67, 517, a, b, type, 1));
          CHECK(gemm_config(problem.p) == config);
          check(problem, 1);
        }
    GemmParams many = gemm_params(100, 200, 136);
    many.batch = 3;
    GemmCase batch(many);
    check(batch, 2);
  }
}

// 200x256 with M cut into so many rows of tiles that they have every height, the last one full or
// not, rows 8 lower from any one on, one by one and in pairs of CTAs.
TEST_CASE("gemm: tiles of any height") {
  int turn = 0;
  for (int height = 144; height <= 200; height += 8)
    for (int cluster_m = 1; cluster_m <= 2; ++cluster_m)
      for (int short_of : {0, 3, 17}) {  // rows that M is short of `rows` tiles of that height
        ++turn;
        const int rows = cluster_m * (2 + turn % 2), M = height * rows - short_of;
        const std::string config = std::to_string(std::max(144, ceil_div(M, rows))) + "x256/c" +
                                   std::to_string(cluster_m) +
                                   (turn % 5 ? "x1/s1/g2/p0" : "x1/s3/g2/p1");
        INFO(config << " " << height << " " << short_of);
        const Forced forced(config.c_str());
        GemmCase problem(gemm_params(M, 250 + turn % 3 * 256 + turn % 2, 64 * (1 + turn % 4) - 8,
                                     ROW, turn % 4 < 2 ? ROW : COL,
                                     turn % 2 ? Type::f16 : Type::bf16));
        CHECK(gemm_config(problem.p) == config);
        Config named;
        CHECK(read_config(config, named));
        const Cut cut = cut_of(problem.p, named, gpu::num_sms());
        CHECK(cut.height == height);
        CHECK(cut.tiles_m * cluster_m == rows);
        CHECK(rows - cut.higher == (height > 144 ? short_of / 8 : 0));
        check(problem, 1);
      }
}

// More pieces than a flag has bits for, shares of less than a line, tiles that are partly empty.
TEST_CASE("gemm: one tile in up to 128 pieces") {
  for (const char* config : {"64x128/c1x1/s128/g8/p0", "128x128/c1x1/s33/g8/p0",
                             "128x256/c2x1/s17/g8/p0", "64x256/c1x1/s100/g8/p0"})
    for (int rows : {1, 40, 64}) {
      INFO(config << " " << rows);
      const Forced forced(config);
      GemmCase problem(gemm_params(rows, 72, 128 * 64 + 8, ROW, COL));
      check(problem, 2);
    }
}

TEST_CASE("gemm: what it refuses, it does not begin") {
  GemmCase odd(gemm_params(40, 24, 19));  // rows of A are 38 bytes: needs a workspace
  const size_t bytes = gemm_workspace_bytes(odd.p);
  REQUIRE(bytes > 0);
  Workspace workspace(bytes + 256);
  const auto refused = [&](GemmParams p, const char* why) {
    CHECK(gemm_why_not(p).find(why) != std::string::npos);
    CHECK(gemm(p, workspace.get(), workspace.bytes(), 0) == cudaErrorInvalidValue);
    CHECK(gemm_workspace_bytes(p) == 0);
  };
  CHECK(gemm(odd.p, workspace.get(), bytes - 1, 0) == cudaErrorInvalidValue);
  CHECK(gemm(odd.p, workspace.get<char>() + 16, bytes, 0) == cudaErrorInvalidValue);
  CHECK(gemm(odd.p, nullptr, bytes, 0) == cudaErrorInvalidValue);
  GemmParams p = odd.p;
  refused((p.lda = 18, p), "lda must be at least 19");
  p = odd.p, refused((p.layout_b = COL, p.ldb = 18, p), "ldb must be at least 19");
  p = odd.p, refused((p.ldc = 23, p), "ldc must be at least 24");
  p = odd.p, refused((p.M = 0, p), "at least 1");
  p = odd.p, refused((p.bias = p.A, p), "no bias");
  p = odd.p, refused((p.type_ab = Type::f32, p), "not FP32");
  p = odd.p, refused((p.batch = 2, p.stride_c = 900, p), "stride_c must be at least");
  {
    const Forced forced("128x64/c1x1/s1/g8/p0");
    refused(odd.p, "LADDER_GEMM_CONFIG=128x64/c1x1/s1/g8/p0 is no configuration");
  }
  const std::vector<float> c = odd.result();
  CHECK(std::count_if(c.begin(), c.end(), [](float x) { return x == x; }) == 0);  // as it was
  CHECK(gemm(odd.p, workspace.get(), bytes, 0) == cudaSuccess);
  CHECK(odd.wrong() == 0);
  CHECK(gemm_is_reproducible(odd.p));
}

TEST_CASE("gemm: alpha = 0 reads no operand, beta = 0 no C") {
  GemmCase problem(gemm_params(70, 90, 64));
  for (uint16_t& x : problem.a) x = nan_of(Type::f16);
  problem.upload();
  problem.p.alpha = 0;
  std::fill(problem.want.begin(), problem.want.end(), 0.0f);
  REQUIRE(gemm(problem.p, nullptr, 0, 0) == cudaSuccess);
  CHECK(problem.wrong() == 0);
  const std::vector<float> old(problem.want.size(), 3.0f);
  gpu::copy_to_device(problem.C.get(), old.data(), problem.C.bytes());
  problem.p.beta = -2;
  std::fill(problem.want.begin(), problem.want.end(), -6.0f);
  REQUIRE(gemm(problem.p, nullptr, 0, 0) == cudaSuccess);
  CHECK(problem.wrong() == 0);
}

TEST_CASE("gemm: Inf and NaN in one element of A reach its row and nothing else") {
  for (uint16_t special : {inf_of(Type::f16), nan_of(Type::f16)})
    for (const char* config : {"128x256/c2x1/s1/g8/p0", "128x128/c1x1/s4/g8/p0"}) {
      const Forced forced(config);
      GemmCase problem(gemm_params(150, 70, 261));
      problem.a[size_t(problem.at_a(0, 77, 260))] = special;
      problem.upload();
      Workspace workspace(gemm_workspace_bytes(problem.p));
      REQUIRE(gemm(problem.p, workspace.get(), workspace.bytes(), 0) == cudaSuccess);
      const std::vector<float> c = problem.result();
      int finite_in_row = 0, wrong_outside = 0;
      for (int64_t i = 0; i < 150 * 70; ++i)
        if (i / 70 == 77)
          finite_in_row += std::isfinite(c[size_t(i)]);
        else
          wrong_outside += !(c[size_t(i)] == problem.want[size_t(i)]);
      CHECK(finite_in_row == 0);
      CHECK(wrong_outside == 0);
    }
}

// What was the fastest there of all that were timed, or within 3 % of it.
TEST_CASE("gemm: what the model takes on an H200") {
  const struct { int64_t M, N, K, batch; Layout b; const char* config; } shapes[] = {
      {512, 512, 512, 1, ROW, "64x128/c2x1/s1/g16/p0"},
      {1000, 1000, 1000, 1, ROW, "64x128/c2x1/s1/g16/p0"},
      {4096, 4096, 4096, 1, ROW, "171x256/c2x1/s1/g4/p0"},
      {4096, 2112, 7168, 1, COL, "147x256/c2x1/s1/g4/p0"},
      {8192, 8192, 8192, 1, ROW, "200x256/c1x1/s1/g11/p1"},
      {16, 4096, 4096, 1, ROW, "64x256/c1x6/s1/g38/p0"},
      {64, 7168, 2048, 1, ROW, "64x128/c1x1/s1/g32/p0"},
      {64, 7168, 16384, 1, COL, "64x256/c1x4/s1/g38/p0"},
      {64, 4096, 4096, 1, COL, "64x128/c1x2/s1/g32/p0"},
      {128, 128, 65536, 1, ROW, "64x128/c2x1/s40/g16/p0"},
      {128, 2112, 7168, 1, COL, "64x128/c2x1/s3/g16/p0"},
      {128, 4096, 7168, 1, ROW, "64x128/c2x1/s2/g16/p0"},
      {128, 5120, 5120, 1, ROW, "64x128/c2x1/s1/g16/p0"},
      {512, 512, 16384, 1, ROW, "128x128/c1x1/s8/g16/p0"},
      {1024, 1024, 8192, 1, ROW, "128x128/c1x1/s2/g16/p0"},
      {32, 14336, 4096, 1, COL, "64x128/c1x1/s1/g32/p0"},
      {2048, 2048, 128, 32, COL, "128x256/c2x1/s1/g8/p0"},
      {512, 512, 64, 128, COL, "128x256/c1x1/s1/g16/p0"},
      {1024, 1024, 1024, 8, ROW, "128x256/c2x1/s1/g8/p0"}};
  for (const auto& [M, N, K, batch, b, config] : shapes) {
    GemmParams p = gemm_params(M, N, K, ROW, b);
    p.batch = batch, p.stride_c = M * N;
    Config named;
    CHECK(read_config(config, named));
    CHECK(text_of(model_choice(p, 132)) == config);
  }
}

TEST_CASE("gemm: candidates are legal, and the choice is the first") {
  const int sizes[][3] = {{1, 4096, 4096}, {512, 512, 16384}, {4096, 4096, 4096}, {1, 1, 1}};
  for (const auto& [M, N, K] : sizes) {
    const GemmParams p = gemm_params(M, N, K);
    const std::vector<std::string> all = gemm_candidates(p);
    REQUIRE(!all.empty());
    CHECK(all[0] == gemm_config(p));
    for (const std::string& config : all) {
      const Forced forced(config.c_str());
      CHECK(gemm_config(p) == config);
    }
  }
}

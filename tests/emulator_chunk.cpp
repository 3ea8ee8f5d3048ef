// The kernels of 30: any number of chunks, in any order of launches, gives the same product.
#include "tests/emulator_support.h"

#include "steps/30_streams_split_k/chunk.h"

namespace {

/// Multiplies in `chunks` chunks, the last first; what the emulated device found; is C right?
bool right_in_chunks(Gemm& g, int chunks) {
  gpu::Buffer partial(size_t(chunks) * g.M * g.N * 4, "partial");
  const SplitK split(make_problem(g.M, g.N, g.K, g.A.get(), g.B.get(), g.C.get()),
                     partial.get<float>(), chunks);
  emu::set_quiet(true);
  emu::clear_reports();
  gpu::fill(g.C.get(), 0xff, g.C.bytes());
  for (int chunk = chunks - 1; chunk >= 0; --chunk) split.launch(0, chunk, 1);
  split.join(0);
  const std::vector<std::string> found = emu::report_texts();
  emu::clear_reports();
  for (const std::string& text : found) FAIL(text);
  return g.right();
}

}  // namespace

TEST_CASE("30: chunks of K add up, at sizes that no tile divides") {
  Gemm g(136, 72, 520);  // 9 k tiles, the last of 8; 2 tiles of M
  for (int chunks : {1, 2, 4, 9}) {
    CAPTURE(chunks);
    CHECK(right_in_chunks(g, chunks));
  }
}

TEST_CASE("30: more k tiles than stages") {
  Gemm g(64, 136, 1024);
  CHECK(right_in_chunks(g, 2));
}

TEST_CASE("30: all chunks as one grid") {
  Gemm g(128, 128, 384);
  gpu::Buffer partial(3ull * g.M * g.N * 4, "partial");
  const SplitK split(make_problem(g.M, g.N, g.K, g.A.get(), g.B.get(), g.C.get()),
                     partial.get<float>(), 3);
  emu::clear_reports();
  split.launch(0, 0, 3);
  split.join(0);
  CHECK(emu::reports() == 0);
  CHECK(g.right());
}

// A convolution with variant_batched: an implicit GEMM, no im2col.
// arch: 90a
//   out[i][y][x][n] = sum over taps (dy, dx) and c of in[i][y + dy][x + dx][c] * w[n][tap][c]
// is a GEMM of images * height * width rows, channels_out columns and filter * filter *
// channels_in of K. Its A would be every pixel's neighbourhood, 9 copies of the image for 3x3. It
// need not exist: a tile's 128 rows are a box of pixels, say 8x8 of two images, and for another
// tap the same box is read a pixel further on. Where it sticks out of the images TMA delivers
// zeros, which is the padding, and what sticks out of C it does not store.
#include "variant_batched.cu"

#include "example.h"

namespace {

// NHWC images; weights [channels_out][filter * filter][channels_in]; stride 1; as much padding as
// keeps the size (3x3: 1).
struct Convolution {
  int64_t images, height, width, channels_in, channels_out, filter;

  std::string text() const {
    return example::joined({images, height, width, channels_in, channels_out, filter});
  }
  std::string why_not() const {
    return channels_in % 8 || channels_out % 8 ? "channels must be multiples of 8"
           : filter % 2 == 0                   ? "the filter must have an odd width"
                                               : "";
  }
};

Launch prepare_convolution(const Convolution& s, const void* in, const void* weights, void* out,
                           Type type) {
  const auto image = [&](const void* data, int64_t channels) {
    return Tensor{data, {channels, s.width, s.height, s.images},
                  {channels, s.width * channels, s.height * s.width * channels}};
  };
  Walk walk{};
  for (Box box = {1, 1, 1}; box.w <= BLOCK_M; box.w *= 2)  // of the boxes of 128 pixels the one
    for (box.z = 1; box.z * box.w <= BLOCK_M; box.z *= 2) {  // that covers all with fewest
      box.y = BLOCK_M / (box.z * box.w);
      const int64_t y = ceil_div(s.width, box.y), z = ceil_div(s.height, box.z);
      const int64_t tiles = y * z * ceil_div(s.images, box.w);
      if (walk.tiles_m && tiles >= walk.tiles_m) continue;
      walk.box = box, walk.tiles_y = int(y), walk.tiles_z = int(z), walk.tiles_m = int(tiles);
    }
  walk.cluster_m = walk.tiles_m > 1 ? MAX_CLUSTER_M : 1;
  walk.k_tiles = int(ceil_div(s.channels_in, BLOCK_K));
  walk.taps = int(s.filter * s.filter);
  walk.filter_width = int(s.filter), walk.pad = int(s.filter / 2);
  walk.moves_a = 1, walk.moves_b = 0;  // the weights are the same for all pixels
  walk.alpha = 1;
  const int64_t row = walk.taps * s.channels_in;  // all weights of one output channel
  const Tensor b = {weights, {s.channels_in, s.channels_out, walk.taps, 1},
                    {row, s.channels_in, s.channels_out * row}};
  return launch_walk(walk, image(in, s.channels_in), b, image(out, s.channels_out), false, type, 1);
}

std::string check(const Convolution& s, Type type) {
  const int64_t pixels = s.images * s.height * s.width, taps = s.filter * s.filter;
  const example::Array in(pixels * s.channels_in, type, 1, "in");
  const example::Array weights(s.channels_out * taps * s.channels_in, type, 2, "weights");
  example::Array out(pixels * s.channels_out, type, 0, "out");
  prepare_convolution(s, in.device(), weights.device(), out.device(), type)(gpu::Stream{});
  return out.difference([&](int64_t i) {
    const int64_t n = i % s.channels_out, pixel = i / s.channels_out;
    const int64_t x = pixel % s.width, y = pixel / s.width % s.height;
    double sum = 0;
    for (int64_t tap = 0; tap < taps; ++tap) {
      const int64_t dx = tap % s.filter - s.filter / 2, dy = tap / s.filter - s.filter / 2;
      if (x + dx < 0 || x + dx >= s.width || y + dy < 0 || y + dy >= s.height) continue;
      const int64_t from = (pixel + dy * s.width + dx) * s.channels_in;
      for (int64_t c = 0; c < s.channels_in; ++c)
        sum += in[from + c] * weights[(n * taps + tap) * s.channels_in + c];
    }
    return sum;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return example::main_of<Convolution>(
      argc, argv, "images height width channels_in channels_out filter", 6,
      {{1, 8, 16, 64, 64, 3}, {2, 13, 11, 72, 40, 3}, {3, 7, 7, 64, 264, 3}, {1, 1, 30, 8, 8, 3},
       {1, 20, 37, 128, 72, 1}, {2, 9, 5, 16, 24, 5}},
      [](const int64_t* n) { return Convolution{n[0], n[1], n[2], n[3], n[4], n[5]}; },
      check);
}

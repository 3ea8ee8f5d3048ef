// Attention scores with variant_batched: S = scale * Q K^T for every head, where the heads are.
// arch: 90a
// Q and K are [batch][tokens][heads][dim], as a projection leaves them. For one head the rows of Q
// lie heads * dim elements apart, and the next head begins dim further on. A tensor map has room
// for all of that, so nothing is moved beforehand: 32 heads of 8 sequences are one launch.
#include "variant_batched.cu"

#include "example.h"

namespace {

struct Attention {
  int64_t batch, heads, tokens_q, tokens_k, dim;

  std::string text() const { return example::joined({batch, heads, tokens_q, tokens_k, dim}); }
  std::string why_not() const {  // rows of Q, K and S in whole 16 bytes
    return dim % 8 || tokens_k % 8 ? "dim and tokens_k must be multiples of 8" : "";
  }
};

Launch prepare_scores(const Attention& s, const void* q, const void* k, void* scores, float scale,
                      Type type) {
  const int64_t row = s.heads * s.dim;
  return prepare_products(
      {q, {s.dim, s.tokens_q, s.heads, s.batch}, {row, s.dim, s.tokens_q * row}},
      {k, {s.dim, s.tokens_k, s.heads, s.batch}, {row, s.dim, s.tokens_k * row}},
      {scores,
       {s.tokens_k, s.tokens_q, s.heads, s.batch},
       {s.tokens_k, s.tokens_q * s.tokens_k, s.heads * s.tokens_q * s.tokens_k}},
      false, type, scale);
}

std::string check(const Attention& s, Type type) {
  const float scale = 0.25f;  // exact
  const example::Array q(s.batch * s.tokens_q * s.heads * s.dim, type, 1, "Q");
  const example::Array k(s.batch * s.tokens_k * s.heads * s.dim, type, 2, "K");
  example::Array scores(s.batch * s.heads * s.tokens_q * s.tokens_k, type, 0, "S");
  prepare_scores(s, q.device(), k.device(), scores.device(), scale, type)(gpu::Stream{});
  return scores.difference([&](int64_t i) {
    const int64_t j = i % s.tokens_k, t = i / s.tokens_k % s.tokens_q;
    const int64_t head = i / s.tokens_k / s.tokens_q % s.heads;
    const int64_t batch = i / s.tokens_k / s.tokens_q / s.heads;
    double sum = 0;
    for (int64_t d = 0; d < s.dim; ++d)
      sum += q[((batch * s.tokens_q + t) * s.heads + head) * s.dim + d] *
             k[((batch * s.tokens_k + j) * s.heads + head) * s.dim + d];
    return scale * sum;
  });
}

}  // namespace

int main(int argc, char** argv) {
  return example::main_of<Attention>(
      argc, argv, "batch heads tokens_q tokens_k dim", 5,
      {{1, 1, 128, 256, 64}, {2, 3, 200, 136, 64}, {1, 4, 1, 264, 128}, {3, 2, 130, 48, 72},
       {2, 5, 300, 304, 128}},
      [](const int64_t* n) { return Attention{n[0], n[1], n[2], n[3], n[4]}; },
      check);
}

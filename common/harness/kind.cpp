#include "common/harness/kind.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

#include "common/harness/text.h"

namespace harness {
namespace {

const char* name(Type type) {
  return type == Type::f16 ? "f16" : type == Type::bf16 ? "bf16" : "f32";
}

std::string number(float value) {
  char text[32];
  snprintf(text, sizeof text, "%g", double(value));
  return text;
}

struct Word {  // "pada3": a name and a whole number
  const char* name;
  int64_t Kind::*value;
  int64_t low, usual;
};
const Word kWords[] = {{"batch", &Kind::batch, 1, 1}, {"pada", &Kind::pad_a, 0, 0},
                       {"padb", &Kind::pad_b, 0, 0},  {"padc", &Kind::pad_c, 0, 0},
                       {"gap", &Kind::gap, 0, 0},     {"off", &Kind::off, 0, 0}};

[[noreturn]] void refuse(const std::string& word) {
  throw UsageError("kind \"" + word + "\": must look like NT, NT-bf16 or TN-f16-f32-batch4 (A's "
                   "and B's layout, N row-major, T column-major; type of A and B, of C: f16 bf16 "
                   "f32; then alphaX betaX batchN bias relu gelu sharedb padaX padbX padcX gapX "
                   "offX)");
}

bool parse_type(const std::string& word, Type& type) {
  for (Type t : {Type::f16, Type::bf16, Type::f32})
    if (word == name(t)) return type = t, true;
  return false;
}

}  // namespace

std::string text(const Kind& k) {
  std::string words = std::string(k.layout_a == Layout::row_major ? "N" : "T") +
                      (k.layout_b == Layout::row_major ? "N" : "T");
  if (k.type_ab != Type::f16 || k.type_c != Type::f16) words += std::string("-") + name(k.type_ab);
  if (k.type_c != k.type_ab) words += std::string("-") + name(k.type_c);
  if (k.alpha != 1) words += "-alpha" + number(k.alpha);
  if (k.beta != 0) words += "-beta" + number(k.beta);
  if (k.bias) words += "-bias";
  if (k.activation != Activation::none)
    words += k.activation == Activation::relu ? "-relu" : "-gelu";
  if (k.shared_b) words += "-sharedb";
  for (const Word& w : kWords)
    if (k.*w.value != w.usual) words += std::string("-") + w.name + std::to_string(k.*w.value);
  return words;
}

Kind parse_kind(const std::string& word) {
  Kind k;
  std::vector<std::string> parts = split(word, '-');
  const std::string& layouts = parts[0];
  if (layouts.size() != 2 || layouts.find_first_not_of("NT") != std::string::npos) refuse(word);
  k.layout_a = layouts[0] == 'N' ? Layout::row_major : Layout::col_major;
  k.layout_b = layouts[1] == 'N' ? Layout::row_major : Layout::col_major;
  size_t i = 1;
  if (i < parts.size() && parse_type(parts[i], k.type_ab)) {
    k.type_c = k.type_ab, ++i;
    if (i < parts.size() && parse_type(parts[i], k.type_c)) ++i;
  }
  if (k.type_ab == Type::f32) throw UsageError("kind \"" + word + "\": A and B are f16 or bf16");
  for (; i < parts.size(); ++i) {
    std::string part = parts[i];
    const bool relu = part == "relu", gelu = part == "gelu";
    bool known = part == "bias" || part == "sharedb" || relu || gelu;
    if (relu || gelu) k.activation = relu ? Activation::relu : Activation::gelu;
    k.bias |= part == "bias";
    k.shared_b |= part == "sharedb";
    for (auto [name, factor] : {std::pair("alpha", &Kind::alpha), std::pair("beta", &Kind::beta)}) {
      if (part.rfind(name, 0) != 0) continue;
      std::string digits = part.substr(std::string(name).size());
      if (digits.empty() && i + 1 < parts.size()) digits = "-" + parts[++i];  // beta-1
      char* end = nullptr;
      k.*factor = std::strtof(digits.c_str(), &end);
      known = !digits.empty() && *end == 0 && std::isfinite(k.*factor);
    }
    for (const Word& w : kWords) {
      if (known || part.rfind(w.name, 0) != 0) continue;
      k.*w.value = parse_integer(part.substr(std::string(w.name).size()), w.name, w.low, 1 << 20);
      known = true;
    }
    if (!known) refuse(word);
  }
  return k;
}

Problem make_problem(int64_t M, int64_t N, int64_t K, const Kind& kind, const void* A,
                     const void* B, void* C, const void* bias) {
  Problem p = ::make_problem(M, N, K, A, B, C);
  p.layout_a = kind.layout_a, p.layout_b = kind.layout_b;
  p.type_ab = kind.type_ab, p.type_c = kind.type_c;
  p.alpha = kind.alpha, p.beta = kind.beta;
  p.bias = bias, p.activation = kind.activation;
  p.lda = (kind.layout_a == Layout::row_major ? K : M) + kind.pad_a;
  p.ldb = (kind.layout_b == Layout::row_major ? N : K) + kind.pad_b;
  p.ldc = N + kind.pad_c;
  p.batch = kind.batch;
  if (kind.batch > 1) {
    const auto one = [](Storage s) { return (s.batch = 1, s.count()); };
    p.stride_a = one(storage_a(p)) + kind.gap;
    p.stride_b = kind.shared_b ? 0 : one(storage_b(p)) + kind.gap;
    p.stride_c = one(storage_c(p)) + kind.gap;
  }
  return p;
}

}  // namespace harness

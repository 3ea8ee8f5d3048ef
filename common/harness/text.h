// Sizes, errors of the user, and small text: what the command line and the reports share.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "common/harness/kind.h"

namespace harness {

/// Something the user asked for that cannot be done; the message says why. Exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

/// M, N, K, and the kind of problem where it is not the default.
struct Size {
  int64_t M, N, K;
  Kind kind = {};
  bool operator==(const Size& o) const {
    return M == o.M && N == o.N && K == o.K && kind == o.kind;
  }
};

/// The problem of this size on these pointers.
inline Problem make_problem(const Size& s, const void* A = nullptr, const void* B = nullptr,
                            void* C = nullptr, const void* bias = nullptr) {
  return make_problem(s.M, s.N, s.K, s.kind, A, B, C, bias);
}

std::string text(const Size& size);            // "4096x4096x512", "4096x4096x512/NT-bf16"
std::string fixed(double value, int digits);   // printf("%.*f")
std::string bytes_text(double bytes);          // "1.5 GiB"

/// "4096" or "4096x4096x512", with "/KIND" or without; throws UsageError on anything else. Each
/// dimension 1 to 2^31 - 1024.
Size parse_size(const std::string& word);
/// Comma-separated sizes, at least one.
std::vector<Size> parse_sizes(const std::string& words);
std::vector<std::string> split(const std::string& words, char separator);
std::string joined(const std::vector<std::string>& words, const char* between);
/// A whole number from `low` to `high`; throws UsageError that names `what`.
int64_t parse_integer(const std::string& word, const std::string& what, int64_t low, int64_t high);

/// `value` as a JSON string, quotes included.
std::string quoted(const std::string& value);

/// A file that appears under its name only once it is complete: written beside, then renamed.
/// Throws UsageError if it cannot be written, and at construction already, before the work starts,
/// if its folder cannot.
class OutputFile {
 public:
  explicit OutputFile(const std::string& path);  // "" writes nothing
  void commit(const std::string& content) const;

 private:
  std::string path_;
};

}  // namespace harness

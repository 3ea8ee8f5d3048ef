// Sizes, errors of the user, and small text: what the command line and the reports share.
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace harness {

/// Something the user asked for that cannot be done; the message says why. Exit code 2.
struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Size {
  int64_t M, N, K;
  bool operator==(const Size& o) const { return M == o.M && N == o.N && K == o.K; }
};

std::string text(const Size& size);            // "4096x4096x512"
std::string fixed(double value, int digits);   // printf("%.*f")
std::string bytes_text(double bytes);          // "1.5 GiB"

/// "4096" or "4096x4096x512"; throws UsageError on anything else. Each dimension 1 to 2^31 - 1024.
Size parse_size(const std::string& word);
/// Comma-separated sizes, at least one.
std::vector<Size> parse_sizes(const std::string& words);
std::vector<std::string> split(const std::string& words, char separator);
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

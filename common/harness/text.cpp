#include "common/harness/text.h"

#include <unistd.h>

#include <cstdio>
#include <fstream>

namespace harness {

std::string text(const Size& size) {
  const std::string kind = text(size.kind);
  return std::to_string(size.M) + "x" + std::to_string(size.N) + "x" + std::to_string(size.K) +
         (kind == "NN" ? "" : "/" + kind);
}

std::string fixed(double value, int digits) {
  char buffer[64];
  snprintf(buffer, sizeof buffer, "%.*f", digits, value);
  return buffer;
}

std::string bytes_text(double bytes) {
  if (bytes >= 1 << 30) return fixed(bytes / (1 << 30), 1) + " GiB";
  return fixed(bytes / (1 << 20), 1) + " MiB";
}

std::vector<std::string> split(const std::string& words, char separator) {
  std::vector<std::string> parts(1);
  for (char c : words) {
    if (c == separator)
      parts.emplace_back();
    else
      parts.back() += c;
  }
  return parts;
}

int64_t parse_integer(const std::string& word, const std::string& what, int64_t low, int64_t high) {
  const bool digits = !word.empty() && word.size() < 19 &&
                      word.find_first_not_of("0123456789") == std::string::npos;
  const int64_t value = digits ? std::stoll(word) : -1;
  if (!digits || value < low || value > high)
    throw UsageError(what + " \"" + word + "\": must be a whole number from " +
                     std::to_string(low) + " to " + std::to_string(high));
  return value;
}

Size parse_size(const std::string& word) {
  const int64_t limit = (int64_t{1} << 31) - 1024;
  const size_t slash = word.find('/');
  const std::vector<std::string> parts = split(word.substr(0, slash), 'x');
  if (parts.size() != 1 && parts.size() != 3)
    throw UsageError("size \"" + word + "\": must look like 4096 or 4096x4096x512 (MxNxK)");
  int64_t values[3];
  for (int i = 0; i < 3; ++i)
    values[i] = parse_integer(parts[parts.size() == 3 ? i : 0], "size", 1, limit);
  Size size = {values[0], values[1], values[2]};
  if (slash != std::string::npos) size.kind = parse_kind(word.substr(slash + 1));
  return size;
}

std::vector<Size> parse_sizes(const std::string& words) {
  std::vector<Size> sizes;
  for (const std::string& word : split(words, ',')) sizes.push_back(parse_size(word));
  return sizes;
}

std::string joined(const std::vector<std::string>& words, const char* between) {
  std::string all;
  for (const std::string& word : words) all += (all.empty() ? "" : between) + word;
  return all;
}

std::string quoted(const std::string& value) {
  std::string out = "\"";
  for (char c : value) {
    char buffer[8];
    if (c == '"' || c == '\\')
      (out += '\\') += c;
    else if (static_cast<unsigned char>(c) < 32)
      snprintf(buffer, sizeof buffer, "\\u%04x", c), out += buffer;
    else
      out += c;
  }
  return out + '"';
}

OutputFile::OutputFile(const std::string& path) : path_(path) {
  if (path_.empty()) return;
  const size_t slash = path_.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path_.substr(0, slash + 1);
  if (access(folder.c_str(), W_OK) != 0)
    throw UsageError("cannot write " + path_ + ": does its folder exist, and may you write there?");
}

void OutputFile::commit(const std::string& content) const {
  if (path_.empty()) return;
  const std::string beside = path_ + "." + std::to_string(getpid()) + ".part";
  std::ofstream file(beside, std::ios::binary);
  file << content;
  file.close();
  if (!file || std::rename(beside.c_str(), path_.c_str()) != 0) {
    std::remove(beside.c_str());
    throw UsageError("cannot write " + path_ + ": is the disk full, or is it a folder?");
  }
}

}  // namespace harness

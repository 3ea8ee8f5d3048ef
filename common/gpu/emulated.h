// Host side on the emulated device: the names of cuda.h.
#pragma once
#include <algorithm>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <tuple>

#include "common/ptx/emulated/language.h"
#include "common/problem.h"

#ifndef STEP_ID
#define STEP_ID "a test"
#endif

enum cudaError_t {  // the few that a step returns, with CUDA's numbers
  cudaSuccess = 0,
  cudaErrorInvalidValue = 1,
  cudaErrorNotSupported = 801,
  cudaErrorUnknown = 999
};

namespace gpu {

using Status = cudaError_t;
using Stream = int;  // launches run at once, in the order of the host

struct Error : std::runtime_error {
  explicit Error(const std::string& what, Status status = cudaErrorUnknown)
      : std::runtime_error(what), status(status) {}
  Status status;
};

inline std::string device_name() { return "emulated device"; }
inline int& spared_sms() {  // as in cuda.h
  static int spared = 0;
  return spared;
}
inline int num_sms() { return emu::num_sms() - spared_sms(); }
inline int max_smem_per_block() { return int(emu::kMaxSmem); }

struct LaunchConfig {
  dim3 grid, block;
  size_t dynamic_smem = 0;
  dim3 cluster = dim3(1, 1, 1);
  bool early = false;  // launches run one after the other
};

template <class... Params>
void allow_dynamic_smem(void (*)(Params...), size_t bytes) {
  if (const size_t have = size_t(max_smem_per_block()); bytes > have)
    throw Error("needs " + std::to_string(bytes) +
                " bytes of shared memory per block, this GPU has " + std::to_string(have));
}

/// How many clusters of this launch run at once: as many may wait for each other.
template <class... Params>
int max_active_clusters(void (*)(Params...), const LaunchConfig& config) {
  return num_sms() / int(config.cluster.x * config.cluster.y * config.cluster.z);
}

/// Runs `kernel(args...)`; throws if the launch is refused. Findings are reported, not thrown:
/// emu::reports().
template <class... Params, class... Args>
void launch(Stream, const LaunchConfig& config, void (*kernel)(Params...), Args&&... args) {
  const std::tuple<Params...> params(static_cast<Params>(args)...);
  const emu::LaunchInfo info = {STEP_ID,       reinterpret_cast<const void*>(kernel),
                                config.grid,   config.block,
                                config.cluster, config.dynamic_smem};
  try {
    emu::launch(info, [&] { std::apply(kernel, params); });
  } catch (const std::invalid_argument& e) {
    throw Error(std::string("launch: ") + e.what());
  }
}

class Buffer {
 public:
  explicit Buffer(size_t bytes, const char* name = "buffer")
      : data_(emu::device_malloc(bytes, name)), bytes_(bytes), name_(name) {}
  ~Buffer() { emu::device_free(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <class T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  const char* name() const { return name_; }

 private:
  void* data_;
  size_t bytes_;
  const char* name_;
};

inline void copy_to_device(void* dst, const void* src, size_t bytes) {
  std::memcpy(dst, src, bytes);
  emu::device_initialised(dst, bytes);
}
inline void copy_to_host(void* dst, const void* src, size_t bytes) { std::memcpy(dst, src, bytes); }
inline void fill(void* dst, int byte, size_t bytes) {
  std::memset(dst, byte, bytes);
  emu::device_initialised(dst, bytes);
}
inline void fill_async(void* dst, int byte, size_t bytes, Stream) { fill(dst, byte, bytes); }
inline void synchronize() {}

enum class Swizzle { none, b32, b64, b128 };

inline CUtensorMap tensor_map(const void* base, std::initializer_list<int64_t> sizes,
                              std::initializer_list<int64_t> strides,
                              std::initializer_list<int> box, Swizzle swizzle,
                              Type type = Type::f16, int /*l2_bytes*/ = 128) {
  const int element = type == Type::f32 ? 4 : 2;
  int64_t bytes[4] = {};
  std::transform(strides.begin(), strides.end(), bytes,
                 [&](int64_t stride) { return stride * element; });
  std::string error;
  const unsigned width = swizzle == Swizzle::none ? 0 : 16u << int(swizzle);
  const CUtensorMap map = emu::tensor_map(base, unsigned(sizes.size()), sizes.begin(), bytes,
                                          box.begin(), unsigned(element), width, error);
  if (!error.empty()) {
    std::string shape;
    for (size_t d = sizes.size(); d-- > 0;)
      shape += std::to_string(sizes.begin()[d]) + (d ? "x" : "");
    throw Error("cuTensorMapEncodeTiled refused " + shape + " elements: " + error);
  }
  return map;
}
inline CUtensorMap tensor_map_2d(const void* base, int64_t rows, int64_t cols, int64_t ld,
                                 int box_rows, int box_cols, Swizzle swizzle,
                                 Type type = Type::f16) {
  return tensor_map(base, {cols, rows}, {ld}, {box_cols, box_rows}, swizzle, type);
}

}  // namespace gpu

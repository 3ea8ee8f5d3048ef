// Host side on a real GPU: the CUDA runtime, every call checked in every build.
#pragma once
#include <cuda.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "common/problem.h"

namespace gpu {

using Stream = cudaStream_t;
using Status = cudaError_t;

/// A failed call: what was called and the reason in the driver's words.
struct Error : std::runtime_error {
  explicit Error(const std::string& what, Status status = cudaErrorUnknown)
      : std::runtime_error(what), status(status) {}
  Status status;
};

inline void check(cudaError_t status, const char* call) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // clears an error that is not sticky, so that the next call starts clean
  throw Error(std::string(call) + ": " + cudaGetErrorString(status) + " (" +
                  cudaGetErrorName(status) + ")",
              status);
}
#define GPU_CHECK(call) ::gpu::check((call), #call)

/// One attribute of the current device.
inline int attribute(cudaDeviceAttr which) {
  int device = 0, value = 0;
  GPU_CHECK(cudaGetDevice(&device));
  GPU_CHECK(cudaDeviceGetAttribute(&value, which, device));
  return value;
}
inline std::string device_name() {
  int device = 0;
  cudaDeviceProp properties;
  GPU_CHECK(cudaGetDevice(&device));
  GPU_CHECK(cudaGetDeviceProperties(&properties, device));
  return properties.name;
}
/// SMs that kernels prepared from here on leave to other work, such as communication.
inline int& spared_sms() {
  static int spared = 0;
  return spared;
}
inline int num_sms() { return attribute(cudaDevAttrMultiProcessorCount) - spared_sms(); }
/// Bytes of shared memory that one block may have when it asks for them.
inline int max_smem_per_block() { return attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin); }

/// Shape of a launch. `cluster` is the number of CTAs of a cluster along x, y, z.
struct LaunchConfig {
  dim3 grid, block;
  size_t dynamic_smem = 0;
  dim3 cluster = dim3(1, 1, 1);
  bool early = false;  // may start before its predecessor ends: the kernel waits itself (PTX
                       // "griddepcontrol"), and what comes before the wait overlaps
};

/// Lets `kernel` use more than 48 KB of dynamic shared memory. Call it in `prepare`.
template <class... Params>
void allow_dynamic_smem(void (*kernel)(Params...), size_t bytes) {
  if (const size_t have = size_t(max_smem_per_block()); bytes > have)
    throw Error("needs " + std::to_string(bytes) + " bytes of shared memory per block, this GPU " +
                "has " + std::to_string(have));
  GPU_CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int(bytes)));
}

/// How many clusters of this launch the GPU holds at once: as many may wait for each other. Call it
/// after allow_dynamic_smem.
template <class... Params>
int max_active_clusters(void (*kernel)(Params...), const LaunchConfig& config) {
  cudaLaunchConfig_t c{};
  c.gridDim = config.cluster;
  c.blockDim = config.block;
  c.dynamicSmemBytes = config.dynamic_smem;
  cudaLaunchAttribute cluster{};
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim = {config.cluster.x, config.cluster.y, config.cluster.z};
  c.attrs = &cluster;
  c.numAttrs = 1;
  int clusters = 0;
  GPU_CHECK(cudaOccupancyMaxActiveClusters(&clusters, kernel, &c));
  return clusters;
}

/// Enqueues `kernel(args...)`; throws if the launch is refused.
template <class... Params, class... Args>
void launch(Stream stream, const LaunchConfig& config, void (*kernel)(Params...), Args&&... args) {
  cudaLaunchConfig_t c{};
  c.gridDim = config.grid;
  c.blockDim = config.block;
  c.dynamicSmemBytes = config.dynamic_smem;
  c.stream = stream;
  cudaLaunchAttribute attributes[2] = {};
  c.attrs = attributes;
  if (config.cluster.x * config.cluster.y * config.cluster.z > 1) {
    cudaLaunchAttribute& cluster = attributes[c.numAttrs++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {config.cluster.x, config.cluster.y, config.cluster.z};
  }
  if (config.early) {
    cudaLaunchAttribute& early = attributes[c.numAttrs++];
    early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    early.val.programmaticStreamSerializationAllowed = 1;
  }
  GPU_CHECK(cudaLaunchKernelEx(&c, kernel, static_cast<Params>(args)...));
}

/// Device memory that frees itself; what a step's `prepare` allocates (workspace, flags).
class Buffer {
 public:
  explicit Buffer(size_t bytes, const char* name = "buffer") : bytes_(bytes), name_(name) {
    GPU_CHECK(cudaMalloc(&data_, bytes ? bytes : 1));
  }
  ~Buffer() { cudaFree(data_); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  template <class T = void>
  T* get() const {
    return static_cast<T*>(data_);
  }
  size_t bytes() const { return bytes_; }
  const char* name() const { return name_; }

 private:
  void* data_ = nullptr;
  size_t bytes_;
  const char* name_;
};

inline void copy_to_device(void* dst, const void* src, size_t bytes) {
  GPU_CHECK(cudaMemcpy(dst, src, bytes, cudaMemcpyHostToDevice));
}
inline void copy_to_host(void* dst, const void* src, size_t bytes) {
  GPU_CHECK(cudaMemcpy(dst, src, bytes, cudaMemcpyDeviceToHost));
}
inline void fill(void* dst, int byte, size_t bytes) { GPU_CHECK(cudaMemset(dst, byte, bytes)); }
inline void fill_async(void* dst, int byte, size_t bytes, Stream stream) {
  GPU_CHECK(cudaMemsetAsync(dst, byte, bytes, stream));
}
inline void synchronize() { GPU_CHECK(cudaDeviceSynchronize()); }

enum class Swizzle { none, b32, b64, b128 };

/// A tensor in global memory as TMA sees it, innermost dimension first: `sizes` in elements of
/// `type`, `strides` of dimensions 1 and on, in elements too, copied in boxes of `box`. Elements
/// outside read as zero and are not stored. The base and every stride must be a multiple of 16
/// bytes. What is read comes to L2 in pieces of `l2_bytes`, 128 or 256. CUDA driver API,
/// cuTensorMapEncodeTiled.
inline CUtensorMap tensor_map(const void* base, std::initializer_list<int64_t> sizes,
                              std::initializer_list<int64_t> strides,
                              std::initializer_list<int> box, Swizzle swizzle,
                              Type type = Type::f16, int l2_bytes = 128) {
  using Encode = CUresult (*)(CUtensorMap*, CUtensorMapDataType, cuuint32_t, void*,
                              const cuuint64_t*, const cuuint64_t*, const cuuint32_t*,
                              const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                              CUtensorMapL2promotion, CUtensorMapFloatOOBfill);
  static const Encode encode = [] {  // asked of the driver, so that nothing links libcuda
    void* entry = nullptr;
    cudaDriverEntryPointQueryResult found;
#if CUDART_VERSION >= 12050
    GPU_CHECK(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                               cudaEnableDefault, &found));
#else
    GPU_CHECK(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &found));
#endif
    if (!entry) throw Error("cuTensorMapEncodeTiled: this driver is older than CUDA 12.0");
    return reinterpret_cast<Encode>(entry);
  }();
  const CUtensorMapDataType data_type = type == Type::f16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                        : type == Type::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                             : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const cuuint64_t element = type == Type::f32 ? 4 : 2;
  const CUtensorMapSwizzle swizzles[] = {CU_TENSOR_MAP_SWIZZLE_NONE, CU_TENSOR_MAP_SWIZZLE_32B,
                                         CU_TENSOR_MAP_SWIZZLE_64B, CU_TENSOR_MAP_SWIZZLE_128B};
  cuuint64_t dims[5] = {}, bytes[4] = {};
  cuuint32_t boxes[5] = {};
  const cuuint32_t element_strides[] = {1, 1, 1, 1, 1};
  std::copy(sizes.begin(), sizes.end(), dims);
  std::copy(box.begin(), box.end(), boxes);
  std::transform(strides.begin(), strides.end(), bytes,
                 [&](int64_t stride) { return cuuint64_t(stride) * element; });
  CUtensorMap map;
  const CUresult status =
      encode(&map, data_type, cuuint32_t(sizes.size()), const_cast<void*>(base), dims, bytes, boxes,
             element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzles[int(swizzle)],
             l2_bytes == 256 ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B
                             : CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    std::string shape;
    for (size_t d = sizes.size(); d-- > 0;) shape += std::to_string(dims[d]) + (d ? "x" : "");
    throw Error("cuTensorMapEncodeTiled refused " + shape + " elements, rows " +
                std::to_string(bytes[0]) + " bytes apart, box " + std::to_string(boxes[1]) + "x" +
                std::to_string(boxes[0]) + ": error " + std::to_string(int(status)) +
                " (base and rows must be multiples of 16 bytes, a box at most 256 each way and, "
                "swizzled, no wider than the swizzle)");
  }
  return map;
}

/// A matrix of `rows` x `cols`, rows `ld` elements apart, in boxes of `box_rows` x `box_cols`.
inline CUtensorMap tensor_map_2d(const void* base, int64_t rows, int64_t cols, int64_t ld,
                                 int box_rows, int box_cols, Swizzle swizzle,
                                 Type type = Type::f16) {
  return tensor_map(base, {cols, rows}, {ld}, {box_cols, box_rows}, swizzle, type);
}

}  // namespace gpu

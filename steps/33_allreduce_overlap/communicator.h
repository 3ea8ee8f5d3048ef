// NCCL, every call checked: a communicator over all ranks.
#pragma once
#include <nccl.h>

#include "common/gpu/gpu.h"
#include "common/harness/ranks.h"

namespace {

inline void check_nccl(ncclResult_t status, const char* call) {
  if (status != ncclSuccess)
    throw gpu::Error(std::string(call) + ": " + ncclGetErrorString(status) + " (" +
                     ncclGetLastError(nullptr) + ")");
}
#define NCCL_CHECK(call) check_nccl((call), #call)

class Communicator {
 public:
  /// `ctas`: of each kernel of the communication at most, so many SMs it takes; 0: NCCL decides.
  /// Left to itself, NCCL launches them in clusters of four, which start only where four SMs of one
  /// part of the chip are free.
  Communicator(harness::Ranks& ranks, const harness::RankInfo& info, int ctas, bool clusters)
      : ctas_(ctas) {
    ncclUniqueId id;
    if (info.rank == 0) NCCL_CHECK(ncclGetUniqueId(&id));
    ranks.broadcast(&id, sizeof(id));
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    if (ctas > 0) config.minCTAs = 1, config.maxCTAs = ctas;
    if (!clusters) config.cgaClusterSize = 1;
    NCCL_CHECK(ncclCommInitRankConfig(&communicator_, info.size, id, info.rank, &config));
  }
  ~Communicator() { ncclCommDestroy(communicator_); }
  Communicator(const Communicator&) = delete;

  int ctas() const { return ctas_; }

  /// Sums `count` halves over all ranks, in place.
  void sum(half* data, size_t count, gpu::Stream stream) const {
    NCCL_CHECK(ncclAllReduce(data, data, count, ncclHalf, ncclSum, communicator_, stream));
  }

  /// What went wrong behind the calls (a network, a peer), or "".
  std::string trouble() const {
    ncclResult_t status = ncclSuccess;
    if (ncclCommGetAsyncError(communicator_, &status) != ncclSuccess || status == ncclSuccess ||
        status == ncclInProgress)
      return "";
    return std::string("NCCL: ") + ncclGetErrorString(status) + " (" +
           ncclGetLastError(communicator_) + ")";
  }

 private:
  ncclComm_t communicator_ = nullptr;
  int ctas_;
};

}  // namespace

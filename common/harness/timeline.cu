// Timelines: events of streams, stamps of kernels and the host's clock, brought to one clock.
#include <algorithm>
#include <chrono>

#include "common/harness/experiment.h"

namespace harness {
namespace {

__global__ void stamp_kernel(uint64_t* out) { *out = globaltimer(); }

struct Between {  // two events of a stream
  std::string lane, name;
  cudaEvent_t begin, end;
};
struct Stamps {
  std::string lane, name;
  uint64_t begin_ns, end_ns;
};

double seconds_between(cudaEvent_t a, cudaEvent_t b) {
  float milliseconds;
  GPU_CHECK(cudaEventElapsedTime(&milliseconds, a, b));
  return milliseconds * 1e-3;
}

/// In a capture a plain record only orders; an external one becomes a node that takes the time.
void record(cudaEvent_t event, gpu::Stream stream, bool captured) {
  cudaEventRecordWithFlags(event, stream,
                           captured ? cudaEventRecordExternal : cudaEventRecordDefault);
}

}  // namespace

struct Timeline::Impl {
  std::vector<Between> between;
  std::vector<Stamps> stamps;
  std::vector<Span> host;  // seconds
  cudaEvent_t base = nullptr;
  double base_host = 0;     // now() when `base` was recorded, within a few microseconds
  double stamp_offset = 0;  // seconds since `base` minus globaltimer
  double zero = 0;          // now() when the iteration began
  bool begun = false;
};

Timeline::Timeline() : impl_(std::make_unique<Impl>()) {}

Timeline::~Timeline() {
  for (const Between& b : impl_->between) cudaEventDestroy(b.begin), cudaEventDestroy(b.end);
  if (impl_->base) cudaEventDestroy(impl_->base);
}

double Timeline::now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void Timeline::add_host(const std::string& name, double begin, double end) {
  impl_->host.push_back({"host", name, begin, end});
}

void Timeline::add_stamps(const std::string& lane, const std::string& name, uint64_t begin_ns,
                          uint64_t end_ns) {
  impl_->stamps.push_back({lane, name, begin_ns, end_ns});
}

void Timeline::begin(gpu::Stream stream) {
  // The event was recorded somewhere between two readings of the host's clock: the closest pair of
  // some tries tells best when.
  double best = 1;
  for (int i = 0; i < 20; ++i) {
    cudaEvent_t event;
    GPU_CHECK(cudaEventCreate(&event));
    const double before = now();
    GPU_CHECK(cudaEventRecord(event, stream));
    GPU_CHECK(cudaEventSynchronize(event));
    const double after = now();
    if (after - before < best) {
      best = after - before;
      std::swap(impl_->base, event);
      impl_->base_host = (before + after) / 2;
    }
    if (event) cudaEventDestroy(event);
  }
  uint64_t* stamp;
  GPU_CHECK(cudaMallocHost(&stamp, sizeof *stamp));
  cudaEvent_t before, after;
  GPU_CHECK(cudaEventCreate(&before));
  GPU_CHECK(cudaEventCreate(&after));
  for (int i = 0; i < 2; ++i) {  // the first launch loads the code
    GPU_CHECK(cudaEventRecord(before, stream));
    gpu::launch(stream, {dim3(1), dim3(1)}, stamp_kernel, stamp);
    GPU_CHECK(cudaEventRecord(after, stream));
    GPU_CHECK(cudaStreamSynchronize(stream));
  }
  const double middle =
      (seconds_between(impl_->base, before) + seconds_between(impl_->base, after)) / 2;
  impl_->stamp_offset = middle - double(*stamp) * 1e-9;
  cudaEventDestroy(before), cudaEventDestroy(after), cudaFreeHost(stamp);
  impl_->host.clear(), impl_->stamps.clear();
  impl_->begun = true;
  impl_->zero = now();
}

std::vector<Span> Timeline::spans() const {
  std::vector<Span> all;
  const auto add = [&](const std::string& lane, const std::string& name, double begin, double end) {
    all.push_back({lane, name, begin * 1e6, end * 1e6});
  };
  const double base = impl_->base_host - impl_->zero;  // below 0
  for (const Span& s : impl_->host)
    add(s.lane, s.name, s.begin_us - impl_->zero, s.end_us - impl_->zero);
  for (const Between& b : impl_->between)
    add(b.lane, b.name, base + seconds_between(impl_->base, b.begin),
        base + seconds_between(impl_->base, b.end));
  for (const Stamps& s : impl_->stamps) {
    const double to_zero = base + impl_->stamp_offset;
    add(s.lane, s.name, to_zero + double(s.begin_ns) * 1e-9, to_zero + double(s.end_ns) * 1e-9);
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Span& a, const Span& b) { return a.begin_us < b.begin_us; });
  return all;
}

Mark::Mark(Timeline* timeline, gpu::Stream stream, const std::string& lane,
           const std::string& name)
    : timeline_(timeline), stream_(stream) {
  if (!timeline_) return;
  lane_ = lane, name_ = name;
  cudaStreamCaptureStatus status;
  GPU_CHECK(cudaStreamIsCapturing(stream_, &status));
  captured_ = status != cudaStreamCaptureStatusNone;
  GPU_CHECK(cudaEventCreate(&begin_));
  host_begin_ = Timeline::now();
  record(begin_, stream_, captured_);
}

Mark::~Mark() {
  if (!timeline_) return;
  cudaEvent_t end = nullptr;
  cudaEventCreate(&end);
  record(end, stream_, captured_);  // an error stays, and is seen by the next checked call
  timeline_->impl_->between.push_back({lane_, name_, begin_, end});
  if (!captured_) timeline_->add_host(name_, host_begin_, Timeline::now());
}

}  // namespace harness

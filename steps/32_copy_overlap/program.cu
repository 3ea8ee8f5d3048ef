// 32_copy_overlap: inputs come from the host in chunks: copy in, multiply, copy out, all at once.
// arch: 90a
// uses: 23_tma_store
// New: what may run beside what. Pageable and pinned memory, one stream, two, and three: one for
//      each direction of the bus and one for the products, with a ring of buffers between them.
#include <cstring>

#include "common/harness/experiment.h"
#include "common/harness/reference.h"

namespace {

using harness::Run;
using harness::Setup;
using harness::Variant;

constexpr int SLOTS = 4;         // buffers in the ring of the streamed variants
constexpr int MOST_ROWS_OF = 4;  // the fewest chunks: a buffer holds that part of the rows

using Event = std::shared_ptr<CUevent_st>;
Event make_event() {
  cudaEvent_t event;
  GPU_CHECK(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return Event(event, cudaEventDestroy);
}
std::vector<Event> make_events(int count) {
  std::vector<Event> events;
  for (int i = 0; i < count; ++i) events.push_back(make_event());
  return events;
}
void record(const Event& e, gpu::Stream s) { GPU_CHECK(cudaEventRecord(e.get(), s)); }
void wait(gpu::Stream s, const Event& e) { GPU_CHECK(cudaStreamWaitEvent(s, e.get(), 0)); }

std::shared_ptr<CUstream_st> make_stream() {
  cudaStream_t stream;
  GPU_CHECK(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return std::shared_ptr<CUstream_st>(stream, cudaStreamDestroy);
}

/// Page-locked host memory: the GPU's copy engines read it themselves.
std::shared_ptr<char> pinned(size_t bytes) {
  void* data;
  GPU_CHECK(cudaMallocHost(&data, bytes));
  return std::shared_ptr<char>(static_cast<char*>(data), cudaFreeHost);
}

__global__ void count_different(const uint4* a, const uint4* b, int64_t count,
                                unsigned long long* different) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride) {
    const uint4 x = a[i], y = b[i];
    if (x.x != y.x || x.y != y.y || x.z != y.z || x.w != y.w) atomicAdd(different, 1ull);
  }
}

/// C[M][N] = A[M][K] * B[K][N]. A and C live on the host, once pageable and once pinned; B and the
/// ring on the GPU.
struct Streamed {
  const int64_t M, N, K;
  const size_t a_bytes, c_bytes;
  std::vector<char> pageable_a, pageable_c;
  std::shared_ptr<char> pinned_a, pinned_c;
  gpu::Buffer a, b, c;             // everything at once, for the reference and for checking
  gpu::Buffer want;                // the right C
  gpu::Buffer ring_a, ring_c;      // [SLOTS][rows of the largest chunk]
  gpu::Buffer different{8, "count of differences"};
  const Step step = harness::find_step("23_tma_store");

  static double bytes(int64_t m, int64_t n, int64_t k) {
    const double a = 2.0 * m * k, c = 2.0 * m * n;
    return a + 2.0 * k * n + 2 * c + SLOTS * (a + c) / MOST_ROWS_OF;
  }
  Streamed(int64_t m, int64_t n, int64_t k)
      : M(m), N(n), K(k), a_bytes(size_t(m * k) * 2), c_bytes(size_t(m * n) * 2),
        pageable_a(a_bytes), pageable_c(c_bytes), pinned_a(pinned(a_bytes)),
        pinned_c(pinned(c_bytes)), a(a_bytes), b(size_t(k * n) * 2), c(c_bytes), want(c_bytes),
        ring_a(SLOTS * a_bytes / MOST_ROWS_OF), ring_c(SLOTS * c_bytes / MOST_ROWS_OF) {
    harness::fill(a.get<uint16_t>(), m * k, harness::Inputs::normal, 1, k);
    harness::fill(b.get<uint16_t>(), k * n, harness::Inputs::normal, 2, k);
    gpu::fill(want.get(), 0xff, c_bytes);
    const Problem whole = make_problem(m, n, k, a.get(), b.get(), want.get());
    gpu::synchronize();
    step.prepare(whole)(gpu::Stream{});
    gpu::synchronize();
    // The kernel was checked at whole sizes elsewhere: here rows at both ends and in the middle.
    for (const int64_t row : {int64_t{0}, m / 2, m - 256}) {
      const Problem part = make_problem(256, n, k, a.get<uint16_t>() + row * k, b.get(),
                                        want.get<uint16_t>() + row * n);
      const harness::Verdict verdict =
          harness::compare_on_device(part, harness::Inputs::normal, harness::Sum::fp64);
      if (!verdict.right())
        throw gpu::Error("one launch is wrong: " + harness::explain(verdict, 256, n));
    }
    gpu::copy_to_host(pinned_a.get(), a.get(), a_bytes);
    std::memcpy(pageable_a.data(), pinned_a.get(), a_bytes);
  }

  void poison() {  // some NaN in each page: a copy that is missing misses megabytes
    for (char* host : {pageable_c.data(), pinned_c.get()})
      for (size_t page = 0; page < c_bytes; page += 4096) std::memset(host + page, 0xff, 64);
    gpu::fill(ring_c.get(), 0xff, ring_c.bytes());
  }
  /// Bit for bit: the same kernel adds up an element in the same order, whatever the chunk.
  std::string check(bool in_pinned) const {
    GPU_CHECK(cudaMemcpy(c.get(), in_pinned ? pinned_c.get() : pageable_c.data(), c_bytes,
                         cudaMemcpyHostToDevice));
    gpu::fill(different.get(), 0, 8);
    gpu::launch(gpu::Stream{}, {dim3(unsigned(gpu::num_sms() * 8)), dim3(256)}, count_different,
                c.get<uint4>(), want.get<uint4>(), int64_t(c_bytes / 16),
                different.get<unsigned long long>());
    unsigned long long count;
    gpu::copy_to_host(&count, different.get(), 8);
    return count ? std::to_string(count) + " of " + std::to_string(c_bytes / 16) +
                       " groups of 8 elements differ from one launch"
                 : "";
  }
};

/// The rows cut into `chunks`, with the launch for each slot of the ring.
struct Chunks {
  std::shared_ptr<Streamed> data;
  int count;
  size_t a_bytes, c_bytes;  // of a chunk
  std::vector<Launch> multiply;  // by slot

  Chunks(std::shared_ptr<Streamed> all, int chunks)
      : data(std::move(all)), count(chunks), a_bytes(data->a_bytes / size_t(chunks)),
        c_bytes(data->c_bytes / size_t(chunks)) {
    for (int slot = 0; slot < SLOTS; ++slot)
      multiply.push_back(data->step.prepare(make_problem(data->M / chunks, data->N, data->K,
                                                         a(slot), data->b.get(), c(slot))));
  }
  char* a(int slot) const { return data->ring_a.get<char>() + size_t(slot) * a_bytes; }
  char* c(int slot) const { return data->ring_c.get<char>() + size_t(slot) * c_bytes; }
  char* host_a(bool pinned, int i) const {
    return (pinned ? data->pinned_a.get() : data->pageable_a.data()) + size_t(i) * a_bytes;
  }
  char* host_c(bool pinned, int i) const {
    return (pinned ? data->pinned_c.get() : data->pageable_c.data()) + size_t(i) * c_bytes;
  }
  // The three parts of the work on chunk i, in a buffer of the ring.
  void in(const Run& r, bool pinned, int i, int slot, gpu::Stream s) const {
    const auto mark = r.mark(s, "copy in", std::to_string(i));
    GPU_CHECK(cudaMemcpyAsync(a(slot), host_a(pinned, i), a_bytes, cudaMemcpyHostToDevice, s));
  }
  void product(const Run& r, int i, int slot, gpu::Stream s) const {
    const auto mark = r.mark(s, "multiply", std::to_string(i));
    multiply[size_t(slot)](s);
  }
  void out(const Run& r, bool pinned, int i, int slot, gpu::Stream s) const {
    const auto mark = r.mark(s, "copy out", std::to_string(i));
    GPU_CHECK(cudaMemcpyAsync(host_c(pinned, i), c(slot), c_bytes, cudaMemcpyDeviceToHost, s));
  }
};

/// cudaMemcpy: the host waits for each copy, and for the product before it can be fetched.
void blocking(const Chunks& chunks, bool pinned, const Run& r) {
  GPU_CHECK(cudaStreamSynchronize(r.stream));
  for (int i = 0; i < chunks.count; ++i) {
    {
      const auto mark = r.mark(cudaStreamLegacy, "copy in", std::to_string(i));
      GPU_CHECK(cudaMemcpy(chunks.a(0), chunks.host_a(pinned, i), chunks.a_bytes,
                           cudaMemcpyHostToDevice));
    }
    // From pageable memory cudaMemcpy may return while the last part is still on its way from the
    // driver's own buffer; only the default stream, which r.stream is not, would wait for it.
    GPU_CHECK(cudaStreamSynchronize(cudaStreamLegacy));
    chunks.product(r, i, 0, r.stream);
    GPU_CHECK(cudaStreamSynchronize(r.stream));
    const auto mark = r.mark(cudaStreamLegacy, "copy out", std::to_string(i));
    GPU_CHECK(cudaMemcpy(chunks.host_c(pinned, i), chunks.c(0), chunks.c_bytes,
                         cudaMemcpyDeviceToHost));
  }
}

/// Chunks in turn over n streams, all parts of a chunk in its stream.
struct RoundRobin {
  std::vector<std::shared_ptr<CUstream_st>> others;
  std::vector<Event> done;
  Event start = make_event();

  explicit RoundRobin(int streams) : done(make_events(streams - 1)) {
    for (int i = 1; i < streams; ++i) others.push_back(make_stream());
  }
  void run(const Chunks& chunks, bool pinned, const Run& r) const {
    record(start, r.stream);
    for (const auto& s : others) wait(s.get(), start);
    for (int i = 0; i < chunks.count; ++i) {
      const int n = i % (int(others.size()) + 1);  // the stream, and its buffer
      const gpu::Stream s = n ? others[size_t(n) - 1].get() : r.stream;
      chunks.in(r, pinned, i, n, s);
      chunks.product(r, i, n, s);
      chunks.out(r, pinned, i, n, s);
    }
    for (size_t n = 0; n < others.size(); ++n) {
      record(done[n], others[n].get());
      wait(r.stream, done[n]);
    }
  }
};

/// A stream for each direction of the bus and one for the products. A chunk is copied in once its
/// buffer's last product is done, multiplied once it is there and the last result has left.
struct ByEngine {
  std::shared_ptr<CUstream_st> in = make_stream(), out = make_stream();
  std::vector<Event> copied = make_events(SLOTS), multiplied = make_events(SLOTS),
                     fetched = make_events(SLOTS);
  Event start = make_event(), end = make_event();

  void run(const Chunks& chunks, bool pinned, const Run& r) const {
    record(start, r.stream);
    wait(in.get(), start);
    wait(out.get(), start);
    for (int i = 0; i < chunks.count; ++i) {
      const int slot = i % SLOTS;
      const size_t n = size_t(slot);
      if (i >= SLOTS) wait(in.get(), multiplied[n]);
      chunks.in(r, pinned, i, slot, in.get());
      record(copied[n], in.get());

      wait(r.stream, copied[n]);
      if (i >= SLOTS) wait(r.stream, fetched[n]);
      chunks.product(r, i, slot, r.stream);
      record(multiplied[n], r.stream);

      wait(out.get(), multiplied[n]);
      chunks.out(r, pinned, i, slot, out.get());
      record(fetched[n], out.get());
    }
    record(end, out.get());
    wait(r.stream, end);  // `in` is done long before
  }
};

/// `rows`: of a chunk, where the variant's name says no other number of chunks.
Setup streamed(int64_t M, int64_t N, int64_t K, int64_t rows) {
  if (const double need = Streamed::bytes(M, N, K) + 1e9; need > harness::free_memory())
    throw harness::Skip("needs " + harness::bytes_text(need) + " of GPU memory, " +
                        harness::bytes_text(harness::free_memory()) + " are free");
  const auto data = std::make_shared<Streamed>(M, N, K);
  const int usual = int(M / rows);
  const auto chunks = std::make_shared<Chunks>(data, usual);
  const auto last = std::make_shared<bool>(false);  // was the last result in pinned memory?
  Setup setup;
  setup.flop = 2.0 * double(M) * double(N) * double(K);
  setup.bytes = double(data->a_bytes + data->c_bytes);
  setup.idle_seconds = 0.040;
  setup.floor = {"copies_alone", "products_alone"};
  setup.poison = [data] { data->poison(); };
  setup.check = [data, last](int) { return data->check(*last); };
  const auto add = [&](const std::string& name, bool pinned, bool drawn, double count,
                       std::function<void(const Run&)> run) {
    Variant variant{name, [=](const Run& r) {
                      *last = pinned;
                      run(r);
                    }};
    variant.drawn = drawn;
    variant.counters = {{"chunks", count}};
    setup.variants.push_back(variant);
  };
  const auto engines = std::make_shared<ByEngine>();
  const auto one = std::make_shared<RoundRobin>(1), two = std::make_shared<RoundRobin>(2);
  add("pageable", false, true, usual, [=](const Run& r) { blocking(*chunks, false, r); });
  add("pageable_async", false, false, usual,
      [=](const Run& r) { engines->run(*chunks, false, r); });
  add("pinned_blocking", true, false, usual, [=](const Run& r) { blocking(*chunks, true, r); });
  add("one_stream", true, true, usual, [=](const Run& r) { one->run(*chunks, true, r); });
  add("two_streams", true, true, usual, [=](const Run& r) { two->run(*chunks, true, r); });
  for (int n : {usual, 4, 16}) {
    const auto cut = n == usual ? chunks : std::make_shared<Chunks>(data, n);
    add(n == usual ? "three_streams" : "three_streams_" + std::to_string(n), true, n == usual, n,
        [=](const Run& r) { engines->run(*cut, true, r); });
  }
  const auto part = [&](const std::string& name, double bytes,
                        std::function<void(const Run&)> run) {
    Variant variant{name, std::move(run)};
    variant.checked = false;
    variant.bytes = bytes;
    setup.variants.push_back(variant);
  };
  const auto in = [chunks](const Run& r, gpu::Stream s) {
    for (int i = 0; i < chunks->count; ++i) chunks->in(r, true, i, i % SLOTS, s);
  };
  const auto out = [chunks](const Run& r, gpu::Stream s) {
    for (int i = 0; i < chunks->count; ++i) chunks->out(r, true, i, i % SLOTS, s);
  };
  part("in_alone", double(data->a_bytes), [=](const Run& r) { in(r, r.stream); });
  part("out_alone", double(data->c_bytes), [=](const Run& r) { out(r, r.stream); });
  part("copies_alone", setup.bytes, [=](const Run& r) {  // both directions at once
    record(engines->start, r.stream);
    wait(engines->out.get(), engines->start);
    in(r, r.stream);
    out(r, engines->out.get());
    record(engines->end, engines->out.get());
    wait(r.stream, engines->end);
  });
  part("products_alone", 0, [=](const Run& r) {
    for (int i = 0; i < chunks->count; ++i) chunks->product(r, i, i % SLOTS, r.stream);
  });
  return setup;
}

}  // namespace

std::vector<harness::Workload> experiment() {
  // A chunk's tiles of 256x256 are 64 each time, for 66 pairs of SMs. The bus limits the first, the
  // products the second (README.md says from where on).
  return {{"24576x8192x8192", [] { return streamed(24576, 8192, 8192, 512); }},
          {"16384x16384x16384", [] { return streamed(16384, 16384, 16384, 256); }}};
}

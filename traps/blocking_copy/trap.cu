// blocking_copy: cudaMemcpy between kernels, and cudaMemcpyAsync of memory that is not pinned.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/blocking_copy/trap.cu
// ./trap wrong; ./trap pageable; ./trap right
#include "../trap.h"

constexpr int CHUNKS = 24;
constexpr size_t BYTES = 16 << 20;  // of a chunk
constexpr int KERNEL_NS = 300000;   // about as long as its copy takes at 55 GB/s

__global__ void chunk_kernel(char* chunk) {
  busy_for(KERNEL_NS);
  if (threadIdx.x == 0) ++*chunk;
}

// cudaMemcpy comes back when the data is there, and waits for the kernel before: one after another.
void wrong(char* const device[2], const char* host) {
  for (int i = 0; i < CHUNKS; ++i) {
    CHECK(cudaMemcpy(device[i % 2], host + i * BYTES, BYTES, cudaMemcpyHostToDevice));
    chunk_kernel<<<1, 32>>>(device[i % 2]);
    CHECK(cudaGetLastError());
  }
}

// Two streams, two buffers: the copy of one chunk runs beside the kernel of the other. From
// pageable memory the same call first copies, on this thread, into a pinned buffer of the driver's.
void async(char* const device[2], const char* host, const cudaStream_t stream[2]) {
  for (int i = 0; i < CHUNKS; ++i) {
    CHECK(cudaMemcpyAsync(device[i % 2], host + i * BYTES, BYTES, cudaMemcpyHostToDevice,
                          stream[i % 2]));
    chunk_kernel<<<1, 32, 0, stream[i % 2]>>>(device[i % 2]);
    CHECK(cudaGetLastError());
  }
}

int main(int, char** argv) {
  char *device[2], *pinned;
  cudaStream_t stream[2];
  for (int i = 0; i < 2; ++i) {
    CHECK(cudaMalloc(&device[i], BYTES));
    CHECK(cudaMemset(device[i], 0, BYTES));
    CHECK(cudaStreamCreateWithFlags(&stream[i], cudaStreamNonBlocking));
  }
  CHECK(cudaMallocHost(&pinned, CHUNKS * BYTES));
  std::vector<char> pageable(CHUNKS * BYTES, 1);  // written: every page is there
  memset(pinned, 1, CHUNKS * BYTES);
  for (int round = 0; round < 2; ++round) {  // the first warms up
    const double start = now();
    if (is(argv, "wrong"))
      wrong(device, pageable.data());
    else
      async(device, is(argv, "pageable") ? pageable.data() : pinned, stream);
    const double enqueued = now();
    CHECK(cudaDeviceSynchronize());
    const double total = now() - start;
    if (round == 0) continue;
    report("chunk", total / CHUNKS * 1e6, "us");
    report("host_waits", 100 * (enqueued - start) / total, "% of the time, inside the loop");
  }
}

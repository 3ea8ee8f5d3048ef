// sync_in_loop: cudaDeviceSynchronize after every step.
// nvcc -std=c++17 -O3 -arch=native -o trap traps/sync_in_loop/trap.cu
// ./trap wrong; ./trap right
#include "../trap.h"

constexpr int STEPS = 1000;
constexpr int KERNEL_NS = 20000;

__global__ void step_kernel() { busy_for(KERNEL_NS); }

// The GPU idles from the end of one kernel until the host has noticed and launched the next.
void wrong() {
  for (int step = 0; step < STEPS; ++step) {
    step_kernel<<<1, 32>>>();
    CHECK(cudaGetLastError());
    CHECK(cudaDeviceSynchronize());  // "to be sure"
  }
}

// Kernels of a stream run in order anyway. The host is ahead; the next launch waits in the queue.
void right() {
  for (int step = 0; step < STEPS; ++step) {
    step_kernel<<<1, 32>>>();
    CHECK(cudaGetLastError());
  }
  CHECK(cudaDeviceSynchronize());  // once, before the host reads a result
}

int main(int, char** argv) {
  step_kernel<<<1, 32>>>();  // the first launch loads code
  CHECK(cudaDeviceSynchronize());
  const double start = now();
  is(argv, "wrong") ? wrong() : right();
  const double step = (now() - start) / STEPS;
  report("step", step * 1e6, "us");
  report("busy", 100 * KERNEL_NS * 1e-9 / step, "% of the time a kernel runs");
}


// ---- the library: C functions, for ctypes or any other language ---------------------------------

static Step exported;
bool register_step(const Step& step) {
  exported = step;
  return true;
}

namespace {

thread_local std::string last_error;

template <class Result, class Work>
Result guarded(Result failed, Work work) {
  try {
    return work();
  } catch (const std::exception& e) {
    last_error = e.what();
    return failed;
  }
}

}  // namespace

extern "C" {

/// What went wrong in this thread's last call that failed.
const char* gemm_error() { return last_error.c_str(); }

/// Everything for C = A * B on these device pointers, to be run any number of times; null if it
/// can't be.
void* gemm_prepare(int64_t M, int64_t N, int64_t K, const void* A, const void* B, void* C) {
  return guarded(static_cast<void*>(nullptr), [&]() -> void* {
    const Problem problem = make_problem(M, N, K, A, B, C);
    const std::string why = exported.supports(problem);
    if (!why.empty()) throw gpu::Error(why);
    return new Launch(exported.prepare(problem));
  });
}

/// Enqueues it on a cudaStream_t; 0 if that worked.
int gemm_run(void* prepared, void* stream) {
  return guarded(1, [&] {
    (*static_cast<Launch*>(prepared))(static_cast<gpu::Stream>(stream));
    return 0;
  });
}

void gemm_release(void* prepared) { delete static_cast<Launch*>(prepared); }

}  // extern "C"

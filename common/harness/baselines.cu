#include "common/harness/baselines.h"

#include "common/harness/kind.h"

#include <cublasLt.h>
#include <cublas_v2.h>

namespace harness {
namespace {

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw gpu::Error(std::string(call) + ": " + cublasGetStatusString(status));
}
#define CUBLAS_CHECK(call) check((call), #call)

const float kOne = 1;

cudaDataType_t data_type(Type type) {
  return type == Type::f16 ? CUDA_R_16F : type == Type::bf16 ? CUDA_R_16BF : CUDA_R_32F;
}

/// A row-major matrix is, to cuBLAS, the transpose of what it wants, and so is C: nothing is to be
/// done. A column-major one must be transposed.
cublasOperation_t operation_of(Layout layout) {
  return layout == Layout::row_major ? CUBLAS_OP_N : CUBLAS_OP_T;
}

bool is_fused(const Problem& p) { return p.bias || p.activation != Activation::none; }

cublasLtEpilogue_t epilogue_of(const Problem& p) {  // the bias runs along N, its rows
  if (p.activation == Activation::relu)
    return p.bias ? CUBLASLT_EPILOGUE_RELU_BIAS : CUBLASLT_EPILOGUE_RELU;
  if (p.activation == Activation::gelu)
    return p.bias ? CUBLASLT_EPILOGUE_GELU_BIAS : CUBLASLT_EPILOGUE_GELU;
  return p.bias ? CUBLASLT_EPILOGUE_BIAS : CUBLASLT_EPILOGUE_DEFAULT;
}

__global__ void widen(const __half* from, float* to, int64_t count) {
  const int64_t stride = int64_t(gridDim.x) * blockDim.x;
  for (int64_t i = int64_t(blockIdx.x) * blockDim.x + threadIdx.x; i < count; i += stride)
    to[i] = __half2float(from[i]);
}

}  // namespace

// cuBLAS is column-major: our row-major C = A B is its C^T = B^T A^T, so B comes first, and the
// sizes are N, M, K. With row-major A and B nothing is transposed.
struct Baselines::Impl {
  gpu::Stream stream;
  std::vector<Problem> problems;
  gpu::Buffer workspace{kWorkspace, "workspace of cuBLAS"};
  cublasHandle_t handle = nullptr;
  cublasLtHandle_t lt = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t a = nullptr, b = nullptr, c = nullptr;
  std::vector<std::unique_ptr<gpu::Buffer>> a32, b32;
  std::unique_ptr<gpu::Buffer> c32;
  bool fp32_sums = false;

  ~Impl() {
    for (cublasLtMatrixLayout_t layout : {a, b, c})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation) cublasLtMatmulDescDestroy(operation);
    if (lt) cublasLtDestroy(lt);
    if (handle) cublasDestroy(handle);
  }
  /// What cublasLt proposes when asked for 16, best guess first.
  std::vector<cublasLtMatmulAlgo_t> proposed() const {
    cublasLtMatmulPreference_t preference;
    CUBLAS_CHECK(cublasLtMatmulPreferenceCreate(&preference));
    const size_t most = kWorkspace;
    CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
        preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &most, sizeof most));
    const uint32_t fp32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
    if (fp32_sums)
      CUBLAS_CHECK(cublasLtMatmulPreferenceSetAttribute(
          preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &fp32, sizeof fp32));
    cublasLtMatmulHeuristicResult_t results[16];
    int count = 0;
    const cublasStatus_t status = cublasLtMatmulAlgoGetHeuristic(lt, operation, b, a, c, c,
                                                                 preference, 16, results, &count);
    cublasLtMatmulPreferenceDestroy(preference);
    CUBLAS_CHECK(status);
    std::vector<cublasLtMatmulAlgo_t> algorithms;
    for (int i = 0; i < count; ++i)
      if (results[i].state == CUBLAS_STATUS_SUCCESS) algorithms.push_back(results[i].algo);
    if (algorithms.empty()) throw gpu::Error("cublasLtMatmulAlgoGetHeuristic proposes nothing");
    return algorithms;
  }
  void lt_gemm(const cublasLtMatmulAlgo_t& algorithm, int set) const {
    const Problem& p = problems[size_t(set)];
    CUBLAS_CHECK(cublasLtMatmul(lt, operation, &p.alpha, p.B, b, p.A, a, &p.beta, p.C, c, p.C, c,
                                &algorithm, workspace.get(), kWorkspace, stream));
  }
};

Baselines::Baselines(gpu::Stream stream, const std::vector<Problem>& problems)
    : impl_(new Impl{stream, problems}) {
  const Problem& p = problems.at(0);
  CUBLAS_CHECK(cublasCreate(&impl_->handle));
  CUBLAS_CHECK(cublasSetStream(impl_->handle, stream));  // before the workspace: it resets that
  CUBLAS_CHECK(cublasSetWorkspace(impl_->handle, impl_->workspace.get(), kWorkspace));
  CUBLAS_CHECK(cublasLtCreate(&impl_->lt));
  CUBLAS_CHECK(cublasLtMatmulDescCreate(&impl_->operation, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  const cublasOperation_t op_a = operation_of(p.layout_a), op_b = operation_of(p.layout_b);
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(impl_->operation, CUBLASLT_MATMUL_DESC_TRANSA, &op_b,
                                              sizeof op_b));
  CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(impl_->operation, CUBLASLT_MATMUL_DESC_TRANSB, &op_a,
                                              sizeof op_a));
  if (is_fused(p)) {
    const cublasLtEpilogue_t epilogue = epilogue_of(p);
    CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(
        impl_->operation, CUBLASLT_MATMUL_DESC_EPILOGUE, &epilogue, sizeof epilogue));
    if (p.bias)  // the same for all sets
      CUBLAS_CHECK(cublasLtMatmulDescSetAttribute(
          impl_->operation, CUBLASLT_MATMUL_DESC_BIAS_POINTER, &p.bias, sizeof p.bias));
  }
  const auto layout = [&](cublasLtMatrixLayout_t* made, const Storage& s) {
    // Column-major: `inner` elements lie together, `outer` times.
    CUBLAS_CHECK(cublasLtMatrixLayoutCreate(made, data_type(s.type), uint64_t(s.inner),
                                            uint64_t(s.outer), s.ld));
    const int32_t batch = int32_t(s.batch);
    if (batch == 1) return;
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(*made, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &batch,
                                                  sizeof batch));
    CUBLAS_CHECK(cublasLtMatrixLayoutSetAttribute(
        *made, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &s.stride, sizeof s.stride));
  };
  layout(&impl_->b, storage_b(p));
  layout(&impl_->a, storage_a(p));
  layout(&impl_->c, storage_c(p));
}

Baselines::~Baselines() = default;

std::string Baselines::version() {
  int major = 0, minor = 0, patch = 0;
  cublasGetProperty(MAJOR_VERSION, &major);
  cublasGetProperty(MINOR_VERSION, &minor);
  cublasGetProperty(PATCH_LEVEL, &patch);
  return std::to_string(major) + "." + std::to_string(minor) + "." + std::to_string(patch);
}

void Baselines::sum_in_fp32() {
  impl_->fp32_sums = true;
  CUBLAS_CHECK(cublasSetMathMode(impl_->handle, CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION));
}

Contender Baselines::default_gemm() const {
  Contender contender;
  contender.name = "cublas_default";
  if (is_fused(impl_->problems[0])) {  // cublasGemmEx has no epilogue
    contender.launch = [impl = impl_, first = impl_->proposed()[0]](int set, gpu::Stream) {
      impl->lt_gemm(first, set);
    };
    return contender;
  }
  contender.launch = [impl = impl_](int set, gpu::Stream) {
    const Problem& p = impl->problems[size_t(set)];
    const cudaDataType_t in = data_type(p.type_ab), out = data_type(p.type_c);
    const cublasOperation_t op_a = operation_of(p.layout_a), op_b = operation_of(p.layout_b);
    const int M = int(p.M), N = int(p.N), K = int(p.K);
    const int lda = int(p.lda), ldb = int(p.ldb), ldc = int(p.ldc);
    if (p.batch == 1)
      CUBLAS_CHECK(cublasGemmEx(impl->handle, op_b, op_a, N, M, K, &p.alpha, p.B, in, ldb, p.A, in,
                                lda, &p.beta, p.C, out, ldc, CUBLAS_COMPUTE_32F,
                                CUBLAS_GEMM_DEFAULT));
    else
      CUBLAS_CHECK(cublasGemmStridedBatchedEx(
          impl->handle, op_b, op_a, N, M, K, &p.alpha, p.B, in, ldb, p.stride_b, p.A, in, lda,
          p.stride_a, &p.beta, p.C, out, ldc, p.stride_c, int(p.batch), CUBLAS_COMPUTE_32F,
          CUBLAS_GEMM_DEFAULT));
  };
  return contender;
}

Contender Baselines::best_gemm(Stopwatch& stopwatch, Regime regime) const {
  std::vector<Contender> candidates;
  for (const cublasLtMatmulAlgo_t& algorithm : impl_->proposed()) {
    Contender contender;
    contender.name = "cublas_best";
    contender.launch = [impl = impl_, algorithm](int set, gpu::Stream) {
      impl->lt_gemm(algorithm, set);
    };
    stopwatch.calibrate(contender);
    candidates.push_back(contender);
  }
  return candidates[rank(stopwatch, regime, candidates)[0].first];
}

double Baselines::fp32_bytes(const Problem& p, size_t sets) {
  return 4.0 * (double(sets) * (double(p.M) * p.K + double(p.K) * p.N) + double(p.M) * p.N);
}

Contender Baselines::fp32_gemm() {
  const Problem& p = impl_->problems[0];
  const auto copy = [&](const void* from, int64_t count) {
    auto to = std::make_unique<gpu::Buffer>(size_t(count) * 4, "FP32 copy");
    gpu::launch(impl_->stream, {dim3(unsigned(gpu::num_sms() * 8)), dim3(256)}, widen,
                static_cast<const __half*>(from), to->get<float>(), count);
    return to;
  };
  for (const Problem& set : impl_->problems) {
    impl_->a32.push_back(copy(set.A, p.M * p.K));
    impl_->b32.push_back(copy(set.B, p.K * p.N));
  }
  impl_->c32 = std::make_unique<gpu::Buffer>(size_t(p.M * p.N) * 4, "FP32 C");
  Contender contender;
  contender.name = "cublas_fp32";
  contender.launch = [impl = impl_](int set, gpu::Stream) {
    const Problem& q = impl->problems[size_t(set)];
    CUBLAS_CHECK(cublasSgemm(impl->handle, CUBLAS_OP_N, CUBLAS_OP_N, int(q.N), int(q.M), int(q.K),
                             &kOne, impl->b32[size_t(set)]->get<float>(), int(q.N),
                             impl->a32[size_t(set)]->get<float>(), int(q.K), &q.beta,
                             impl->c32->get<float>(), int(q.N)));
  };
  return contender;
}

}  // namespace harness

// 29 as a function: C = alpha * A * B + beta * C, any shape, layout and leading dimension.
#pragma once
#include <string>
#include <vector>

#include "common/gpu/gpu.h"
#include "common/problem.h"

/// Problem (common/problem.h) as it is; `bias` must be null. C is row-major. Pointers, leading
/// dimensions and strides need the alignment of their element, no more. beta = 0 never reads C,
/// alpha = 0 never reads A and B. stride_a or stride_b = 0: one matrix for the whole batch.
using GemmParams = Problem;

/// "" or, in one line, why these parameters are refused.
std::string gemm_why_not(const GemmParams&);

/// What `gemm` needs beside its operands, in bytes. Zero it once when you allocate it: it begins
/// with counters, which every call leaves at zero. One workspace for each stream that may run at
/// the same time; 256-byte aligned, as cudaMalloc returns it.
size_t gemm_workspace_bytes(const GemmParams&);

/// Enqueues C = alpha * A * B + beta * C. Allocates nothing, waits for nothing, keeps nothing, may
/// be called from any number of threads and inside graph capture. cudaErrorInvalidValue: refused,
/// or too little workspace; nothing was enqueued.
gpu::Status gemm(const GemmParams&, void* workspace, size_t workspace_bytes, gpu::Stream);

/// Whether the same call on the same GPU gives the same bits every time.
bool gemm_is_reproducible(const GemmParams&);

/// The configuration that `gemm` takes, as text, and those worth trying (tools/tune.py), that one
/// first. LADDER_GEMM_CONFIG forces one; LADDER_GEMM_TUNED names a file of measured ones.
std::string gemm_config(const GemmParams&);
std::vector<std::string> gemm_candidates(const GemmParams&);

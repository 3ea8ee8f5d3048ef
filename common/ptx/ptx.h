// What a kernel may call: one function per PTX instruction, on the backend of this build.
#pragma once
#if defined(LADDER_EMULATED)
#include "common/ptx/emulated.h"
#elif defined(LADDER_TRACE)
#include "common/ptx/trace.h"
#elif defined(__CUDACC__)  // host code (g++) sees no instruction
#include "common/ptx/cuda.h"
#endif

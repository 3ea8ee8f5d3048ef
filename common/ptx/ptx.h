// What a kernel may call: one function per PTX instruction, on the backend of this build.
#pragma once
#if defined(LADDER_EMULATED)
#include "common/ptx/emulated.h"
#elif defined(LADDER_TRACE)
#include "common/ptx/trace.h"
#else
#include "common/ptx/cuda.h"
#endif

// Host side of a device, real or emulated: memory, launch, tensor maps, errors.
// Both backends define the same names; each lists what a step may use.
#pragma once
#if defined(LADDER_EMULATED)
#include "common/gpu/emulated.h"
#else
#include "common/gpu/cuda.h"
#endif

// Instruction sets that heavy kernels are compiled for: the baseline, SSE4, AVX2, AVX-512 (AVX3) and NEON. The others bring
// nothing to float32 arithmetic (SSSE3, AVX3_DL) or have vectors without a fixed size, which cannot be array elements (SVE, RVV).
// Include before <hwy/foreach_target.h>.
#pragma once

#ifndef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_SSSE3 | HWY_AVX3_DL | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128 | HWY_RVV)
#endif

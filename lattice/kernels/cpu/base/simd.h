// Which instruction set Highway dispatches to on this machine.
#pragma once

namespace lattice::cpu {

// Highway's name of the target that kernels run on, e.g. "AVX3_ZEN4", "AVX2", "NEON".
const char* simd_name();

}  // namespace lattice::cpu

// exact.metal for CUDA: NVRTC fuses a product and a sum unless it is told otherwise.
#pragma once

namespace lattice {

METAL_FUNC float rounded_product(float a, float b) { return __fmul_rn(a, b); }
METAL_FUNC float rounded_sum(float a, float b) { return __fadd_rn(a, b); }

}  // namespace lattice

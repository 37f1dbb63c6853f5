// Operations that are rounded one by one, where the bits must be those of the CPU. No topic of its
// own.
#pragma once
#pragma METAL fp contract(off)

namespace lattice {

METAL_FUNC float rounded_product(float a, float b) { return a * b; }
METAL_FUNC float rounded_sum(float a, float b) { return a + b; }

}  // namespace lattice

// Operations that are rounded one by one, for results that must have the bits of the CPU. Not a
// topic of its own.
#pragma once
#pragma METAL fp contract(off)

namespace lattice {

METAL_FUNC float rounded_product(float a, float b) { return a * b; }
METAL_FUNC float rounded_sum(float a, float b) { return a + b; }

}  // namespace lattice

// Products of MLX's own matmul, which the rows gpu.mlx use.
//
// A GPU may round float32 operands to TF32, 11 bits of significand, before it multiplies: Macs with
// neural accelerators and CUDA do unless MLX_ENABLE_TF32=0. Values of 16 bits are exact in TF32.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

namespace lattice {

namespace mx = mlx::core;

enum class Products { float32, tf32 };
const char* name(Products products);
// What MLX multiplies float32 with on the GPU of this machine.
Products mlx_products();

// a b, and c + a b.
mx::array product(const mx::array& a, const mx::array& b, mx::StreamOrDevice s);
mx::array product_plus(const mx::array& c, const mx::array& a, const mx::array& b,
                       mx::StreamOrDevice s);

}  // namespace lattice

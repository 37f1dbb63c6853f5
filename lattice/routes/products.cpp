#include "lattice/routes/products.h"

#include <mlx/ops.h>

#include <cstdlib>

#include "lattice/routes/capability.h"

namespace lattice {
namespace {

// As MLX reads it.
bool tf32_enabled() {
  const char* text = std::getenv("MLX_ENABLE_TF32");
  return !text || std::atoi(text) != 0;
}

// Rounds an operand to TF32 when a test stands in for a GPU: to nearest, 11 bits of significand,
// the 13 bits below cleared. The difference to the operand is exact and a constant, so gradients
// ignore it.
mx::array rounded(const mx::array& a, mx::StreamOrDevice s) {
  if (!graph::stand_in().tf32_products || a.dtype() != mx::float32) return a;
  const mx::array bits = mx::view(a, mx::uint32, s);
  const mx::array up = mx::add(bits, mx::array(uint32_t{1} << 12), s);
  const mx::array kept = mx::bitwise_and(up, mx::array(~((uint32_t{1} << 13) - 1)), s);
  const mx::array less = mx::subtract(mx::view(kept, mx::float32, s), a, s);
  return mx::add(a, mx::stop_gradient(less, s), s);
}

}  // namespace

const char* name(Products products) { return products == Products::tf32 ? "tf32" : "float32"; }

Products mlx_products() {
  const bool has_units = has_cuda() || tensor_ops() == TensorOps::neural_accelerator;
  return has_units && tf32_enabled() ? Products::tf32 : Products::float32;
}

mx::array product(const mx::array& a, const mx::array& b, mx::StreamOrDevice s) {
  return mx::matmul(rounded(a, s), rounded(b, s), s);
}

mx::array product_plus(const mx::array& c, const mx::array& a, const mx::array& b,
                       mx::StreamOrDevice s) {
  return mx::addmm(c, rounded(a, s), rounded(b, s), 1.0f, 1.0f, s);
}

}  // namespace lattice

// The arithmetic of optimizers, which MLX's modules keep the state for; docs/ops/optimizer.md.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <vector>

namespace lattice {
namespace mx = mlx::core;

struct AdamwBetas {
  double b1 = 0.9, b2 = 0.999;
  float eps = 1e-8f;
};

// {parameter, m, v} after one step of AdamW. All arrays are float32, of one shape. rates (3,)
// float32 holds decay, rate and correction. So nobody has to wait for a learning rate that is
// itself computed.
std::vector<mx::array> adamw_step(const mx::array& parameter, const mx::array& gradient,
                                  const mx::array& m, const mx::array& v, const mx::array& rates,
                                  const AdamwBetas& betas = {}, mx::StreamOrDevice s = {});

}  // namespace lattice

/// @file
/// The arithmetic of optimizers; the state stays in MLX's optimizer classes. See
/// docs/ops/optimizer.md.
#pragma once

#include <vector>

#include "lattice/core/names.h"

namespace lattice {

/// Numbers of AdamW that do not change from step to step.
struct AdamwBetas {
  double b1 = 0.9;    ///< of the first moment
  double b2 = 0.999;  ///< of the second moment
  float eps = 1e-8f;  ///< added to the root of the second moment
};

/// {parameter, m, v} after one step of AdamW. All arrays are float32, of one shape. rates (3,)
/// float32 holds decay, rate and correction. They are an array, so that a computed learning rate
/// need not be evaluated first. With two more values, (5,), the fourth says whether the step counts
/// (1) or keeps the old values (0), and the fifth is a factor of the gradient.
LATTICE_API std::vector<mx::array> adamw_step(const mx::array& parameter, const mx::array& gradient,
                                              const mx::array& m, const mx::array& v,
                                              const mx::array& rates, const AdamwBetas& betas = {},
                                              mx::StreamOrDevice s = {});

/// Whether all values of all arrays are finite: a scalar, true or false.
LATTICE_API mx::array all_finite(const std::vector<mx::array>& arrays, mx::StreamOrDevice s = {});

}  // namespace lattice

/// @file
/// Weights to packed codes and back.
///
///     scale, bias, code = mx::quantize(W, mode "affine") along C_in
///     W' = scale * code + bias
#pragma once

#include <mlx/utils.h>

#include <optional>

#include "lattice/core/weights.h"

namespace lattice {

/// weight: (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in), float32, float16 or
/// bfloat16. Scales and biases get the dtype of the weight. bits: 4 or 8. group_size: 32, 64 or
/// 128; by default 64 when C_in >= 64, else 32. C_in is padded with zeros to a multiple.
LATTICE_API QuantizedWeight quantize_weight(const mx::array& weight,
                                            std::optional<int64_t> group_size = std::nullopt,
                                            int64_t bits = 4, mx::StreamOrDevice s = {});

/// W' in the dense layout: product and sum in float32, then one rounding to the dtype. What packed
/// convolutions compute with.
LATTICE_API mx::array dequantize_weight(const QuantizedWeight& q, mx::StreamOrDevice s = {});

}  // namespace lattice

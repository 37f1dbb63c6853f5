#include "lattice/ops/quantize.h"

#include <mlx/ops.h>

#include "lattice/core/arrays.h"
#include "lattice/ops/check.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

constexpr const char* kName = "quantize_weight";

mx::array transposed(const mx::array& a, mx::StreamOrDevice s) {
  return mx::transpose(a, {0, 2, 1}, s);
}

}  // namespace

QuantizedWeight quantize_weight(const mx::array& weight, std::optional<int64_t> group_size,
                                int64_t bits, mx::StreamOrDevice s) {
  check_float(kName, weight);
  const int rank = static_cast<int>(weight.ndim());
  if (rank != 2 && rank != 3 && rank != 5)
    fail(kName,
         "weight must have shape (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in), "
         "got " +
             shape_text(weight.shape()));
  if (weight.size() == 0)
    fail(kName, "weight must not be empty, got shape " + shape_text(weight.shape()));
  const auto layout = rank == 2   ? WeightLayout::linear
                      : rank == 3 ? WeightLayout::kernel_major
                                  : WeightLayout::dense_5d;
  // (K, C_out, C_in): mx::quantize works along the last axis.
  const mx::Shape& shape = weight.shape();
  Triple size{1, 1, 1};
  mx::array w = weight;
  if (rank == 2) {
    w = mx::expand_dims(weight, 0, s);
  } else if (rank == 3) {
    size[0] = shape[0];
    w = transposed(weight, s);
  } else {
    size = {shape[1], shape[2], shape[3]};
    w = mx::transpose(mx::reshape(weight, {shape[0], shape[1] * shape[2] * shape[3], shape[4]}, s),
                      {1, 0, 2}, s);
  }
  const int in = w.shape(2);
  const int64_t group = group_size.value_or(default_group_size(in));
  check_packing(kName, bits, group);
  const int g = static_cast<int>(group), padding = (g - in % g) % g;
  if (padding)
    w = mx::pad(w, {{0, 0}, {0, 0}, {0, padding}}, mx::array(0.0f, weight.dtype()), "constant", s);
  std::vector<mx::array> parts = mx::quantize(mx::contiguous(w, false, s), g,
                                              static_cast<int>(bits), "affine", std::nullopt, s);
  // Contiguous, so that the dense weight is not kept alive and every call reads them as they are.
  for (mx::array& part : parts)
    part = mx::contiguous(w.shape(0) == 1 ? part : transposed(part, s), false, s);
  return QuantizedWeight({.weight = parts[0],
                          .scales = parts[1],
                          .biases = parts[2],
                          .group_size = group,
                          .bits = bits,
                          .in_channels = in,
                          .out_channels = w.shape(1),
                          .kernel_size = size,
                          .layout = layout});
}

mx::array dequantize_weight(const QuantizedWeight& q, mx::StreamOrDevice s) {
  const mx::array w = routes::dequantize_codes(q.weight(), q.scales(), q.biases(), q.is_pointwise(),
                                               q.group_size(), q.bits(), q.in_channels(), s);
  switch (q.layout()) {
    case WeightLayout::linear:
      return mx::squeeze(transposed(w, s), 0, s);
    case WeightLayout::kernel_major:
      return w;
    default:
      return mx::reshape(mx::transpose(w, {2, 0, 1}, s), q.dense_shape(), s);
  }
}

}  // namespace lattice

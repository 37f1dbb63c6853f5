#include "lattice/routes/packed_weight.h"

#include "lattice/core/arrays.h"

#include <mlx/ops.h>

namespace lattice::routes {
namespace {

mx::array transposed(const mx::array& a, mx::StreamOrDevice s) {
  return mx::transpose(a, {0, 2, 1}, s);
}

// Offsets [first, first + n) of a packed weight, dense, (n, c_in / groups, c_out).
mx::array dense_offsets(const ConvAsked& asked, int first, int n) {
  const auto s = asked.stream;
  const auto& [scales, biases, p] = *asked.weight.codes;
  const auto part = [&](const mx::array& a) {
    return mx::slice(a, {first, 0, 0}, {first + n, a.shape(1), a.shape(2)}, s);
  };
  const mx::array w = dequantize_codes(part(asked.weight.w), part(scales), part(biases),
                                       asked.weight.w.shape(0) == 1, p.group_size, p.bits,
                                       p.transposed ? asked.out_group() : asked.in_group(), s);
  return p.transposed ? transposed_weight(w, asked.groups, s) : w;
}

}  // namespace

mx::array side_by_side(const mx::array& a, mx::StreamOrDevice s) {
  if (a.shape(1) == 1) return mx::squeeze(a, 1, s);
  return mx::reshape(mx::transpose(a, {0, 2, 1, 3}, s),
                     {a.shape(0), a.shape(2), a.shape(1) * a.shape(3)}, s);
}

mx::array transposed_weight(const mx::array& w, int64_t groups, mx::StreamOrDevice s) {
  if (groups == 1) return mx::transpose(w, {0, 2, 1}, s);
  const int k = w.shape(0), ci = w.shape(1), g = static_cast<int>(groups), co = w.shape(2) / g;
  return mx::reshape(mx::transpose(mx::reshape(w, {k, ci, g, co}, s), {0, 3, 2, 1}, s),
                     {k, co, g * ci}, s);
}

mx::array dequantize_codes(const mx::array& codes, const mx::array& scales, const mx::array& biases,
                           bool by_output, int64_t group_size, int64_t bits, int64_t in_channels,
                           mx::StreamOrDevice s) {
  const auto rows = [&](const mx::array& a) {
    return by_output ? a : mx::contiguous(transposed(a, s), false, s);
  };
  mx::array w = mx::dequantize(rows(codes), as_float32(rows(scales), s),
                               as_float32(rows(biases), s), static_cast<int>(group_size),
                               static_cast<int>(bits), "affine", std::nullopt, std::nullopt, s);
  w = mx::slice(w, {0, 0, 0}, {w.shape(0), w.shape(1), static_cast<int>(in_channels)}, s);
  return transposed(mx::astype(w, scales.dtype(), s), s);
}

ConvAsked with_dense_weight(const ConvAsked& asked) {
  if (!asked.weight.codes) return asked;
  ConvAsked dense = asked;
  dense.weight.w = dense_offsets(asked, 0, asked.weight.w.shape(0));
  dense.weight.codes = {};
  return dense;
}

mx::array weight_of_offset(const ConvAsked& asked, int k) {
  const auto s = asked.stream;
  if (asked.weight.codes) return mx::squeeze(dense_offsets(asked, k, 1), 0, s);
  const mx::array& w = asked.weight.w;
  return mx::squeeze(mx::slice(w, {k, 0, 0}, {k + 1, w.shape(1), w.shape(2)}, s), 0, s);
}

}  // namespace lattice::routes

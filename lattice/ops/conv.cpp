#include "lattice/ops/conv.h"

#include <mlx/ops.h>

#include <cmath>

#include "lattice/ops/check.h"
#include "lattice/ops/conv_core.h"
#include "lattice/ops/quantize_conv.h"
#include "lattice/routes/capability.h"

namespace lattice {
namespace {

using Bias = std::optional<mx::array>;

// Any accepted layout as a view (K, C_in / groups, C_out).
mx::array kernel_major(const std::string& op, const mx::array& w, const KernelSpec& spec,
                       int64_t c_in, int64_t groups, mx::StreamOrDevice s) {
  if (groups < 1 || c_in % groups != 0)
    fail(op, "groups must be >= 1 and divide C_in = " + std::to_string(c_in) + ", got " +
                 std::to_string(groups));
  const int64_t in_group = c_in / groups, k = spec.volume();
  const auto wrong = [&](const std::string& expected) {
    fail(op, "weight must have shape " + expected + ", got " + shape_text(w.shape()));
  };
  const std::string ins = std::to_string(in_group);
  if (w.ndim() == 2) {
    if (!spec.is_pointwise())
      fail(op, "a weight (C_out, C_in) is for pointwise kernels only, got shape " +
                   shape_text(w.shape()) + " with " + spec.text());
    if (w.shape(1) != in_group) wrong("(C_out, " + ins + ")");
    return mx::expand_dims(mx::transpose(w, s), 0, s);
  }
  if (w.ndim() == 3) {
    if (w.shape(0) != k || w.shape(1) != in_group)
      wrong("(" + std::to_string(k) + ", " + ins + ", C_out)");
    return w;
  }
  const Triple& z = spec.size;
  if (w.ndim() != 5 || w.shape(1) != z[0] || w.shape(2) != z[1] || w.shape(3) != z[2] ||
      w.shape(4) != in_group)
    wrong("(C_out, " + std::to_string(z[0]) + ", " + std::to_string(z[1]) + ", " +
          std::to_string(z[2]) + ", " + ins + ") or (" + std::to_string(k) + ", " + ins +
          ", C_out)");
  return mx::transpose(mx::reshape(w, {w.shape(0), static_cast<int>(k), w.shape(4)}, s), {1, 2, 0},
                       s);
}

// A packed weight that does not belong to the kernel and the features.
void check_packed(const std::string& op, const QuantizedWeight& w, const KernelSpec& spec,
                  int64_t c_in, int64_t groups) {
  const bool fits = w.layout() == WeightLayout::linear     ? spec.is_pointwise()
                    : w.layout() == WeightLayout::dense_5d ? w.kernel_size() == spec.size
                                                           : w.n_k() == spec.volume();
  if (!fits) fail(op, "weight must be packed for " + spec.text() + ", got " + w.text());
  if (groups < 1 || w.in_channels() * groups != c_in || w.out_channels() % groups != 0)
    fail(op, "weight must be packed for C_in = " + std::to_string(c_in) + " with " +
                 std::to_string(groups) + " groups, got " + w.text());
}

// What every convolution asks of its arrays.
void check_arrays(const std::string& op, const SparseTensor& x, mx::Dtype weight_dtype,
                  int64_t c_out, const Bias& bias, mx::StreamOrDevice s) {
  check_float(op, x);
  check_same_dtype(op, "weight", weight_dtype, x.dtype(),
                   "; convert one: x.astype(...) or weight.astype(...), "
                   "of a module model.set_dtype(...)");
  check_bias(op, bias, c_out);
  check_coords_on_device(op, x.coords(), s);
}

// The relation of a call; null for a pointwise kernel on x's own coordinates.
Relation::Ptr find_relation(const std::string& op, RelationKind kind, const SparseTensor& x,
                            const ConvOptions& options, mx::StreamOrDevice s) {
  const KernelSpec& spec = options.spec;
  const bool submanifold = kind == RelationKind::submanifold;
  if (submanifold && !spec.is_centered_submanifold())
    fail(op, "needs an odd kernel_size on each axis, got " + triple_text(spec.size));
  const bool onto = options.coordinates && !submanifold;
  if (!onto && spec.is_pointwise()) return nullptr;
  if (!onto) return relation_of(kind, x, spec, std::nullopt, op, s);
  return relation_of(
      offsets_start_at_zero(kind) ? RelationKind::target_transposed : RelationKind::target, x, spec,
      options.coordinates, op, s);
}

SparseTensor convolve(const std::string& op, RelationKind kind, const SparseTensor& x,
                      const Weight& weight, const Bias& bias, const ConvOptions& options,
                      std::optional<float> eps, mx::StreamOrDevice s) {
  if (eps && !(*eps > 0 && std::isfinite(*eps)))
    fail(op, "eps must be > 0, got " + std::to_string(*eps));
  if (const auto* packed = std::get_if<QuantizedWeight>(&weight)) {
    if (eps) fail(op, "weight must be dense: W^2 is needed, got " + packed->text());
    check_packed(op, *packed, options.spec, x.channels(), options.groups);
    // float32 scales run on 16-bit features too.
    check_arrays(op, x, packed->dtype() == mx::float32 ? x.dtype() : packed->dtype(),
                 packed->out_channels(), bias, s);
    const Relation::Ptr r = find_relation(op, kind, x, options, s);
    if (r)
      return result_on(x, *r->out_key(), conv(x.feats(), *packed, r, bias, options.groups, s, op));
    if (options.groups == 1) return x.with_feats(matmul_rows(x.feats(), *packed, bias, s, op));
    return x.with_feats(conv(x.feats(), *packed, Relation::identity(x.active_count()), bias,
                             options.groups, s, op));
  }
  const mx::array w =
      kernel_major(op, std::get<mx::array>(weight), options.spec, x.channels(), options.groups, s);
  check_arrays(op, x, w.dtype(), w.shape(2), bias, s);
  const Relation::Ptr r = find_relation(op, kind, x, options, s);
  if (!r) {
    if (options.groups == 1)
      return x.with_feats(matmul_rows(x.feats(), mx::squeeze(w, 0, s), bias, s, op));
    return x.with_feats(
        conv(x.feats(), w, Relation::identity(x.active_count()), bias, options.groups, s, op));
  }
  if (!eps) return result_on(x, *r->out_key(), conv(x.feats(), w, r, bias, options.groups, s, op));
  // conv(1, W^2) needs no features: with one input channel of ones the sum over C_in is taken once
  // per weight. Both sums stay in float32, so that the result is rounded once.
  const mx::array w32 = as_float32(w, s);
  const mx::array norm_w = mx::sum(mx::square(w32, s), 1, true, s);
  const mx::array ones = mx::ones({static_cast<int>(x.active_count()), 1}, mx::float32, s);
  const mx::array norm =
      mx::rsqrt(mx::add(conv(ones, norm_w, r, std::nullopt, 1, s), mx::array(*eps), s), s);
  mx::array y =
      conv(mx::astype(x.feats(), mx::float32, s), w32, r, std::nullopt, options.groups, s);
  y = mx::multiply(y, norm, s);
  if (bias) y = mx::add(y, mx::astype(mx::astype(*bias, x.dtype(), s), mx::float32, s), s);
  return result_on(x, *r->out_key(), mx::astype(y, x.dtype(), s));
}

}  // namespace

SparseTensor conv3d(const SparseTensor& x, const Weight& weight, const Bias& bias,
                    const ConvOptions& options, mx::StreamOrDevice s) {
  return convolve("conv3d", RelationKind::forward, x, weight, bias, options, std::nullopt, s);
}

SparseTensor subm_conv3d(const SparseTensor& x, const Weight& weight, const Bias& bias,
                         const ConvOptions& options, mx::StreamOrDevice s) {
  return convolve("subm_conv3d", RelationKind::submanifold, x, weight, bias, options, std::nullopt,
                  s);
}

SparseTensor conv_transpose3d(const SparseTensor& x, const Weight& weight, const Bias& bias,
                              const ConvOptions& options, mx::StreamOrDevice s) {
  return convolve("conv_transpose3d", RelationKind::transposed, x, weight, bias, options,
                  std::nullopt, s);
}

SparseTensor generative_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                         const Bias& bias, const ConvOptions& options,
                                         mx::StreamOrDevice s) {
  return convolve("generative_conv_transpose3d", RelationKind::generative, x, weight, bias, options,
                  std::nullopt, s);
}

SparseTensor normalized_subm_conv3d(const SparseTensor& x, const Weight& weight, const Bias& bias,
                                    const ConvOptions& options, float eps, mx::StreamOrDevice s) {
  return convolve("normalized_subm_conv3d", RelationKind::submanifold, x, weight, bias, options,
                  eps, s);
}

SparseTensor normalized_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                         const Bias& bias, const ConvOptions& options, float eps,
                                         mx::StreamOrDevice s) {
  return convolve("normalized_conv_transpose3d", RelationKind::transposed, x, weight, bias, options,
                  eps, s);
}

SparseTensor normalized_generative_conv_transpose3d(const SparseTensor& x, const Weight& weight,
                                                    const Bias& bias, const ConvOptions& options,
                                                    float eps, mx::StreamOrDevice s) {
  return convolve("normalized_generative_conv_transpose3d", RelationKind::generative, x, weight,
                  bias, options, eps, s);
}

mx::array linear_features(const mx::array& feats, const Weight& weight, const Bias& bias,
                          mx::StreamOrDevice s) {
  if (const auto* packed = std::get_if<QuantizedWeight>(&weight)) {
    if (!packed->is_pointwise())
      fail("linear", "weight must have one offset, got " + packed->text());
    return matmul_rows(feats, *packed, bias, s);
  }
  const auto& w = std::get<mx::array>(weight);
  if (w.ndim() != 2)
    fail("linear", "weight must have shape (C_out, C_in), got " + shape_text(w.shape()));
  return matmul_rows(feats, mx::transpose(w, s), bias, s);
}

SparseTensor linear(const SparseTensor& x, const Weight& weight, const Bias& bias,
                    mx::StreamOrDevice s) {
  return x.with_feats(linear_features(x.feats(), weight, bias, s));
}

}  // namespace lattice

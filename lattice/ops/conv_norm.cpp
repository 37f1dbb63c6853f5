// A convolution with the norm that follows it, and weights that are packed ahead: the operations of
// networks in evaluation.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/ops/check.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/features.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/decide.h"

namespace lattice {
namespace {

using Bias = std::optional<mx::array>;

// Arrays that conv_norm is differentiable in, by name. Codes are constants.
struct ConvNormInputs {
  size_t parts;
  bool dense, has_bias, has_residual;
  size_t bias_at() const { return parts + (dense ? 1 : 0); }
  size_t norm_at() const { return bias_at() + (has_bias ? 1 : 0); }  // weight, bias, mean, var
  size_t residual_at() const { return norm_at() + 4; }
  Bias bias(const graph::Arrays& in) const { return has_bias ? Bias(in[bias_at()]) : Bias(); }
};

// One pass of a kernel.
mx::array conv_norm_pass(const ConvNormInputs& at, const graph::Arrays& in,
                         const routes::ConvWeight& weight, const Relation::Ptr& relation,
                         int64_t groups, const NormAfter& norm, mx::StreamOrDevice s) {
  const auto n = in.begin() + static_cast<int64_t>(at.norm_at());
  int64_t c_in = 0;
  for (size_t i = 0; i < at.parts; ++i) c_in += in[i].shape(1);
  routes::ConvAsked asked{{relation ? relation : Relation::identity(in[0].shape(0)), c_in,
                           weight.c_out(), groups, in[0].dtype()},
                          in[0],
                          weight};
  if (at.dense) asked.weight.w = in[at.parts];
  if (at.parts == 2) asked.more = in[1];
  if (at.has_bias) asked.bias = mx::astype(in[at.bias_at()], in[0].dtype(), s);
  // Kernels of a GPU read any dtype.
  const bool host = routes::conv_is_host_code(s);
  const auto given = [&](int64_t i) { return host ? as_float32(n[i], s) : n[i]; };
  asked.norm = {given(2), given(3), given(0), given(1), norm.eps, std::nullopt, norm.relu};
  if (at.has_residual) asked.norm->residual = in[at.residual_at()];
  asked.stream = s;
  const bool linear = !relation && groups == 1;
  return routes::run(linear ? routes::linear_rows() : routes::conv_rows(), asked);
}

// Whether the kernel reads these arrays side by side: it copies rows in whole cache lines.
bool can_read_parts(const graph::Arrays& parts, const routes::ConvWeight& weight, int64_t groups) {
  constexpr int kLine = 16;
  if (parts.size() != 2 || weight.codes || groups != 1) return false;
  for (const mx::array& part : parts)
    if (part.shape(1) == 0 || part.shape(1) % kLine != 0) return false;
  return true;
}

mx::array conv_norm_rows(graph::Arrays parts, const routes::ConvWeight& weight,
                         const Relation::Ptr& relation, const Bias& bias, int64_t groups,
                         const NormAfter& norm, mx::StreamOrDevice s) {
  const mx::Dtype dtype = parts[0].dtype();
  if (parts.size() > 1 && (!routes::conv_is_host_code(s) || !can_read_parts(parts, weight, groups)))
    parts = {join_columns(parts, s)};
  const ConvNormInputs at{parts.size(), !weight.codes, bias.has_value(), norm.residual.has_value()};
  graph::Arrays inputs = std::move(parts);
  if (at.dense) inputs.push_back(weight.w);
  if (bias) inputs.push_back(*bias);
  const mx::Shape channels = {static_cast<int>(weight.c_out())};
  inputs.push_back(norm.weight ? *norm.weight : mx::ones(channels, mx::float32, s));
  inputs.push_back(norm.bias ? *norm.bias : mx::zeros(channels, mx::float32, s));
  inputs.insert(inputs.end(), {norm.mean, norm.var});
  if (norm.residual) inputs.push_back(norm.residual->feats());
  // The two operations one by one, whose derivatives are those of the whole.
  const auto apart = [=](const graph::Arrays& in) -> graph::Arrays {
    const mx::array x =
        at.parts == 1 ? in[0]
                      : join_columns({in.begin(), in.begin() + static_cast<int64_t>(at.parts)}, s);
    routes::ConvWeight same = weight;
    if (at.dense) same.w = in[at.parts];
    same.panels = nullptr;
    const mx::array y = conv_rows(x, same, relation, at.bias(in), groups, s);
    const auto n = in.begin() + static_cast<int64_t>(at.norm_at());
    NormOptions options{.eps = norm.eps, .residual = {}, .relu = norm.relu};
    if (at.has_residual) options.residual = in[at.residual_at()];
    return {launch_batch_norm(y, {n[0], n[1]}, n[2], n[3], options, s).y};
  };
  // A linear layer on a GPU is MLX's product followed by the norm.
  if ((!routes::conv_is_host_code(s) && !relation) ||
      (weight.codes && weight.codes->scales.dtype() != dtype))
    return apart(inputs)[0];
  const auto together = [=](const graph::Arrays& in) -> graph::Arrays {
    return {conv_norm_pass(at, in, weight, relation, groups, norm, s)};
  };
  const auto vjp = [apart](const graph::Arrays& in, const graph::Arrays& ct, const graph::Arrays&) {
    return mx::vjp(apart, in, ct).second;
  };
  const auto jvp = [apart](const graph::Arrays& in, const graph::Arrays& t) {
    return mx::jvp(apart, in, t).second;
  };
  return graph::differentiable(inputs, together, vjp, jvp)[0];
}

}  // namespace

SparseTensor conv_norm(RelationKind kind, const std::vector<SparseTensor>& parts,
                       const Weight& given, const Bias& bias, const ConvOptions& options,
                       const NormAfter& norm, mx::StreamOrDevice s) {
  const std::string op = "conv_norm";
  if (parts.empty()) fail(op, "x needs at least one tensor, got none");
  graph::Arrays feats;
  int64_t c_in = 0;
  for (const SparseTensor& part : parts) {
    if (!part.same_coords(parts[0]) || part.dtype() != parts[0].dtype())
      fail(op, "the tensors of x must share coordinates and dtype; use cat(...) for others");
    feats.push_back(part.feats());
    c_in += part.channels();
  }
  const SparseTensor& x = parts[0];
  const routes::ConvWeight weight = checked_weight(op, x, c_in, given, bias, options, s);
  const Relation::Ptr r = find_relation(op, kind, x, options, s);
  NormOptions checked{.eps = norm.eps, .residual = {}, .relu = norm.relu};
  if (norm.residual) checked.residual = norm.residual->feats();
  const int64_t rows = r ? r->n_out() : x.active_count();
  check_batch_norm(op, {static_cast<int>(rows), static_cast<int>(weight.c_out())}, x.dtype(),
                   {norm.weight, norm.bias}, norm.mean, norm.var, checked);
  SparseTensor y =
      on_outputs(x, r, conv_norm_rows(feats, weight, r, bias, options.groups, norm, s));
  if (norm.residual && !y.same_coords(*norm.residual))
    fail(op, "residual must share the coordinates of the result");
  return y;
}

PackedKernel pack_kernel(const mx::array& weight, int64_t groups, mx::StreamOrDevice s) {
  const std::string op = "pack_kernel";
  check_float(op, weight);
  if (weight.ndim() != 2 && weight.ndim() != 3 && weight.ndim() != 5)
    fail(op,
         "weight must have shape (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in), "
         "got " +
             shape_text(weight.shape()));
  const mx::array given = evaluated(weight, op, "weight");
  const auto size = [&](int axis) { return int64_t{given.shape(axis)}; };
  const bool rows_last = weight.ndim() == 3;
  const int64_t c_out = size(rows_last ? 2 : 0), rows = size(rows_last ? 1 : -1);
  const int64_t n_k = given.size() == 0 ? 0 : static_cast<int64_t>(given.size()) / (c_out * rows);
  if (groups < 1 || c_out % groups != 0)
    fail(op, "groups must be >= 1 and divide C_out = " + std::to_string(c_out) + ", got " +
                 std::to_string(groups));
  if (!routes::conv_is_host_code(s) || given.size() == 0) return {weight, nullptr};
  const cpu::ConvShape shape{rows * groups, c_out, groups, routes::float_type_of(given.dtype())};
  const cpu::DenseWeight source =
      rows_last ? cpu::DenseWeight(shape, given.data<char>())
                : cpu::DenseWeight(shape, given.data<char>(), rows, 1, n_k * rows);
  return {weight, cpu::pack_weight(source, n_k, shape)};
}

}  // namespace lattice

#include "lattice/ops/conv.h"

#include <mlx/ops.h>
#include <mlx/primitives.h>

#include <cmath>
#include <string_view>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/ops/columns.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

using Bias = std::optional<mx::array>;
using ConvTable = routes::Table<routes::ConvAsked, mx::array>;

void check_groups(std::string_view op, int64_t groups, int64_t c_in, int64_t c_out) {
  if (groups < 1 || c_in % groups != 0 || c_out % groups != 0)
    fail(op, "groups must be >= 1 and divide both channel counts, got groups " +
                 std::to_string(groups) + ", C_in " + std::to_string(c_in) + ", C_out " +
                 std::to_string(c_out));
}

// Any accepted layout as a view (K, C_in / groups, C_out).
mx::array kernel_major(const std::string& op, const mx::array& w, const KernelSpec& spec,
                       int64_t in_group, mx::StreamOrDevice s) {
  const int64_t k = spec.volume();
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

// The checks of arrays that all convolutions share.
void check_arrays(const std::string& op, const SparseTensor& x, mx::Dtype weight_dtype,
                  int64_t c_out, const Bias& bias, mx::StreamOrDevice s) {
  check_float(op, x);
  check_same_dtype(op, "weight", weight_dtype, x.dtype(),
                   "; convert the features, or the weight, with astype");
  check_bias(op, bias, c_out);
  check_coords_on_device(op, x.coords(), s);
}

// A convolution as a differentiable function of x, the arrays of its weight and, if any, the bias.
struct ConvCall {
  const ConvTable& rows;
  routes::ConvProblem problem;
  std::optional<routes::Packing> packing;  // the weight is codes, scales and biases
  PackedKernel::Panels panels;
  mx::StreamOrDevice s;
  bool transposed = false;  // the weight is a view of one with its sides exchanged

  size_t bias_at() const { return packing ? 4 : 2; }
  routes::ConvAsked asked(const graph::Arrays& in) const {
    routes::ConvAsked asked{problem, in[0], {in[1], std::nullopt, panels, transposed && !packing}};
    if (packing) asked.weight.codes = {in[2], in[3], *packing};
    if (in.size() > bias_at()) asked.bias = in[bias_at()];
    asked.stream = s;
    return asked;
  }
  // The same with another weight.
  ConvCall without_panels() const { return {rows, problem, packing, nullptr, s}; }
  // The input gradient; the weight is read transposed.
  ConvCall reversed() const {
    ConvCall back{rows, problem.reversed(), packing, nullptr, s, !transposed};
    if (packing) back.packing->transposed = !packing->transposed;
    return back;
  }
};

// Whether no derivative can be asked of `a`: it does not depend on what MLX traces, or it is values
// alone, while MLX traces copies that remember what they were made of. The arrays of a relation are
// made when a node is made, also one that nobody evaluates; so the gradient of a constant, such as
// the features of a scan, gets no node.
bool is_constant(const mx::array& a) { return !a.is_tracer() || !a.has_primitive(); }

mx::array conv_of(const ConvCall& call, const graph::Arrays& inputs) {
  const mx::StreamOrDevice s = call.s;
  const bool wants_x = !is_constant(inputs[0]);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(call.rows, call.asked(in))};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    const int64_t groups = call.problem.groups;
    graph::Arrays grads;
    if (call.packing)
      grads = {conv_of(call.reversed(), {ct[0], in[1], in[2], in[3]}), mx::zeros_like(in[1], s),
               mx::zeros_like(in[2], s), mx::zeros_like(in[3], s)};
    else
      grads = {wants_x
                   ? conv_of(call.reversed(), {ct[0], routes::transposed_weight(in[1], groups, s)})
                   : mx::zeros_like(in[0], s),
               outer(in[0], ct[0], call.problem.relation, groups, s)};
    if (in.size() > call.bias_at()) grads.push_back(sum_rows(ct[0], s));
    return grads;
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    mx::array sum = call.packing ? conv_of(call, {t[0], in[1], in[2], in[3]})
                                 : mx::add(conv_of(call, {t[0], in[1]}),
                                           conv_of(call.without_panels(), {in[0], t[1]}), s);
    return {in.size() > call.bias_at() ? mx::add(sum, t[call.bias_at()], s) : sum};
  };
  return graph::differentiable(inputs, forward, vjp, jvp)[0];
}

}  // namespace

routes::ConvWeight weight_of(const QuantizedWeight& w) {
  return {w.weight(), {{w.scales(), w.biases(), {w.bits(), w.group_size(), false}}}};
}

routes::ConvWeight checked_weight(const std::string& op, const SparseTensor& x, int64_t c_in,
                                  const Weight& weight, const Bias& bias,
                                  const ConvOptions& options, mx::StreamOrDevice s) {
  const int64_t groups = options.groups;
  if (const auto* codes = std::get_if<QuantizedWeight>(&weight)) {
    check_packed(op, *codes, options.spec, c_in, groups);
    // float32 scales run on 16-bit features too.
    check_arrays(op, x, codes->dtype() == mx::float32 ? x.dtype() : codes->dtype(),
                 codes->out_channels(), bias, s);
    return weight_of(*codes);
  }
  if (groups < 1 || c_in % groups != 0)
    fail(op, "groups must be >= 1 and divide C_in = " + std::to_string(c_in) + ", got " +
                 std::to_string(groups));
  const auto* packed = std::get_if<PackedKernel>(&weight);
  const mx::array w = kernel_major(op, packed ? packed->weight() : std::get<mx::array>(weight),
                                   options.spec, c_in / groups, s);
  check_arrays(op, x, w.dtype(), w.shape(2), bias, s);
  check_groups(op, groups, c_in, w.shape(2));
  return {w, std::nullopt, packed ? packed->panels() : nullptr};
}

Relation::Ptr find_relation(const std::string& op, RelationKind asked, const SparseTensor& x,
                            const ConvOptions& options, mx::StreamOrDevice s) {
  const auto [kind, spec] = supported(asked, x, options.spec, options.support, op);
  const bool submanifold = kind == RelationKind::submanifold;
  if (submanifold && !spec.is_centered_submanifold())
    fail(op, "needs an odd kernel_size on each axis, got " + triple_text(spec.size));
  const bool onto = options.coordinates && !submanifold;
  if (!onto && spec.is_pointwise()) return nullptr;
  if (!onto) return relation(kind, x, spec, std::nullopt, s, op);
  const RelationKind onto_kind = scatters(kind)                  ? RelationKind::target_transposed
                                 : kind == RelationKind::reached ? kind
                                                                 : RelationKind::target;
  return relation(onto_kind, x, spec, options.coordinates, s, op);
}

namespace {

// The relation by which x came from the rows `fine`: the one that made it, or one onto its rows.
Relation::Ptr way_down(const std::string& op, const SparseTensor& x, const CoordinateMapKey& fine,
                       const KernelSpec& spec, mx::StreamOrDevice s) {
  for (const CachedRelation& made : x.coord_manager()->relations()) {
    const Relation& r = *made.relation;
    const KernelSpec& by = r.spec();
    if (made.in == fine && r.kind() == RelationKind::reached && r.out_key() == x.coord_key() &&
        by.size == spec.size && by.stride == spec.stride && by.padding == spec.padding &&
        by.dilation == spec.dilation)
      return made.relation;
  }
  return relation_in(*x.coord_manager(), RelationKind::reached, fine, x.coord_key(), spec, op, s);
}

}  // namespace

mx::array conv_rows(const mx::array& x, const routes::ConvWeight& weight,
                    const Relation::Ptr& relation, const Bias& bias, int64_t groups,
                    mx::StreamOrDevice s) {
  const auto& codes = weight.codes;
  if (codes && codes->scales.dtype() != x.dtype())  // float32 scales stay exact
    return mx::astype(conv_rows(mx::astype(x, mx::float32, s), weight, relation, bias, groups, s),
                      x.dtype(), s);
  graph::Arrays inputs = {x, weight.w};
  if (codes) inputs.insert(inputs.end(), {codes->scales, codes->biases});
  if (bias) inputs.push_back(mx::astype(*bias, x.dtype(), s));
  const bool linear = !relation && groups == 1;
  ConvCall call{linear ? routes::linear_rows() : routes::conv_rows(),
                {relation ? relation : Relation::identity(x.shape(0)), x.shape(1), weight.c_out(),
                 groups, x.dtype()},
                std::nullopt,
                weight.panels,
                s};
  if (codes) call.packing = codes->packing;
  return conv_of(call, inputs);
}

SparseTensor on_outputs(const SparseTensor& x, const Relation::Ptr& relation, mx::array feats) {
  return relation ? result_on(x, *relation->out_key(), std::move(feats))
                  : x.with_feats(std::move(feats));
}

namespace {

SparseTensor convolve(const std::string& op, RelationKind kind, const SparseTensor& x,
                      const Weight& given, const Bias& bias, const ConvOptions& options,
                      std::optional<float> eps, mx::StreamOrDevice s) {
  if (eps && !(*eps > 0 && std::isfinite(*eps)))
    fail(op, "eps must be > 0, got " + std::to_string(*eps));
  if (const auto* codes = std::get_if<QuantizedWeight>(&given); codes && eps)
    fail(op, "weight must be dense: W^2 is needed, got " + codes->text());
  const int64_t groups = options.groups;
  const Relation::Ptr r = find_relation(op, kind, x, options, s);
  const routes::ConvWeight weight = checked_weight(op, x, x.channels(), given, bias, options, s);
  if (!r || !eps) return on_outputs(x, r, conv_rows(x.feats(), weight, r, bias, groups, s));
  // conv(1, W^2) needs no features: with one input channel of ones the sum over C_in is taken once
  // per weight. Both sums stay in float32, so that the result is rounded once.
  const mx::array w = as_float32(weight.w, s);
  const mx::array norm_w = sum_axis(mx::square(w, s), 1, true, s);
  const mx::array ones = mx::ones({static_cast<int>(x.active_count()), 1}, mx::float32, s);
  const mx::array norm =
      mx::rsqrt(mx::add(conv_rows(ones, {norm_w}, r, std::nullopt, 1, s), mx::array(*eps), s), s);
  mx::array y = conv_rows(mx::astype(x.feats(), mx::float32, s), {w}, r, std::nullopt, groups, s);
  y = mx::multiply(y, norm, s);
  if (bias) y = mx::add(y, mx::astype(mx::astype(*bias, x.dtype(), s), mx::float32, s), s);
  return result_on(x, *r->out_key(), mx::astype(y, x.dtype(), s));
}

}  // namespace

mx::array conv(const mx::array& x, const mx::array& w, const Relation::Ptr& relation,
               const Bias& bias, int64_t groups, mx::StreamOrDevice s, std::string_view caller) {
  check_features(caller, "x", x, relation->n_in());
  const int64_t c_in = x.shape(1);
  if (w.ndim() != 3 || w.shape(0) != relation->n_kernels() || w.shape(1) * groups != c_in)
    fail(caller, "weight must have shape (" + std::to_string(relation->n_kernels()) + ", " +
                     std::to_string(groups > 0 ? c_in / groups : 0) + ", C_out), got " +
                     shape_text(w.shape()));
  check_groups(caller, groups, c_in, w.shape(2));
  check_same_dtype(caller, "weight", w.dtype(), x.dtype());
  check_bias(caller, bias, w.shape(2));
  return conv_rows(x, {w}, relation, bias, groups, s);
}

mx::array outer(const mx::array& x, const mx::array& g, const Relation::Ptr& relation,
                int64_t groups, mx::StreamOrDevice s) {
  check_features("outer", "x", x, relation->n_in());
  check_features("outer", "g", g, relation->n_out());
  check_same_dtype("outer", "g", g.dtype(), x.dtype());
  check_groups("outer", groups, x.shape(1), g.shape(1));
  const routes::ConvProblem problem{relation, x.shape(1), g.shape(1), groups, x.dtype()};
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(routes::outer_rows(), {problem, in[0], in[1], s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    const ConvCall call{routes::conv_rows(), problem, std::nullopt, nullptr, s};
    return {conv_of(call.reversed(), {in[1], routes::transposed_weight(ct[0], groups, s)}),
            conv_of(call, {in[0], ct[0]})};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    return {mx::add(outer(t[0], in[1], relation, groups, s),
                    outer(in[0], t[1], relation, groups, s), s)};
  };
  return graph::differentiable({x, g}, forward, vjp, jvp)[0];
}

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

SparseTensor inverse_conv3d(const SparseTensor& x, const Weight& given, const TargetCoords& fine,
                            const Bias& bias, const ConvOptions& options, mx::StreamOrDevice s) {
  const std::string op = "inverse_conv3d";
  const routes::ConvWeight weight = checked_weight(op, x, x.channels(), given, bias, options, s);
  const KernelSpec& o = options.spec;
  const KernelSpec spec(o.size, o.stride, o.padding, o.dilation);
  const Triple stride = output_stride(x, spec, RelationKind::reached_transposed, op);
  const CoordinateMapKey key = target_key(x, fine, stride, op);
  const Relation::Ptr r = way_down(op, x, key, spec, s)->reversed();
  return result_on(x, key, conv_rows(x.feats(), weight, r, bias, options.groups, s));
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

}  // namespace lattice

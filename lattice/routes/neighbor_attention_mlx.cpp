// Attention along edges and its gradient from plain MLX operations.
#include <mlx/transforms.h>

#include "lattice/routes/neighbor_attention.h"

namespace lattice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

EdgeFunctions with_mlx(const EdgeSegments& edges, mx::StreamOrDevice s) {
  const int n = static_cast<int>(edges.n_queries);
  const mx::array &queries = edges.queries, &sources = edges.sources;
  const auto scatter = [n, queries, s](const mx::array& x, float start, auto reduce) {
    const mx::array none = mx::full({n, x.shape(1)}, start, mx::float32, s);
    return reduce(none, {queries}, mx::expand_dims(x, 1, s), std::vector<int>{0}, s);
  };
  using Indices = std::vector<mx::array>;
  const auto add = [](const mx::array& a, const Indices& at, const mx::array& x,
                      const std::vector<int>& axes,
                      mx::StreamOrDevice where) { return mx::scatter_add(a, at, x, axes, where); };
  const auto max = [](const mx::array& a, const Indices& at, const mx::array& x,
                      const std::vector<int>& axes,
                      mx::StreamOrDevice where) { return mx::scatter_max(a, at, x, axes, where); };
  return {[=](const mx::array& x) { return mx::take(x, queries, 0, s); },
          [=](const mx::array& x) { return mx::take(x, sources, 0, s); },
          [=](const mx::array& x) { return scatter(x, 0.0f, add); },
          [=](const mx::array& x) { return scatter(x, -kInf, max); }};
}

}  // namespace

graph::Arrays neighbor_attention_formula(const AttendEdges& a, const graph::Arrays& in,
                                         const EdgeFunctions& f, mx::StreamOrDevice s) {
  const int n = static_cast<int>(a.edges->n_queries),
            n_edges = static_cast<int>(a.edges->n_edges()), heads = in[0].shape(1),
            size = in[0].shape(2), c = heads * size;
  if (n_edges == 0 || n == 0)
    return {mx::zeros({n, heads, size}, in[0].dtype(), s),
            mx::full({n, heads}, kInf, mx::float32, s)};
  const auto rows = [&](const mx::array& x) {
    return mx::reshape(mx::astype(x, mx::float32, s), {x.shape(0), c}, s);
  };
  mx::array logits = mx::zeros({n_edges, heads}, mx::float32, s);
  if (a.products) {
    const mx::array terms =
        mx::multiply(f.of_queries(mx::multiply(rows(in[1]), mx::array(a.scale), s)),
                     f.of_sources(rows(in[2])), s);
    logits = mx::sum(mx::reshape(terms, {n_edges, heads, size}, s), -1, false, s);
  }
  if (a.biased) logits = mx::add(logits, in[a.bias_at()], s);
  mx::array top = mx::stop_gradient(f.max(mx::stop_gradient(logits, s)), s);
  top = mx::where(mx::equal(top, mx::array(-kInf), s), mx::array(0.0f), top, s);
  const mx::array e = mx::exp(mx::subtract(logits, f.of_queries(top), s), s), sum = f.sum(e),
                  none = mx::equal(sum, mx::array(0.0f), s);
  const mx::array safe = mx::where(none, mx::array(1.0f), sum, s);
  const mx::array p = mx::divide(e, f.of_queries(safe), s);
  const mx::array weighted =
      mx::multiply(mx::expand_dims(p, 2, s),
                   mx::reshape(f.of_sources(rows(in[0])), {n_edges, heads, size}, s), s);
  const mx::array out = f.sum(mx::reshape(weighted, {n_edges, c}, s));
  return {mx::astype(mx::reshape(out, {n, heads, size}, s), in[0].dtype(), s),
          mx::where(none, mx::array(kInf), mx::add(top, mx::log(safe, s), s), s)};
}

graph::Arrays neighbor_attention_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  const AttendEdges& a = call.get<AttendEdges>();
  return neighbor_attention_formula(a, call.inputs, with_mlx(*a.edges, call.stream), call.stream);
}

graph::Arrays neighbor_attention_vjp_with_mlx(const Call& call, const Route& route) {
  route.count_run();
  const AttendEdges& a = call.get<AttendEdges>();
  const auto n = static_cast<int64_t>(a.inputs());
  const EdgeFunctions edges = with_mlx(*a.edges, call.stream);
  return mx::vjp(
             [&](const graph::Arrays& in) {
               return graph::Arrays{neighbor_attention_formula(a, in, edges, call.stream)[0]};
             },
             graph::Arrays(call.inputs.begin(), call.inputs.begin() + n), {call.inputs.back()})
      .second;
}

}  // namespace lattice

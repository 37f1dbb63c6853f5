#include "lattice/ops/attention_edges.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <bit>
#include <limits>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/features/neighbor_attention.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/launch.h"

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

std::string key_of(const AttendEdges& a) {
  std::string key = routes::address(a.edges.get());
  for (const uint32_t part :
       {std::bit_cast<uint32_t>(a.scale), uint32_t{a.products}, uint32_t{a.biased}})
    key.append("/").append(std::to_string(part));
  return key;
}

cpu::NeighborAttention described(const AttendEdges& attend, std::span<const graph::Input> in) {
  const EdgeSegments& edges = *attend.edges;
  cpu::NeighborAttention a;
  a.storage = routes::float_type_of(in[0].dtype);
  a.queries = edges.n_queries, a.sources = edges.n_sources;
  a.offsets = edges.offsets.data<int32_t>();
  a.rows = edges.n_edges() ? edges.sources.data<int32_t>() : nullptr;
  a.heads = in[0].shape[1], a.size = in[0].shape[2];
  a.scale = attend.scale;
  a.v = in[0].data;
  if (attend.products) a.q = in[1].data, a.k = in[2].data;
  if (attend.biased) a.bias = in[attend.bias_at()].as<float>();
  return a;
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
    logits = sum_axis(mx::reshape(terms, {n_edges, heads, size}, s), -1, false, s);
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

graph::Arrays launch_neighbor_attention(const AttendEdges& a, const graph::Arrays& in,
                                        mx::StreamOrDevice s) {
  if (on_gpu(s)) return neighbor_attention_formula(a, in, with_mlx(*a.edges, s), s);
  const int n = static_cast<int>(a.edges->n_queries), heads = in[0].shape(1);
  return graph::cpu_call(
      "neighbor_attention", key_of(a), routes::contiguous(in, s),
      {{{n, heads, in[0].shape(2)}, in[0].dtype()}, {{n, heads}, mx::float32}},
      [a](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::neighbor_attention(described(a, in), out[0].data, out[1].as<float>());
      },
      s);
}

graph::Arrays launch_neighbor_attention_vjp(const AttendEdges& a, const graph::Arrays& in,
                                            mx::StreamOrDevice s) {
  const size_t n = a.inputs();
  if (on_gpu(s)) {
    const EdgeFunctions edges = with_mlx(*a.edges, s);
    return mx::vjp(
               [&](const graph::Arrays& x) {
                 return graph::Arrays{neighbor_attention_formula(a, x, edges, s)[0]};
               },
               graph::Arrays(in.begin(), in.begin() + static_cast<int64_t>(n)), {in.back()})
        .second;
  }
  std::vector<graph::OutputSpec> cotangents;
  for (size_t i = 0; i < n; ++i) cotangents.push_back({in[i].shape(), in[i].dtype()});
  return graph::cpu_call(
      "neighbor_attention_vjp", key_of(a), routes::contiguous(in, s), std::move(cotangents),
      [a, n](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        const EdgeSegments& edges = *a.edges;
        cpu::NeighborAttentionGradients y;
        y.out = in[n].data, y.lse = in[n + 1].as<float>(), y.g = in[n + 2].data;
        y.back_offsets = edges.back_offsets.data<int32_t>();
        if (edges.n_edges()) {
          y.back_edges = edges.back_edges.data<int32_t>();
          y.edge_queries = edges.queries.data<int32_t>();
        }
        y.dv = out[0].data;
        if (a.products) y.dq = out[1].data, y.dk = out[2].data;
        if (a.biased) y.dbias = out[a.bias_at()].as<float>();
        cpu::neighbor_attention_gradients(described(a, in), y);
      },
      s);
}

}  // namespace lattice

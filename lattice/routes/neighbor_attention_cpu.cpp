// Attention along edges and its gradient on the CPU.
#include "lattice/kernels/cpu/features/neighbor_attention.h"

#include <bit>

#include "lattice/routes/launch.h"
#include "lattice/routes/neighbor_attention.h"

namespace lattice {
namespace {

std::string key_of(const AttendEdges& a) {
  std::string key = address(a.edges.get());
  for (const uint32_t part :
       {std::bit_cast<uint32_t>(a.scale), uint32_t{a.products}, uint32_t{a.biased}})
    key.append("/").append(std::to_string(part));
  return key;
}

cpu::NeighborAttention described(const AttendEdges& attend, std::span<const graph::Input> in) {
  const EdgeSegments& edges = *attend.edges;
  cpu::NeighborAttention a;
  a.storage = float_type_of(in[0].dtype);
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

graph::Arrays neighbor_attention_rows(const Call& call, const Route& route) {
  const AttendEdges& attend = call.get<AttendEdges>();
  const mx::array& v = call.inputs[0];
  const int n = static_cast<int>(attend.edges->n_queries);
  return cpu_nodes(call, route, contiguous_inputs(call), key_of(attend),
                   {{{n, v.shape(1), v.shape(2)}, v.dtype()}, {{n, v.shape(1)}, mx::float32}},
                   [attend](std::span<const graph::Input> in, std::span<const graph::Output> out) {
                     cpu::neighbor_attention(described(attend, in), out[0].data,
                                             out[1].as<float>());
                   });
}

graph::Arrays neighbor_attention_vjp_rows(const Call& call, const Route& route) {
  const AttendEdges& attend = call.get<AttendEdges>();
  return cpu_nodes(call, route, contiguous_inputs(call), key_of(attend),
                   cotangents(call, attend.inputs()),
                   [attend](std::span<const graph::Input> in, std::span<const graph::Output> out) {
                     const size_t n = attend.inputs();
                     const EdgeSegments& edges = *attend.edges;
                     cpu::NeighborAttentionGradients y;
                     y.out = in[n].data, y.lse = in[n + 1].as<float>(), y.g = in[n + 2].data;
                     y.back_offsets = edges.back_offsets.data<int32_t>();
                     if (edges.n_edges()) {
                       y.back_edges = edges.back_edges.data<int32_t>();
                       y.edge_queries = edges.queries.data<int32_t>();
                     }
                     y.dv = out[0].data;
                     if (attend.products) y.dq = out[1].data, y.dk = out[2].data;
                     if (attend.biased) y.dbias = out[attend.bias_at()].as<float>();
                     cpu::neighbor_attention_gradients(described(attend, in), y);
                   });
}

}  // namespace lattice

// attention and its gradient on the CPU: tiles of queries and keys.
#include "lattice/kernels/cpu/features/attention.h"

#include <mlx/ops.h>

#include <bit>

#include "lattice/routes/attention.h"
#include "lattice/routes/launch.h"

namespace lattice::routes {
namespace {

std::string key_of(const Attend& a) {
  std::string key = address(a.segments.get());
  for (const uint32_t part : {std::bit_cast<uint32_t>(a.scale), uint32_t{a.biased},
                              uint32_t{a.causal}, uint32_t{a.mask.has_value()}})
    key.append("/").append(std::to_string(part));
  if (a.positions) {
    key += a.positions->joint ? "/joint" : "/axes";
    for (const int bound : a.positions->bounds) key.append(" ").append(std::to_string(bound));
  }
  return key;
}

// The inputs of the node: those given, then the positions, then the mask.
graph::Arrays node_inputs(graph::Arrays inputs, const Attend& a, mx::StreamOrDevice s) {
  if (a.positions) inputs.insert(inputs.end(), {a.positions->of_queries, a.positions->of_keys});
  if (a.mask) inputs.push_back(*a.mask);
  return contiguous(inputs, s);
}

// What the kernel reads; `extra` is the first input behind those given.
cpu::Attention described(const Attend& attend, std::span<const graph::Input> in, size_t extra) {
  cpu::Attention a;
  a.storage = float_type_of(in[0].dtype);
  a.segments = attend.segments->n_segments();
  a.q_offsets = attend.segments->q_offsets();
  a.k_offsets = attend.segments->k_offsets();
  a.heads = in[0].shape[1], a.kv_heads = in[1].shape[1], a.size = in[0].shape[2];
  a.scale = attend.scale;
  a.q = in[0].data, a.k = in[1].data, a.v = in[2].data;
  a.causal = attend.causal;
  if (attend.positions) {
    a.positions.table = in[3].as<float>();
    a.positions.size = in[3].shape[1];
    a.positions.axes = static_cast<int32_t>(attend.positions->bounds.size());
    for (size_t i = 0; i < attend.positions->bounds.size(); ++i)
      a.positions.bounds[i] = attend.positions->bounds[i];
    a.positions.q_positions = in[extra].as<int32_t>();
    a.positions.k_positions = in[extra + 1].as<int32_t>();
    a.positions.joint = attend.positions->joint;
    extra += 2;
  } else if (attend.biased) {
    a.bias = in[3].as<float>();
  }
  if (attend.mask) a.mask = in[extra].as<uint8_t>();
  return a;
}

}  // namespace

graph::Arrays attention_tiles(const AttentionAsked& asked, const Route& route) {
  const mx::array& q = asked.q;
  const graph::Arrays given = asked.inputs();
  return cpu_nodes(route, asked.stream, node_inputs(given, asked.attend, asked.stream),
                   key_of(asked.attend),
                   {{q.shape(), q.dtype()}, {{q.shape(0), q.shape(1)}, mx::float32}},
                   [attend = asked.attend, n = given.size()](std::span<const graph::Input> in,
                                                             std::span<const graph::Output> out) {
                     cpu::attention(described(attend, in, n), out[0].data, out[1].as<float>());
                   });
}

graph::Arrays attention_vjp_tiles(const AttentionVjpAsked& asked, const Route& route) {
  const Attend& attend = asked.forward.attend;
  graph::Arrays given = asked.forward.inputs();
  const size_t n = given.size();
  std::vector<graph::OutputSpec> cotangents;
  for (const mx::array& a : given) cotangents.push_back({a.shape(), a.dtype()});
  given.insert(given.end(), {asked.out, asked.lse, asked.g});
  return cpu_nodes(
      route, asked.stream, node_inputs(given, attend, asked.stream), key_of(attend),
      std::move(cotangents),
      [attend, n](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::AttentionGradients y;
        y.out = in[n].data, y.lse = in[n + 1].as<float>(), y.g = in[n + 2].data;
        y.dq = out[0].data, y.dk = out[1].data, y.dv = out[2].data;
        if (attend.positions)
          y.dtable = out[3].as<float>();
        else if (attend.biased)
          y.dbias = out[3].as<float>();
        cpu::attention_gradients(described(attend, in, n + 3), y);
      });
}

}  // namespace lattice::routes

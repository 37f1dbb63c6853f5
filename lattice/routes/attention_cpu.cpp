// attention and its gradient on the CPU: tiles of queries and keys.
#include "lattice/kernels/cpu/features/attention.h"

#include <mlx/ops.h>

#include <bit>

#include "lattice/routes/attention.h"
#include "lattice/routes/launch.h"

namespace lattice {
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

// The inputs of the node: those of the call, then the positions, then the mask.
graph::Arrays node_inputs(const Call& call) {
  const Attend& a = call.get<Attend>();
  graph::Arrays inputs = contiguous_inputs(call);
  if (a.positions)
    inputs.insert(inputs.end(), {graph::row_contiguous(a.positions->of_queries, call.stream),
                                 graph::row_contiguous(a.positions->of_keys, call.stream)});
  if (a.mask) inputs.push_back(graph::row_contiguous(*a.mask, call.stream));
  return inputs;
}

// What the kernel reads; `extra` is the first input behind those of the call.
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

Call attention_call(Operation operation, std::variant<Attend, AttendEdges> payload,
                    graph::Arrays inputs, mx::StreamOrDevice s) {
  const int64_t channels = int64_t{inputs[0].shape(1)} * inputs[0].shape(2);
  const mx::Dtype dtype = inputs[0].dtype();
  Call call{.operation = operation,
            .inputs = std::move(inputs),
            .c_in = channels,
            .c_out = channels,
            .dtype = dtype,
            .stream = s};
  std::visit([&](auto& attend) { call.payload = std::move(attend); }, payload);
  return call;
}

std::vector<graph::OutputSpec> cotangents(const Call& call, size_t n) {
  std::vector<graph::OutputSpec> specs;
  for (size_t i = 0; i < n; ++i) specs.push_back({call.inputs[i].shape(), call.inputs[i].dtype()});
  return specs;
}

graph::Arrays attention_tiles(const Call& call, const Route& route) {
  const mx::array& q = call.inputs[0];
  return cpu_nodes(call, route, node_inputs(call), key_of(call.get<Attend>()),
                   {{q.shape(), q.dtype()}, {{q.shape(0), q.shape(1)}, mx::float32}},
                   [attend = call.get<Attend>()](std::span<const graph::Input> in,
                                                 std::span<const graph::Output> out) {
                     cpu::attention(described(attend, in, attend.inputs()), out[0].data,
                                    out[1].as<float>());
                   });
}

graph::Arrays attention_vjp_tiles(const Call& call, const Route& route) {
  const Attend& attend = call.get<Attend>();
  return cpu_nodes(call, route, node_inputs(call), key_of(attend),
                   cotangents(call, attend.inputs()),
                   [attend](std::span<const graph::Input> in, std::span<const graph::Output> out) {
                     const size_t n = attend.inputs();
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

}  // namespace lattice

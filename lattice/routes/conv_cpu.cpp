// conv, linear and outer on the CPU.
#include <mlx/ops.h>

#include "lattice/kernels/cpu/features/buckets.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/outer.h"
#include "lattice/kernels/cpu/features/packed.h"
#include "lattice/kernels/cpu/features/reference.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

using Step = Rejection::Step;

// Everything that a node depends on besides its inputs.
std::string node_key(const Call& call) {
  std::string key = address(call.relation.get()) + "/" + std::to_string(call.groups);
  if (const auto* w = std::get_if<Weights>(&call.payload))
    key += "/" + std::to_string(w->packing.bits) + "/" + std::to_string(w->packing.group_size) +
           "/" + std::to_string(w->packing.transposed) + "/" + std::to_string(w->has_bias) + "/" +
           std::to_string(w->x_parts) + (w->after ? "/norm" + std::to_string(w->after->relu) : "");
  return key;
}

// A node that runs kernel(relation, channels and groups, inputs, output). Features are made
// contiguous; a dense weight of conv keeps its strides.
template <typename Kernel>
mx::array node(const Call& call, const Route& route, graph::OutputSpec output, bool strided_weight,
               Kernel kernel, graph::Extend extend = {}) {
  graph::Arrays inputs = contiguous_inputs(call);
  if (strided_weight) {
    const size_t at = call.weights().weight_at();
    inputs[at] = call.inputs[at];
  }
  return cpu_node(
      call, route, std::move(inputs), node_key(call), std::move(output),
      [kernel, relation = call.relation, c_in = call.c_in, c_out = call.c_out,
       groups = call.groups](std::span<const graph::Input> in, const graph::Output& out) {
        kernel(*relation, c_in, c_out, groups, in, out);
      },
      std::move(extend));
}

// The same call on the columns that make x side by side, if they were not joined yet. Only calls
// with a norm come here: what `differentiable` puts around other calls reads x as well, so that the
// columns are joined in any case. The kernel copies rows in whole cache lines.
Call with_parts(const Call& given) {
  constexpr int kLine = 16;
  Weights weights = given.weights();
  if (weights.packing.bits || given.groups != 1) return given;
  const auto parts = graph::inputs_of(given.inputs[0], "join_columns.cpu.copies");
  if (!parts || parts->size() != 2) return given;
  for (const mx::array& part : *parts)
    if (part.shape(1) == 0 || part.shape(1) % kLine != 0) return given;
  Call call = given;
  call.inputs[0] = (*parts)[0];
  call.inputs.insert(call.inputs.begin() + 1, (*parts)[1]);
  weights.x_parts = 2;
  call.payload = weights;
  return call;
}

// The same call with a norm after it.
template <auto kLaunch>
graph::Extend with_norm(const Call& call, const Route& route) {
  if (call.weights().after) return {};
  Call plain = call;
  plain.inputs.clear();  // an array must not own itself
  return [plain, &route](const graph::Arrays& inputs, const graph::Extension& extension) {
    Call longer = plain;
    longer.inputs = inputs;
    longer.inputs.insert(longer.inputs.end(), extension.inputs.begin(), extension.inputs.end());
    Weights weights = plain.weights();
    weights.after = After{extension.inputs.size() == 4, extension.option};
    longer.payload = weights;
    return kLaunch(with_parts(longer), route);
  };
}

graph::OutputSpec output_weight(const Call& call) {
  return {{static_cast<int>(call.relation->n_kernels()), static_cast<int>(call.c_in / call.groups),
           static_cast<int>(call.c_out)},
          call.dtype};
}

const void* bias_data(std::span<const graph::Input> in, const Weights& w) {
  return w.has_bias ? in[w.bias_at()].data : nullptr;
}

cpu::NormAfter norm_after(std::span<const graph::Input> in, const Weights& w) {
  if (!w.after) return {};
  const auto norm = in.subspan(w.after_at());
  return {norm[0].as<float>(), norm[1].as<float>(), norm[2].as<float>(),
          w.after->residual ? norm[3].data : nullptr, w.after->relu};
}

}  // namespace

namespace {

// kShared: rows that share (offset, output row) are added first.
template <bool kShared>
mx::array conv_dense_with(const Call& call, const Route& route) {
  return node(
      call, route, output_rows(call), true,
      [w = call.weights()](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                           std::span<const graph::Input> in, const graph::Output& out) {
        cpu::DenseWeight weight;
        weight.storage = float_type_of(out.dtype);
        const graph::Input& dense = in[w.weight_at()];
        weight.data = dense.data;
        weight.owner = dense.owner;
        weight.rows = c_in / groups;
        weight.group_columns = c_out / groups;
        weight.stride_k = dense.strides[0];
        weight.stride_in = dense.strides[1];
        weight.stride_out = dense.strides[2];
        weight.stride_group = weight.group_columns * weight.stride_out;
        cpu::conv(r.lists(), r.tiles(),
                  {float_type_of(out.dtype), in[0].data, &weight, bias_data(in, w), out.data, c_in,
                   c_out, groups, kShared, norm_after(in, w), w.x_parts > 1 ? in[1].data : nullptr,
                   w.x_parts > 1 ? in[1].shape[1] : 0});
      },
      with_norm<&conv_dense_with<kShared>>(call, route));
}

template <bool kShared>
mx::array conv_packed_with(const Call& call, const Route& route) {
  return node(
      call, route, output_rows(call), false,
      [w = call.weights()](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                           std::span<const graph::Input> in, const graph::Output& out) {
        cpu::PackedWeight weight;
        weight.storage = float_type_of(out.dtype);
        weight.codes = in[1].as<uint32_t>();
        weight.scales = in[2].data;
        weight.biases = in[3].data;
        const Packing& packing = w.packing;
        weight.bits = packing.bits;
        weight.group_size = packing.group_size;
        weight.n_k = r.n_kernels();
        weight.in_channels = (packing.transposed ? c_out : c_in) / groups;
        weight.out_channels = packing.transposed ? c_in : c_out;
        weight.groups = groups;
        weight.transposed = packing.transposed;
        cpu::conv(r.lists(), r.tiles(),
                  {float_type_of(out.dtype), in[0].data, &weight, bias_data(in, w), out.data, c_in,
                   c_out, groups, kShared, norm_after(in, w)});
      },
      with_norm<&conv_packed_with<kShared>>(call, route));
}

}  // namespace

std::string tile_note(const Call& call) {
  const int64_t tile = cpu::conv_tile(call.relation->lists());
  const auto counted = [](int64_t n, const char* what) {
    return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
  };
  return "the kernel cuts " + counted(call.n_out(), "output row") + " into " +
         counted((call.n_out() + tile - 1) / tile, "tile") + " of " + std::to_string(tile);
}

mx::array conv_tiles(const Call& call, const Route& route) {
  return conv_dense_with<false>(call, route);
}
mx::array conv_buckets(const Call& call, const Route& route) {
  return conv_dense_with<true>(call, route);
}
mx::array conv_packed(const Call& call, const Route& route) {
  return conv_packed_with<false>(call, route);
}
mx::array conv_packed_buckets(const Call& call, const Route& route) {
  return conv_packed_with<true>(call, route);
}

mx::array conv_reference(const Call& given, const Route& route) {
  const Call call = with_dense_weight(given);
  return node(
      call, route, output_rows(call), true,
      [w = call.weights()](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                           std::span<const graph::Input> in, const graph::Output& out) {
        const cpu::WeightStrides strides{in[1].strides[0], in[1].strides[1], in[1].strides[2]};
        cpu::visit_float_type(float_type_of(out.dtype), [&]<typename T>(T) {
          cpu::reference_conv<T>(r.lists(), {.x = in[0].as<T>(),
                                             .w = in[1].as<T>(),
                                             .strides = strides,
                                             .bias = static_cast<const T*>(bias_data(in, w)),
                                             .y = out.as<T>(),
                                             .c_in = c_in,
                                             .c_out = c_out,
                                             .groups = groups});
        });
      });
}

namespace {

template <auto kKernel>
mx::array outer_with(const Call& call, const Route& route) {
  return node(
      call, route, output_weight(call), false,
      [](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
         std::span<const graph::Input> in, const graph::Output& out) {
        kKernel(r.lists(), r.tiles(),
                {float_type_of(out.dtype), in[0].data, in[1].data, out.data, c_in, c_out, groups});
      });
}
}  // namespace

mx::array outer_buckets(const Call& call, const Route& route) {
  return outer_with<cpu::outer_of_buckets>(call, route);
}
mx::array outer_tiles(const Call& call, const Route& route) {
  return outer_with<cpu::outer>(call, route);
}

mx::array outer_reference(const Call& call, const Route& route) {
  return node(call, route, output_weight(call), false,
              [](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                 std::span<const graph::Input> in, const graph::Output& out) {
                cpu::visit_float_type(float_type_of(out.dtype), [&]<typename T>(T) {
                  cpu::reference_outer(r.lists(), in[0].as<T>(), c_in, in[1].as<T>(), c_out,
                                       out.as<T>(), groups);
                });
              });
}

// The tile kernels divide by channel counts.
Rejection has_channels(const Call& call) {
  if (call.c_in == 0 || call.c_out == 0) return {Step::shape, "one side has no channels"};
  return {};
}

Rejection dense_only(const Call& call) {
  if (call.packing().bits) return {Step::storage, "weights are " + call.packing().text()};
  return {};
}

Rejection packed_only(const Call& call) {
  if (!call.packing().bits) return {Step::storage, "weights are dense"};
  return {};
}

namespace {

template <typename Pays>
Rejection shares_outputs(const Call& call, const Pays& pays) {
  const Rejection why = has_channels(call);
  if (!why.fits()) return why;
  const cpu::RelationLists& lists = call.relation->lists();
  if (!pays(lists))
    return {Step::shape, std::to_string(lists.n_edges) + " edges in " +
                             std::to_string(lists.out_once ? lists.n_edges : lists.n_buckets) +
                             " buckets, " + std::to_string(call.c_out / call.groups) +
                             " output channels"};
  return {};
}

}  // namespace

Rejection outputs_are_shared(const Call& call) {
  return shares_outputs(call, [&](const cpu::RelationLists& lists) {
    return cpu::conv_buckets_pay(lists, call.c_in, call.c_out, call.groups);
  });
}

Rejection outer_outputs_are_shared(const Call& call) {
  return shares_outputs(call, [&](const cpu::RelationLists& lists) {
    return cpu::buckets_pay(lists, call.c_out, call.groups);
  });
}

}  // namespace lattice

#include "lattice/ops/conv_routes.h"

#include <mlx/ops.h>

#include "lattice/graph/cpu_call.h"
#include "lattice/graph/dtype.h"
#include "lattice/graph/metal_call.h"
#include "lattice/kernels/cpu/features/buckets.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/outer.h"
#include "lattice/kernels/cpu/features/packed.h"
#include "lattice/kernels/cpu/features/reduce.h"
#include "lattice/kernels/cpu/features/reference.h"
#include "lattice/ops/conv_metal.h"
#include "lattice/ops/conv_mlx.h"
#include "lattice/ops/quantize_conv.h"

namespace lattice {
namespace {

using Step = Rejection::Step;

Rejection always(const Call&) { return {}; }

// The tile kernels divide by channel counts.
Rejection has_channels(const Call& call) {
  if (call.c_in == 0 || call.c_out == 0) return {Step::shape, "one side has no channels"};
  return {};
}

Rejection dense_only(const Call& call) {
  if (call.packing.bits) return {Step::storage, "weights are " + call.storage + ", not dense"};
  return {};
}

// The first of several predicates that fails; they are given in the order of the decision.
template <typename... Checks>
auto all_of(Checks... checks) {
  return [=](const Call& call) {
    Rejection why;
    ((why = checks(call), why.fits()) && ...);
    return why;
  };
}

Rejection packed_only(const Call& call) {
  if (!call.packing.bits) return {Step::storage, "weights are " + call.storage + ", not packed"};
  return {};
}

Rejection outputs_are_shared(const Call& call) {
  const Rejection why = has_channels(call);
  if (!why.fits()) return why;
  const cpu::RelationLists& lists = call.relation->lists();
  if (!cpu::buckets_pay(lists, call.c_out, call.groups))
    return {Step::shape, std::to_string(lists.n_edges) + " edges in " +
                             std::to_string(lists.out_once ? lists.n_edges : lists.n_buckets) +
                             " buckets, " + std::to_string(call.c_out / call.groups) +
                             " output channels"};
  return {};
}

// Everything that a node depends on besides its inputs; the relation by its address, which the
// closure keeps alive.
std::string node_key(const Call& call) {
  return std::to_string(reinterpret_cast<std::uintptr_t>(call.relation.get())) + "/" +
         std::to_string(call.groups) + "/" + std::to_string(call.packing.bits) + "/" +
         std::to_string(call.packing.group_size) + "/" + std::to_string(call.packing.transposed);
}

// A node that runs `kernel(call data, inputs, outputs)` for a result of the given shape. Features
// are made contiguous; weights (inputs[1] of conv) keep their strides.
template <typename Kernel>
mx::array node(const Call& call, const char* route, mx::Shape shape, bool strided_weight,
               Kernel kernel) {
  std::vector<mx::array> inputs;
  for (size_t i = 0; i < call.inputs.size(); ++i)
    inputs.push_back(strided_weight && i == 1 ? call.inputs[i]
                                              : graph::row_contiguous(call.inputs[i], call.stream));
  return graph::cpu_call(
      call.operation + "." + route, node_key(call), std::move(inputs),
      {{std::move(shape), call.dtype}},
      [kernel, relation = call.relation, operation = call.operation, name = std::string(route),
       c_in = call.c_in, c_out = call.c_out,
       groups = call.groups](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        count_run(operation, name);
        kernel(*relation, c_in, c_out, groups, in, out[0]);
      },
      call.stream)[0];
}

mx::Shape rows_shape(const Call& call) {
  return {static_cast<int>(call.n_out()), static_cast<int>(call.c_out)};
}
mx::Shape weight_shape(const Call& call) {
  return {static_cast<int>(call.relation->n_kernels()), static_cast<int>(call.c_in / call.groups),
          static_cast<int>(call.c_out)};
}

// Behind x and a weight of one array or, packed, of three.
const void* bias_of(std::span<const graph::Input> in) {
  return in.size() % 2 ? in.back().data : nullptr;
}

mx::array conv_tiles(const Call& call) {
  return node(call, "cpu.tiles", rows_shape(call), true,
              [](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                 std::span<const graph::Input> in, const graph::Output& out) {
                cpu::DenseWeight weight;
                weight.storage = float_type_of(out.dtype);
                weight.data = in[1].data;
                weight.rows = c_in / groups;
                weight.group_columns = c_out / groups;
                weight.stride_k = in[1].strides[0];
                weight.stride_in = in[1].strides[1];
                weight.stride_out = in[1].strides[2];
                weight.stride_group = weight.group_columns * weight.stride_out;
                cpu::conv(r.lists(), r.tiles(),
                          {float_type_of(out.dtype), in[0].data, &weight, bias_of(in), out.data,
                           c_in, c_out, groups});
              });
}

mx::array conv_packed(const Call& call) {
  return node(
      call, "cpu.packed", rows_shape(call), false,
      [packing = call.packing](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                               std::span<const graph::Input> in, const graph::Output& out) {
        cpu::PackedWeight weight;
        weight.storage = float_type_of(out.dtype);
        weight.codes = in[1].as<uint32_t>();
        weight.scales = in[2].data;
        weight.biases = in[3].data;
        weight.bits = packing.bits;
        weight.group_size = packing.group_size;
        weight.n_k = r.n_kernels();
        weight.in_channels = (packing.transposed ? c_out : c_in) / groups;
        weight.out_channels = packing.transposed ? c_in : c_out;
        weight.groups = groups;
        weight.transposed = packing.transposed;
        cpu::conv(r.lists(), r.tiles(),
                  {float_type_of(out.dtype), in[0].data, &weight, bias_of(in), out.data, c_in,
                   c_out, groups});
      });
}

mx::array conv_reference(const Call& given) {
  const Call call = with_dense_weight(given);
  return node(
      call, "cpu.reference", rows_shape(call), true,
      [](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
         std::span<const graph::Input> in, const graph::Output& out) {
        const cpu::WeightStrides strides{in[1].strides[0], in[1].strides[1], in[1].strides[2]};
        cpu::visit_float_type(float_type_of(out.dtype), [&]<typename T>(T) {
          cpu::reference_conv(r.lists(), in[0].as<T>(), c_in, in[1].as<T>(), strides,
                              static_cast<const T*>(bias_of(in)), out.as<T>(), c_out, groups);
        });
      });
}

template <auto kKernel>
mx::array outer_with(const Call& call, const char* route) {
  return node(
      call, route, weight_shape(call), false,
      [](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
         std::span<const graph::Input> in, const graph::Output& out) {
        kKernel(r.lists(), r.tiles(),
                {float_type_of(out.dtype), in[0].data, in[1].data, out.data, c_in, c_out, groups});
      });
}
mx::array outer_buckets(const Call& call) {
  return outer_with<cpu::outer_of_buckets>(call, "cpu.buckets");
}
mx::array outer_tiles(const Call& call) { return outer_with<cpu::outer>(call, "cpu.tiles"); }

mx::array outer_reference(const Call& call) {
  return node(call, "cpu.reference", weight_shape(call), false,
              [](const Relation& r, int64_t c_in, int64_t c_out, int64_t groups,
                 std::span<const graph::Input> in, const graph::Output& out) {
                cpu::visit_float_type(float_type_of(out.dtype), [&]<typename T>(T) {
                  cpu::reference_outer(r.lists(), in[0].as<T>(), c_in, in[1].as<T>(), c_out,
                                       out.as<T>(), groups);
                });
              });
}

}  // namespace

void add_conv_routes(std::vector<Route>& rows) {
  const auto cpu = mx::Device::cpu, gpu = mx::Device::gpu;
  const std::string plain = "any shape: gather, matmul and scatter-add of MLX, in float32";
  const std::string product =
      "any shape: matmul of MLX, whose kernels are tuned for each GPU; packed weights are made "
      "dense, in float32";
  const std::string slow = "any shape: one multiplication at a time, sums in float64";
  for (const char* op : {"conv", "linear"}) {
    rows.push_back(
        {op, cpu, "cpu.tiles",
         "dense weights, no empty side: tiles of output rows, packed weights, vector registers",
         all_of(dense_only, has_channels), conv_tiles});
    rows.push_back({op, cpu, "cpu.packed",
                    "packed weights, no empty side: the same tiles, one block of codes at a time "
                    "expanded as it is used",
                    all_of(packed_only, has_channels), conv_packed});
    rows.push_back({op, cpu, "cpu.reference", slow + "; packed weights are made dense", always,
                    conv_reference});
  }
  rows.push_back({"outer", cpu, "cpu.buckets",
                  "at least 2.5 edges for each (offset, output row), 64 output channels a group, "
                  "rows in a local order: rows "
                  "that share an output are added first",
                  outputs_are_shared, outer_buckets});
  rows.push_back({"outer", cpu, "cpu.tiles",
                  "no empty side: rows copied once per part, sums in vector registers",
                  has_channels, outer_tiles});
  rows.push_back({"outer", cpu, "cpu.reference", slow, always, outer_reference});
  const std::string dense = "dense weights, 8 or more channels on both sides of a group, ";
  rows.push_back({"conv", gpu, "metal.sorted",
                  dense + "forward, target or submanifold relation of at most 32 offsets: tiles of "
                          "64 rows sorted by mask; matrix "
                          "units skip offsets that 16 rows lack",
                  all_of(needs_sorted_map, dense_only, needs_tiles, needs_metal),
                  conv_metal_sorted});
  rows.push_back({"conv", gpu, "metal.mirrored",
                  dense + "reversed submanifold relation of at most 32 offsets: metal.sorted on "
                          "the relation itself with the "
                          "offsets in reverse order",
                  all_of(needs_mirror, dense_only, needs_tiles, needs_metal), conv_metal_mirrored});
  rows.push_back({"conv", gpu, "metal.lists",
                  dense + "exactly one edge for every output row (up by 2 x 2 x 2, and the "
                          "gradient of down by 2 x 2 x 2): tiles "
                          "of 64 edges of one offset",
                  all_of(needs_one_edge, dense_only, needs_tiles, needs_metal), conv_metal_lists});
  rows.push_back({"conv", gpu, "metal.tiles",
                  dense + "no custom relation: tiles of 64 rows in the given order",
                  all_of(needs_map, dense_only, needs_tiles, needs_metal), conv_metal_tiles});
  rows.push_back({"conv", gpu, "metal.buckets",
                  dense + "at most 4 lists of a tile and an offset for an edge: tiles of 64 rows "
                          "in local order; rows that share "
                          "output and offset are added first",
                  all_of(needs_full_tiles, dense_only, needs_tiles, needs_metal),
                  conv_metal_buckets});
  rows.push_back({"conv", gpu, "metal.packed",
                  "packed weights, 8 or more channels on both sides of a group, no custom "
                  "relation: the tiles that dense "
                  "weights take; codes are expanded as they are used",
                  all_of(needs_map, packed_only, needs_tiles, needs_metal), conv_metal_packed});
  rows.push_back(
      {"conv", gpu, "metal.rows",
       "any shape, relation and storage where there is Metal: a thread an element, edges by row",
       needs_metal, conv_metal_rows});
  rows.push_back(
      {"linear", gpu, "metal.packed",
       "packed weights where there is Metal: tiles of 64 rows; codes are expanded as they are used",
       all_of(packed_only, needs_metal), conv_metal_tiles});
  rows.push_back({"outer", gpu, "metal.outer",
                  "8 or more channels on both sides of a group: edges of an offset in parts of "
                  "1,024, added in order",
                  all_of(needs_tiles, needs_metal), outer_metal_tiles});
  rows.push_back(
      {"outer", gpu, "metal.rows",
       "any shape where there is Metal: a thread an element of the result, the same parts",
       needs_metal, outer_metal_rows});
  rows.push_back({"conv", gpu, "gpu.mlx",
                  plain + "; packed weights: one offset dequantized at a time", always,
                  conv_with_mlx});
  rows.push_back({"linear", gpu, "gpu.mlx", product, always, linear_with_mlx});
  rows.push_back({"outer", gpu, "gpu.mlx", plain, always, outer_with_mlx});
}

mx::array launch_sum_rows(const mx::array& x, mx::StreamOrDevice s) {
  if (graph::on_gpu(s)) {
    // MLX 0.32.4 on the CPU may never end a sum over no rows.
    if (x.shape(0) == 0) return mx::zeros({x.shape(1)}, x.dtype(), s);
    return mx::astype(mx::sum(mx::astype(x, mx::float32, s), 0, false, s), x.dtype(), s);
  }
  return graph::cpu_call(
      "sum_rows", "", {graph::row_contiguous(x, s)}, {{{x.shape(1)}, x.dtype()}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::sum_rows(float_type_of(in[0].dtype), in[0].data, in[0].shape[0], in[0].shape[1],
                      out[0].data);
      },
      s)[0];
}

}  // namespace lattice

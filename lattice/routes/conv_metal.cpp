// Launches of kernels/metal/{conv,outer}.metal: the rows "metal.*" of conv, linear, outer,
// per_edge_apply and per_edge_outer.
//
// The relation's index arrays are inputs of the kernels; they are made on the CPU once per
// relation, in memory that both share. Work with no edge or no channel launches nothing. Rows
// "metal.tensor*" are the same launches with products on the tensor unit of Metal 4.
#include <mlx/ops.h>

#include <algorithm>
#include <bit>

#include "lattice/kernels/portable/conv_sizes.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/kernel_call.h"
#include "lattice/routes/per_edge.h"
#include "lattice/routes/segments_metal.h"

namespace lattice {
namespace {

constexpr int kRows = 64, kThreads = 128;  // of a tile in conv.metal
static_assert(kRows == kTileEdges);

int as_int(int64_t n) { return static_cast<int>(n); }

// Threads of kernels that have one for each element of rows of `columns`.
std::array<int, 3> row_threads(int64_t columns) {
  const int across = std::min(256, as_int(std::bit_ceil(static_cast<uint64_t>(columns))));
  return {across, 256 / across, 1};
}

bool is_empty(const Call& call) { return call.n_edges() == 0 || call.c_in == 0 || call.c_out == 0; }

// y of a call with nothing to sum.
mx::array bias_rows(const Call& call) {
  const mx::Shape shape{as_int(call.n_out()), as_int(call.c_out)};
  return call.bias() ? mx::broadcast_to(*call.bias(), shape, call.stream)
                     : mx::zeros(shape, call.dtype, call.stream);
}

// Of a weight: an offset, a group, an input channel.
struct Strides {
  int64_t k, g, c;
};
// Of w (K, C_in / groups, C_out).
Strides weight_strides(const Call& call) {
  return {in_group(call) * call.c_out, out_group(call), call.c_out};
}
// Of (K, G, C, M).
Strides matrix_strides(const Call& call) {
  const int64_t matrix = in_group(call) * out_group(call);
  return {call.groups * matrix, matrix, out_group(call)};
}

// A convolution with its inputs x, weight, bias and sizes. The body reads the weight as `weight`
// and x, bias and y as `arrays`.
struct ConvKernel : KernelCall {
  std::string weight, arrays;

  ConvKernel(const Call& c, const std::string& kernel, const char* topic, Strides strides)
      : KernelCall(kernel, topic) {
    call.template_args = {{"T", c.dtype}};
    add_output("y", {{as_int(c.n_out()), as_int(c.c_out)}, c.dtype});
    add("x", c.inputs[0]);
    const bool packed = c.packing().bits != 0;
    if (packed) {
      const std::string bits = std::to_string(c.packing().bits),
                        transposed = c.packing().transposed ? "true" : "false";
      add("codes", c.inputs[1]), add("scales", c.inputs[2]), add("code_biases", c.inputs[3]);
      weight = "lattice::packed_weight<T, " + bits + ", " + transposed +
               ">(codes, scales, code_biases, sizes)";
      call.name += "_int" + bits + (c.packing().transposed ? "_transposed" : "");
    } else {
      add("w", c.inputs[1]);
      weight = "lattice::dense_weight<T>(w, sizes)";
    }
    if (c.bias()) {
      add("bias", *c.bias());
      call.name += "_bias";
    }
    arrays = std::string("lattice::conv_arrays(x, ") + (c.bias() ? "bias" : "lattice::NoBias{}") +
             ", y)";
    if (packed) strides = {};  // its codes have a layout of their own
    add_sizes("ConvSizes", ConvSizes{.n_out = as_int(c.n_out()),
                                     .n_k = as_int(c.relation->n_kernels()),
                                     .groups = as_int(c.groups),
                                     .in = as_int(in_group(c)),
                                     .out = as_int(out_group(c)),
                                     .stride_k = as_int(strides.k),
                                     .stride_g = as_int(strides.g),
                                     .stride_c = as_int(strides.c),
                                     .group_size = as_int(c.packing().group_size)});
  }
};

mx::array rows_with(const Call& call, Strides strides) {
  if (is_empty(call)) return bias_rows(call);
  ConvKernel kernel(call, "conv_rows", "conv", strides);
  const Relation& r = *call.relation;
  kernel.add("row_offsets", r.output_csr().row_offsets);
  kernel.add("edge_ids", r.output_csr().edge_ids);
  kernel.add("in_rows", r.edges().in_rows), kernel.add("kernel_ids", r.edges().kernel_ids);
  kernel.enter("conv_rows",
               kernel.weight +
                   ", lattice::output_edges(row_offsets, edge_ids, in_rows, kernel_ids), " +
                   kernel.arrays + ", sizes, thread_position_in_grid");
  kernel.call.grid = {as_int(call.c_out), as_int(call.n_out()), 1};
  kernel.call.threadgroup = row_threads(call.c_out);
  return kernel.run(call.stream)[0];
}

enum class View { same, map, sorted, lists, buckets };

// Which unit multiplies tiles.
enum class Unit { matrices, tensors };

const char* flag(bool on) { return on ? "true" : "false"; }

// Template arguments of a tile kernel behind its types: the width of a tile, channels or edges of a
// step, and two flags. The flags say whether 8 channels of a row can be moved as one, on the input
// and on the output side. All of them go into the kernel's name.
struct TileShape {
  int width, depth;
  bool left, right;
  TileShape(const Call& call, int64_t widest, int64_t steps, mx::Dtype tile)
      : width(widest > 32 ? 64 : 32),
        depth(tile.size() == 2 && steps > 16 ? 32 : 16),
        left(in_group(call) % 8 == 0),
        right(out_group(call) % 8 == 0) {}
  std::string sizes() const { return std::to_string(width) + ", " + std::to_string(depth); }
  std::string arguments() const { return sizes() + ", " + flag(left) + ", " + flag(right); }
  std::string name() const {
    return std::to_string(width) + "x" + std::to_string(depth) + (left ? "_in8" : "") +
           (right ? "_out8" : "");
  }
};

mx::array tiles_with(const Call& call, View view, Unit unit = Unit::matrices) {
  if (is_empty(call)) return bias_rows(call);
  static constexpr const char* kNames[] = {"same", "map", "sorted", "lists", "buckets"};
  const bool tensors = unit == Unit::tensors;
  const TileShape shape(call, out_group(call), in_group(call),
                        view == View::buckets ? mx::float32 : call.dtype);
  const int columns = shape.width;
  const std::string function = tensors ? "conv_tensor" : "conv_tiles";
  ConvKernel kernel(call, function + "_" + kNames[static_cast<int>(view)] + shape.name(),
                    tensors ? "conv_tensor" : "conv", weight_strides(call));
  std::string rows = "lattice::SameRows{sizes.n_out}";
  int64_t tiles = (call.n_out() + kRows - 1) / kRows;
  if (view == View::map) {
    kernel.add("map", call.relation->implicit_gemm().out_in_map);
    kernel.add("row_masks", call.relation->implicit_gemm().row_masks);
    rows = "lattice::mapped_rows(map, row_masks, sizes)";
  } else if (view == View::sorted) {
    const SortedImplicitGemm& sorted = call.relation->sorted_implicit_gemm();
    kernel.add("map", sorted.sorted_kv_out_in_map), kernel.add("tile_masks", sorted.tile_masks);
    kernel.add("order", sorted.reorder_rows);
    rows = "lattice::sorted_rows(map, tile_masks, order, sizes)";
  } else if (view == View::lists) {
    const EdgeParts& parts = call.relation->edge_tiles();
    kernel.add("edge_ids", call.relation->kernel_csr().edge_ids);
    kernel.add("in_rows", call.relation->edges().in_rows);
    kernel.add("out_rows", call.relation->edges().out_rows), kernel.add("parts", parts.table);
    rows = "lattice::listed_rows(edge_ids, in_rows, out_rows, parts, threadgroup_position_in_grid)";
    tiles = parts.count;
  } else if (view == View::buckets) {
    const TileLists& lists = call.relation->tile_lists();
    kernel.add("bounds", lists.bounds), kernel.add("in_rows", lists.in_rows);
    kernel.add("positions", lists.positions), kernel.add("order", lists.order);
    rows = "lattice::bucket_rows(bounds, in_rows, positions, order, sizes)";
  }
  const std::string v = view == View::buckets ? "float" : "T",
                    blocks = tensors ? "conv_tensor_blocks(" : "conv_blocks<" + v + ">(";
  kernel.call.shared = {{"float4", "memory", "lattice::" + blocks + shape.sizes() + ")"},
                        {"uint", "masks", "4"}};
  kernel.enter(function + "<" + v + ", " + shape.arguments() + ">",
               rows + ", " + kernel.weight + ", " + kernel.arrays +
                   ", sizes, lattice::TileMemory{memory, masks}, " + kThreadPlace);
  kernel.call.grid = {as_int(tiles * kThreads), as_int((out_group(call) + columns - 1) / columns),
                      as_int(call.groups)};
  kernel.call.threadgroup = {kThreads, 1, 1};
  return kernel.run(call.stream)[0];
}

// The call on the relation before it was reversed: a submanifold's offsets in reverse order.
Call mirrored(const Call& call) {
  Call mirrored = call;
  mirrored.relation = call.relation->reversed();
  for (size_t i = 1; i < (call.packing().bits ? 4 : 2); ++i) {
    const mx::Shape& shape = call.inputs[i].shape();
    mirrored.inputs[i] = mx::slice(call.inputs[i], {shape[0] - 1, 0, 0},
                                   {-shape[0] - 1, shape[1], shape[2]}, {-1, 1, 1}, call.stream);
  }
  return mirrored;
}

// Result (K, matrix...), with the strides of a matrix in `strides`.
mx::array outer_with(const Call& call, const mx::Shape& shape, Strides strides,
                     std::optional<Unit> unit) {
  const auto s = call.stream;
  if (is_empty(call)) return mx::zeros(shape, call.dtype, s);
  const EdgeParts& parts = call.relation->edge_parts();
  const bool tensors = unit == Unit::tensors;
  const TileShape tiles(call, std::max(in_group(call), out_group(call)), kPartEdges, call.dtype);
  const std::string function = tensors ? "outer_tensor" : unit ? "outer_tiles" : "outer_rows";
  graph::OutputSpec spec{shape, call.dtype};
  if (!parts.direct) spec = {{parts.count, as_int(strides.k)}, mx::float32};
  KernelCall kernel(function + (unit ? tiles.name() : ""), tensors ? "outer_tensor" : "outer");
  kernel.call.template_args = {{"T", call.dtype}, {"U", spec.dtype}};
  kernel.add_output("u", spec);
  kernel.add("x", call.inputs[0]), kernel.add("g", call.inputs[1]);
  kernel.add("edge_ids", call.relation->kernel_csr().edge_ids);
  kernel.add("in_rows", call.relation->edges().in_rows);
  kernel.add("out_rows", call.relation->edges().out_rows), kernel.add("parts", parts.table);
  kernel.add_sizes("OuterSizes", OuterSizes{.groups = as_int(call.groups),
                                            .in = as_int(in_group(call)),
                                            .out = as_int(out_group(call)),
                                            .stride_k = as_int(strides.k),
                                            .stride_g = as_int(strides.g),
                                            .stride_c = as_int(strides.c)});
  const std::string arguments =
      "lattice::part_edges(edge_ids, in_rows, out_rows, parts), "
      "lattice::outer_arrays(x, g, u), sizes, ";
  if (unit) {
    const std::string blocks = tensors ? "outer_tensor_blocks(" : "outer_blocks<T>(";
    kernel.call.shared = {{"float4", "memory", "lattice::" + blocks + tiles.sizes() + ")"}};
    kernel.enter(function + "<T, " + tiles.arguments() + ">",
                 arguments + "memory, " + kThreadPlace);
    const auto tiles_of = [&](int64_t c) { return (c + tiles.width - 1) / tiles.width; };
    kernel.call.grid = {as_int(int64_t{parts.count} * kThreads), as_int(tiles_of(in_group(call))),
                        as_int(call.groups * tiles_of(out_group(call)))};
    kernel.call.threadgroup = {kThreads, 1, 1};
  } else {
    kernel.enter(function, arguments + "thread_position_in_grid");
    kernel.call.grid = {as_int(call.c_out), as_int(in_group(call)), parts.count};
    kernel.call.threadgroup = row_threads(call.c_out);
  }
  const mx::array u = kernel.run(s)[0];
  if (parts.direct) return u;
  const mx::array sum =
      metal_reduce(u, {parts.offsets, {}, {}, parts.pieces}, ReduceMode::sum, call.dtype, s);
  return mx::reshape(sum, shape, s);
}

}  // namespace

mx::array conv_metal_rows(const Call& call) { return rows_with(call, weight_strides(call)); }
mx::array conv_metal_tiles(const Call& call) {
  return tiles_with(call, call.operation == Operation::linear ? View::same : View::map);
}
mx::array conv_metal_sorted(const Call& call) { return tiles_with(call, View::sorted); }
mx::array conv_metal_mirrored(const Call& call) { return tiles_with(mirrored(call), View::sorted); }
mx::array conv_metal_tensor_same(const Call& call) {
  return tiles_with(call, View::same, Unit::tensors);
}
mx::array conv_metal_tensor_sorted(const Call& call) {
  return tiles_with(call, View::sorted, Unit::tensors);
}
mx::array conv_metal_tensor_mirrored(const Call& call) {
  return tiles_with(mirrored(call), View::sorted, Unit::tensors);
}
mx::array conv_metal_tensor_lists(const Call& call) {
  return tiles_with(call, View::lists, Unit::tensors);
}
mx::array conv_metal_lists(const Call& call) { return tiles_with(call, View::lists); }
mx::array conv_metal_buckets(const Call& call) { return tiles_with(call, View::buckets); }
mx::array per_edge_apply_metal_rows(const Call& call) {
  return rows_with(call, matrix_strides(call));
}

mx::array outer_metal_rows(const Call& call) {
  const mx::Shape shape{as_int(call.relation->n_kernels()), as_int(in_group(call)),
                        as_int(call.c_out)};
  return outer_with(call, shape, weight_strides(call), std::nullopt);
}
mx::array outer_metal_tiles(const Call& call) {
  const mx::Shape shape{as_int(call.relation->n_kernels()), as_int(in_group(call)),
                        as_int(call.c_out)};
  return outer_with(call, shape, weight_strides(call), Unit::matrices);
}
mx::array outer_metal_tensor(const Call& call) {
  const mx::Shape shape{as_int(call.relation->n_kernels()), as_int(in_group(call)),
                        as_int(call.c_out)};
  return outer_with(call, shape, weight_strides(call), Unit::tensors);
}
mx::array per_edge_outer_metal_rows(const Call& call) {
  const mx::Shape shape{as_int(call.relation->n_kernels()), as_int(call.groups),
                        as_int(in_group(call)), as_int(out_group(call))};
  return outer_with(call, shape, matrix_strides(call), std::nullopt);
}

}  // namespace lattice

// Launches of kernels/metal/{conv,outer}.metal: the rows "metal.*" of conv, linear, outer,
// per_edge_apply and per_edge_outer.
//
// The relation's index arrays are inputs of the kernels; they are made on the CPU once per
// relation, in memory that both share. Work with no edge or no channel launches nothing. Rows
// "metal.tensor*" are the same launches with products on the tensor unit of Metal 4.
#include <mlx/ops.h>

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "lattice/kernels/portable/conv_sizes.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/kernel_call.h"
#include "lattice/routes/per_edge.h"
#include "lattice/routes/segments_metal.h"

namespace lattice::routes {
namespace {

constexpr int kRows = 64, kThreads = 128;  // of a tile in conv.metal
static_assert(kRows == kTileEdges);

int as_int(int64_t n) { return static_cast<int>(n); }

const char* flag(bool on) { return on ? "true" : "false"; }

// Threads of kernels that have one for each element of rows of `columns`.
std::array<int, 3> row_threads(int64_t columns) {
  const int across = std::min(256, as_int(std::bit_ceil(static_cast<uint64_t>(columns))));
  return {across, 256 / across, 1};
}

bool is_empty(const ConvProblem& z) { return z.n_edges() == 0 || z.c_in == 0 || z.c_out == 0; }

// y with nothing to sum.
mx::array bias_rows(const ConvAsked& z) {
  const mx::Shape shape = z.rows().shape;
  return with_norm(z, z.bias ? mx::broadcast_to(*z.bias, shape, z.stream)
                             : mx::zeros(shape, z.dtype(), z.stream));
}

// Of a weight: an offset, a group, an input channel.
struct Strides {
  int64_t k, g, c;
};
// Of w (K, C_in / groups, C_out).
Strides weight_strides(const ConvProblem& z) {
  return {z.in_group() * z.c_out, z.out_group(), z.c_out};
}
// Of (K, G, C, M).
Strides matrix_strides(const ConvProblem& z) {
  const int64_t matrix = z.in_group() * z.out_group();
  return {z.groups * matrix, matrix, z.out_group()};
}

// A convolution with its inputs x, weight, bias and sizes. The body reads the weight as `weight`
// and x, bias and y as `arrays`.
struct ConvKernel : KernelCall {
  std::string weight, arrays;

  // `mirrored`: offset k reads the weights of the k-th last one.
  ConvKernel(const ConvAsked& z, const std::string& kernel, const char* topic, Strides strides,
             bool mirrored = false)
      : KernelCall(kernel, topic) {
    if (mirrored) call.name += "_mirrored";
    const std::string flags = mirrored ? ", true>" : ", false>";
    call.template_args = {{"T", z.dtype()}};
    add_output("y", z.rows());
    add("x", z.x);
    if (z.weight.codes) {
      const auto& [scales, biases, packing] = *z.weight.codes;
      const std::string bits = std::to_string(packing.bits),
                        transposed = packing.transposed ? "true" : "false";
      add("codes", z.weight.w), add("scales", scales), add("code_biases", biases);
      weight = "lattice::packed_weight<T, " + bits + ", " + transposed + flags +
               "(codes, scales, code_biases, sizes)";
      call.name += "_int" + bits + (packing.transposed ? "_transposed" : "");
      strides = {};  // its codes have a layout of their own
    } else {
      add("w", z.weight.w);
      weight = "lattice::dense_weight<T" + flags + "(w, sizes)";
      if (z.weight.strided) {
        call.strided = {"w"};
        call.name += "_strided";
        weight = "lattice::strided_weight<T" + flags + "(w, w_strides, sizes)";
      }
    }
    if (z.bias) {
      add("bias", *z.bias);
      call.name += "_bias";
    }
    arrays = std::string("lattice::conv_arrays(x, ") + (z.bias ? "bias" : "lattice::NoBias{}") +
             ", y, " + norm_text(z) + ")";
    add_sizes(
        "ConvSizes",
        ConvSizes{.n_out = as_int(z.n_out()),
                  .n_k = as_int(z.n_k()),
                  .groups = as_int(z.groups),
                  .in = as_int(z.in_group()),
                  .out = as_int(z.out_group()),
                  .stride_k = as_int(strides.k),
                  .stride_g = as_int(strides.g),
                  .stride_c = as_int(strides.c),
                  .group_size = z.weight.codes ? as_int(z.weight.codes->packing.group_size) : 0,
                  .eps = z.norm ? z.norm->eps : 0});
  }

 private:
  std::string norm_text(const ConvAsked& z) {
    if (!z.norm) return "lattice::NoNorm{}";
    const bool adds = z.norm->residual.has_value();
    add("mean", z.norm->mean), add("var", z.norm->var);
    add("norm_weight", z.norm->weight), add("shift", z.norm->shift);
    if (adds) add("residual", *z.norm->residual);
    call.name += std::string("_norm") + (adds ? "_add" : "") + (z.norm->relu ? "_relu" : "");
    return std::string("lattice::norm_after<") + flag(adds) + ", " + flag(z.norm->relu) +
           ">(mean, var, norm_weight, shift, " + (adds ? "residual" : "mean") + ", sizes)";
  }
};

mx::array rows_with(const ConvAsked& z, Strides strides) {
  if (is_empty(z)) return bias_rows(z);
  ConvKernel kernel(z, "conv_rows", "conv", strides);
  const Relation& r = *z.relation;
  kernel.add("row_offsets", r.output_csr().row_offsets);
  kernel.add("edge_ids", r.output_csr().edge_ids);
  kernel.add("in_rows", r.edges().in_rows), kernel.add("kernel_ids", r.edges().kernel_ids);
  kernel.enter("conv_rows",
               kernel.weight +
                   ", lattice::output_edges(row_offsets, edge_ids, in_rows, kernel_ids), " +
                   kernel.arrays + ", sizes, thread_position_in_grid");
  kernel.call.grid = {as_int(z.c_out), as_int(z.n_out()), 1};
  kernel.call.threadgroup = row_threads(z.c_out);
  return kernel.run(z.stream)[0];
}

enum class View { same, map, sorted, lists, buckets };

// The unit that multiplies tiles.
enum class Unit { matrices, tensors };

// The width of square tiles, or of tiles of rows, that wastes least of its products on channels
// that are not there; of equals the widest.
int tile_width(std::initializer_list<int64_t> sides, Unit unit) {
  int best = 0;
  int64_t least = 0;
  for (const int width : {96, 64, 32}) {
    if (width == 96 && unit == Unit::tensors) continue;
    int64_t area = 1;
    for (const int64_t side : sides) area *= (side + width - 1) / width * width;
    if (best == 0 || area < least) best = width, least = area;
  }
  return best;
}

// Template arguments of a tile kernel behind its types: the width of a tile, channels or edges of a
// step, and two flags. The flags say whether 8 channels of a row can be moved as one, on the input
// and on the output side. All of them go into the kernel's name.
struct TileShape {
  int width, depth;
  bool left, right;
  TileShape(const ConvProblem& z, int width, int64_t steps, mx::Dtype tile)
      : width(width),
        depth(tile.size() == 2 && steps > 16 ? 32 : 16),
        left(z.in_group() % 8 == 0),
        right(z.out_group() % 8 == 0) {}
  std::string sizes() const { return std::to_string(width) + ", " + std::to_string(depth); }
  std::string arguments() const { return sizes() + ", " + flag(left) + ", " + flag(right); }
  std::string name() const {
    return std::to_string(width) + "x" + std::to_string(depth) + (left ? "_in8" : "") +
           (right ? "_out8" : "");
  }
};

mx::array tiles_with(const ConvAsked& z, View view, Unit unit = Unit::matrices,
                     bool mirrored = false) {
  if (is_empty(z)) return bias_rows(z);
  static constexpr const char* kNames[] = {"same", "map", "sorted", "lists", "buckets"};
  const bool tensors = unit == Unit::tensors;
  const TileShape shape(z, tile_width({z.out_group()}, unit), z.in_group(),
                        view == View::buckets ? mx::float32 : z.dtype());
  const int columns = shape.width;
  const std::string function = tensors ? "conv_tensor" : "conv_tiles";
  ConvKernel kernel(z, function + "_" + kNames[static_cast<int>(view)] + shape.name(),
                    tensors ? "conv_tensor" : "conv", weight_strides(z), mirrored);
  std::string rows = "lattice::SameRows{sizes.n_out}";
  int64_t tiles = (z.n_out() + kRows - 1) / kRows;
  if (view == View::map) {
    kernel.add("map", z.relation->implicit_gemm().out_in_map);
    kernel.add("row_masks", z.relation->implicit_gemm().row_masks);
    rows = "lattice::mapped_rows(map, row_masks, sizes)";
  } else if (view == View::sorted) {
    const SortedImplicitGemm& sorted = z.relation->sorted_implicit_gemm();
    kernel.add("map", sorted.sorted_kv_out_in_map), kernel.add("tile_masks", sorted.tile_masks);
    kernel.add("order", sorted.reorder_rows);
    rows = "lattice::sorted_rows(map, tile_masks, order, sizes)";
  } else if (view == View::lists) {
    const EdgeParts& parts = z.relation->edge_tiles();
    kernel.add("in_rows", z.relation->offset_edges().in_rows);
    kernel.add("out_rows", z.relation->offset_edges().out_rows), kernel.add("parts", parts.table);
    rows = "lattice::listed_rows(in_rows, out_rows, parts, threadgroup_position_in_grid)";
    tiles = parts.count;
  } else if (view == View::buckets) {
    const TileLists& lists = z.relation->tile_lists();
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
  kernel.call.grid = {as_int(tiles * kThreads), as_int((z.out_group() + columns - 1) / columns),
                      as_int(z.groups)};
  kernel.call.threadgroup = {kThreads, 1, 1};
  return kernel.run(z.stream)[0];
}

// On the relation before it was reversed: a submanifold's offsets in reverse order.
mx::array mirrored(const ConvAsked& asked, Unit unit) {
  ConvAsked other = asked;
  other.relation = asked.relation->reversed();
  return tiles_with(other, View::sorted, unit, /*mirrored=*/true);
}

// Result (K, matrix...), with the strides of a matrix in `strides`.
mx::array outer_with(const OuterAsked& asked, const mx::Shape& shape, Strides strides,
                     std::optional<Unit> unit) {
  const auto s = asked.stream;
  const ConvProblem& z = asked;
  if (is_empty(z)) return mx::zeros(shape, z.dtype(), s);
  const EdgeParts& parts = z.relation->edge_parts();
  const bool tensors = unit == Unit::tensors;
  const TileShape tiles(z, tile_width({z.in_group(), z.out_group()}, unit.value_or(Unit::matrices)),
                        kPartEdges, z.dtype());
  const std::string function = tensors ? "outer_tensor" : unit ? "outer_tiles" : "outer_rows";
  graph::OutputSpec spec{shape, z.dtype()};
  if (!parts.direct) spec = {{parts.count, as_int(strides.k)}, mx::float32};
  KernelCall kernel(function + (unit ? tiles.name() : ""), tensors ? "outer_tensor" : "outer");
  kernel.call.template_args = {{"T", z.dtype()}, {"U", spec.dtype}};
  kernel.add_output("u", spec);
  kernel.add("x", asked.x), kernel.add("g", asked.g);
  const bool same = z.relation->is_identity();
  if (same) {
    kernel.call.name += "_same";
  } else {
    kernel.add("in_rows", z.relation->offset_edges().in_rows);
    kernel.add("out_rows", z.relation->offset_edges().out_rows);
  }
  kernel.add("parts", parts.table);
  kernel.add_sizes("OuterSizes", OuterSizes{.groups = as_int(z.groups),
                                            .in = as_int(z.in_group()),
                                            .out = as_int(z.out_group()),
                                            .stride_k = as_int(strides.k),
                                            .stride_g = as_int(strides.g),
                                            .stride_c = as_int(strides.c)});
  const std::string arguments =
      std::string(same ? "lattice::same_edges(parts), "
                       : "lattice::part_edges(in_rows, out_rows, parts), ") +
      "lattice::outer_arrays(x, g, u), sizes, ";
  if (unit) {
    const std::string blocks = tensors ? "outer_tensor_blocks(" : "outer_blocks<T>(";
    kernel.call.shared = {{"float4", "memory", "lattice::" + blocks + tiles.sizes() + ")"}};
    kernel.enter(function + "<T, " + tiles.arguments() + ">",
                 arguments + "memory, " + kThreadPlace);
    const auto tiles_of = [&](int64_t c) { return (c + tiles.width - 1) / tiles.width; };
    kernel.call.grid = {as_int(int64_t{parts.count} * kThreads), as_int(tiles_of(z.in_group())),
                        as_int(z.groups * tiles_of(z.out_group()))};
    kernel.call.threadgroup = {kThreads, 1, 1};
  } else {
    kernel.enter(function, arguments + "thread_position_in_grid");
    kernel.call.grid = {as_int(z.c_out), as_int(z.in_group()), parts.count};
    kernel.call.threadgroup = row_threads(z.c_out);
  }
  const mx::array u = kernel.run(s)[0];
  if (parts.direct) return u;
  const mx::array sum =
      metal_reduce(u, {parts.offsets, {}, {}, parts.pieces}, ReduceMode::sum, z.dtype(), s);
  return mx::reshape(sum, shape, s);
}

// "tiles are 96 wide; 100 % of their products are of channels".
std::string use_text(std::initializer_list<int64_t> sides, Unit unit) {
  const int width = tile_width(sides, unit);
  double used = 100;
  for (const int64_t side : sides)
    if (side > 0)
      used *= static_cast<double>(side) / static_cast<double>((side + width - 1) / width * width);
  return "tiles are " + std::to_string(width) + " wide; " +
         std::to_string(static_cast<int>(used + 0.5)) + " % of their products are of channels";
}

}  // namespace

std::string conv_tile_use(const ConvAsked& z) { return use_text({z.out_group()}, Unit::matrices); }
std::string conv_tensor_use(const ConvAsked& z) { return use_text({z.out_group()}, Unit::tensors); }
std::string outer_tile_use(const OuterAsked& z) {
  return use_text({z.in_group(), z.out_group()}, Unit::matrices);
}
std::string outer_tensor_use(const OuterAsked& z) {
  return use_text({z.in_group(), z.out_group()}, Unit::tensors);
}

mx::array conv_metal_rows(const ConvAsked& asked) {
  return rows_with(asked, weight_strides(asked));
}
mx::array conv_metal_tiles(const ConvAsked& asked) { return tiles_with(asked, View::map); }
mx::array conv_metal_same(const ConvAsked& asked) { return tiles_with(asked, View::same); }
mx::array conv_metal_sorted(const ConvAsked& asked) { return tiles_with(asked, View::sorted); }
mx::array conv_metal_mirrored(const ConvAsked& asked) { return mirrored(asked, Unit::matrices); }
mx::array conv_metal_tensor_same(const ConvAsked& asked) {
  return tiles_with(asked, View::same, Unit::tensors);
}
mx::array conv_metal_tensor_sorted(const ConvAsked& asked) {
  return tiles_with(asked, View::sorted, Unit::tensors);
}
mx::array conv_metal_tensor_mirrored(const ConvAsked& asked) {
  return mirrored(asked, Unit::tensors);
}
mx::array conv_metal_tensor_lists(const ConvAsked& asked) {
  return tiles_with(asked, View::lists, Unit::tensors);
}
mx::array conv_metal_lists(const ConvAsked& asked) { return tiles_with(asked, View::lists); }
mx::array conv_metal_buckets(const ConvAsked& asked) { return tiles_with(asked, View::buckets); }
mx::array per_edge_apply_metal_rows(const PerEdgeAsked& asked) {
  ConvAsked conv{asked, asked.x, {asked.matrices_of_edges}};
  conv.stream = asked.stream;
  return rows_with(conv, matrix_strides(asked));
}

mx::array outer_metal_rows(const OuterAsked& asked) {
  return outer_with(asked, asked.weights().shape, weight_strides(asked), std::nullopt);
}
mx::array outer_metal_tiles(const OuterAsked& asked) {
  return outer_with(asked, asked.weights().shape, weight_strides(asked), Unit::matrices);
}
mx::array outer_metal_tensor(const OuterAsked& asked) {
  return outer_with(asked, asked.weights().shape, weight_strides(asked), Unit::tensors);
}
mx::array per_edge_outer_metal_rows(const OuterAsked& asked) {
  return outer_with(asked, asked.matrices().shape, matrix_strides(asked), std::nullopt);
}

}  // namespace lattice::routes

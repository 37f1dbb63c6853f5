// Launches of kernels/metal/{conv,outer}.metal: the rows "metal.*" of conv, linear, outer,
// per_edge_apply and per_edge_outer.
//
// The relation's index arrays are inputs of the kernels; they are made on the CPU once per
// relation, in memory that both share. Work with no edge or no channel launches nothing. Rows
// "metal.tensor*" are the same launches with products on the tensor unit of Metal 4.
#include <mlx/ops.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/graph/metal_call.h"
#include "lattice/kernels/metal/text.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/per_edge.h"
#include "lattice/routes/segments_metal.h"

namespace lattice {
namespace {

using Step = Rejection::Step;

constexpr int kRows = 64, kThreads = 128;  // of a tile in conv.metal
constexpr int kPart = 1024;                // edges of a part of an outer product

constexpr int64_t kMostGroups = (int64_t{1} << 31) / kThreads - 1;  // MLX counts threads in 32 bits

int as_int(int64_t n) { return static_cast<int>(n); }

mx::array numbers(const std::vector<int32_t>& values) {
  return mx::array(values.begin(), {as_int(static_cast<int64_t>(values.size()))}, mx::int32);
}

// A call of Metal that grows input by input. Names say everything that changes the text.
struct Launch {
  graph::MetalCall call;
  std::vector<mx::array> inputs;

  Launch(std::string name, const char* topic, mx::Dtype dtype, std::string result,
         graph::OutputSpec spec) {
    call.name = std::move(name);
    call.header = metal::text(topic);
    call.output_names = {std::move(result)};
    call.outputs = {std::move(spec)};
    call.template_args = {{"T", dtype}};
  }
  void add(const char* name, const mx::array& input) {
    call.input_names.push_back(name);
    inputs.push_back(input);
  }
  mx::array run(mx::StreamOrDevice s) const { return graph::metal_call(call, inputs, s)[0]; }
};

// Threads of kernels that have one for each element of rows of `columns`.
std::array<int, 3> row_threads(int64_t columns) {
  const int across = std::min(256, as_int(std::bit_ceil(static_cast<uint64_t>(columns))));
  return {across, 256 / across, 1};
}

int64_t in_group(const Call& call) { return call.c_in / call.groups; }
int64_t out_group(const Call& call) { return call.c_out / call.groups; }
bool is_empty(const Call& call) { return call.n_edges() == 0 || call.c_in == 0 || call.c_out == 0; }

// y of a call with nothing to sum.
mx::array bias_rows(const Call& call) {
  const mx::Shape shape{as_int(call.n_out()), as_int(call.c_out)};
  return call.bias() ? mx::broadcast_to(*call.bias(), shape, call.stream)
                     : mx::zeros(shape, call.dtype, call.stream);
}

// Inputs x, weight, bias and sizes of a convolution. The body reads the weight as `weight` and the
// bias as `bias`.
struct ConvLaunch : Launch {
  std::string weight, bias = "lattice::NoBias{}";

  ConvLaunch(const Call& c, const std::string& kernel, const char* topic,
             const std::vector<int32_t>& strides)
      : Launch(kernel, topic, c.dtype, "y", {{as_int(c.n_out()), as_int(c.c_out)}, c.dtype}) {
    const int n_k = as_int(c.relation->n_kernels());
    std::vector<int32_t> sizes = {as_int(c.n_out()), n_k, as_int(c.groups), as_int(in_group(c)),
                                  as_int(out_group(c))};
    add("x", c.inputs[0]);
    if (c.packing().bits) {
      const std::string bits = std::to_string(c.packing().bits),
                        transposed = c.packing().transposed ? "true" : "false";
      add("codes", c.inputs[1]), add("scales", c.inputs[2]), add("code_biases", c.inputs[3]);
      weight = "lattice::packed_weight<T, " + bits + ", " + transposed +
               ">(codes, scales, code_biases, sizes)";
      call.name += "_int" + bits + (c.packing().transposed ? "_transposed" : "");
      sizes.push_back(as_int(c.packing().group_size));
    } else {
      add("w", c.inputs[1]);
      weight = "lattice::dense_weight<T>(w, sizes)";
      sizes.insert(sizes.end(), strides.begin(), strides.end());
    }
    if (c.bias()) {
      add("bias", *c.bias());
      bias = "bias";
      call.name += "_bias";
    }
    add("sizes", numbers(sizes));
  }
};

// Strides of w (K, C_in / groups, C_out): an offset, a group, an input channel.
std::vector<int32_t> weight_strides(const Call& call) {
  return {as_int(in_group(call) * call.c_out), as_int(out_group(call)), as_int(call.c_out)};
}
// Of (K, G, C, M).
std::vector<int32_t> matrix_strides(const Call& call) {
  const int64_t matrix = in_group(call) * out_group(call);
  return {as_int(call.groups * matrix), as_int(matrix), as_int(out_group(call))};
}

mx::array rows_with(const Call& call, const std::vector<int32_t>& strides) {
  if (is_empty(call)) return bias_rows(call);
  ConvLaunch launch(call, "conv_rows", "conv", strides);
  const Relation& r = *call.relation;
  launch.add("row_offsets", r.output_csr().row_offsets),
      launch.add("edge_ids", r.output_csr().edge_ids);
  launch.add("in_rows", r.edges().in_rows), launch.add("kernel_ids", r.edges().kernel_ids);
  launch.call.source =
      "lattice::conv_rows(" + launch.weight + ", x, " + launch.bias +
      ", row_offsets, edge_ids, in_rows, kernel_ids, sizes, y, thread_position_in_grid);";
  launch.call.grid = {as_int(call.c_out), as_int(call.n_out()), 1};
  launch.call.threadgroup = row_threads(call.c_out);
  return launch.run(call.stream);
}

// The edges of each offset in parts of a fixed length: their number depends on nothing else, so
// that the bits do not either.
struct Parts {
  std::vector<int32_t> table;          // k, begin, end, place in the result
  std::vector<int32_t> offsets = {0};  // parts of k: offsets[k] .. offsets[k + 1]
  bool direct = true;                  // one part for each offset: it is the result

  Parts(const Relation& r, int32_t length) {
    const int32_t* begin = r.kernel_csr().row_offsets.data<int32_t>();
    const auto n_k = static_cast<int32_t>(r.n_kernels());
    for (int32_t k = 0; k < n_k; ++k) direct = direct && begin[k + 1] - begin[k] <= length;
    for (int32_t k = 0; k < n_k; ++k) {
      int32_t from = begin[k], end = begin[k + 1];
      do {  // an offset without edges has one part too: it writes zeros
        const int32_t to = end - from > length ? from + length : end;
        table.insert(table.end(),
                     {k, from, to, direct ? k : static_cast<int32_t>(table.size() / 4)});
        from = to;
      } while (from < end);
      offsets.push_back(static_cast<int32_t>(table.size() / 4));
    }
  }
  int count() const { return offsets.back(); }
};

// Masks that rows are sorted by.
Rejection needs_short_mask(const Call& call) {
  const int64_t n_k = call.relation->n_kernels();
  if (n_k > 32)
    return {Step::relation, std::to_string(n_k) + " offsets: a mask to sort by has 32 bits"};
  return needs_map(call);
}

enum class View { same, map, sorted, lists, buckets };

// Which unit multiplies tiles.
enum class Unit { matrices, tensors };

const char* flag(bool on) { return on ? "true" : "false"; }

// Template arguments of a tile kernel behind its types. They say how wide a tile is, channels or
// edges of a step, and whether 8 channels of a row can be moved as one. All of them go into the
// kernel's name.
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
  const std::string kernel = tensors ? "conv_tensor" : "conv_tiles";
  ConvLaunch launch(call, kernel + "_" + kNames[static_cast<int>(view)] + shape.name(),
                    tensors ? "conv_tensor" : "conv", weight_strides(call));
  std::string rows = "lattice::SameRows{sizes[0]}";
  int64_t tiles = (call.n_out() + kRows - 1) / kRows;
  if (view == View::map) {
    launch.add("map", call.relation->implicit_gemm().out_in_map);
    launch.add("row_masks", call.relation->implicit_gemm().row_masks);
    rows = "lattice::mapped_rows(map, row_masks, sizes)";
  } else if (view == View::sorted) {
    const SortedImplicitGemm& sorted = call.relation->sorted_implicit_gemm();
    launch.add("map", sorted.sorted_kv_out_in_map), launch.add("tile_masks", sorted.tile_masks);
    launch.add("order", sorted.reorder_rows);
    rows = "lattice::sorted_rows(map, tile_masks, order, sizes)";
  } else if (view == View::lists) {
    const Parts parts(*call.relation, kRows);
    launch.add("edge_ids", call.relation->kernel_csr().edge_ids),
        launch.add("in_rows", call.relation->edges().in_rows);
    launch.add("out_rows", call.relation->edges().out_rows),
        launch.add("parts", numbers(parts.table));
    rows = "lattice::listed_rows(edge_ids, in_rows, out_rows, parts, threadgroup_position_in_grid)";
    tiles = parts.count();
  } else if (view == View::buckets) {
    const TileLists& lists = call.relation->tile_lists();
    launch.add("bounds", lists.bounds), launch.add("in_rows", lists.in_rows);
    launch.add("positions", lists.positions), launch.add("order", lists.order);
    rows = "lattice::bucket_rows(bounds, in_rows, positions, order, sizes)";
  }
  const std::string v = view == View::buckets ? "float" : "T",
                    blocks = tensors ? "conv_tensor_blocks(" : "conv_blocks<" + v + ">(";
  launch.call.source =
      "threadgroup float4 memory[lattice::" + blocks + shape.sizes() +
      ")];\nthreadgroup uint masks[4];\nlattice::" + kernel + "<" + v + ", " + shape.arguments() +
      ">(" + rows + ", " + launch.weight + ", x, " + launch.bias +
      ", sizes, y, memory, masks, threadgroup_position_in_grid, " +
      "thread_index_in_threadgroup, simdgroup_index_in_threadgroup, thread_index_in_simdgroup);";
  launch.call.grid = {as_int(tiles * kThreads), as_int((out_group(call) + columns - 1) / columns),
                      as_int(call.groups)};
  launch.call.threadgroup = {kThreads, 1, 1};
  return launch.run(call.stream);
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
mx::array outer_with(const Call& call, const mx::Shape& shape, const std::vector<int32_t>& strides,
                     std::optional<Unit> unit) {
  const auto s = call.stream;
  if (is_empty(call)) return mx::zeros(shape, call.dtype, s);
  const Parts parts(*call.relation, kPart);
  const int size = strides[0];
  const bool tensors = unit == Unit::tensors;
  const TileShape tiles(call, std::max(in_group(call), out_group(call)), kPart, call.dtype);
  const std::string kernel = tensors ? "outer_tensor" : unit ? "outer_tiles" : "outer_rows";
  graph::OutputSpec spec{shape, call.dtype};
  if (!parts.direct) spec = {{parts.count(), size}, mx::float32};
  Launch launch(kernel + (unit ? tiles.name() : ""), tensors ? "outer_tensor" : "outer", call.dtype,
                "u", spec);
  launch.call.template_args.emplace_back("U", spec.dtype);
  launch.add("x", call.inputs[0]), launch.add("g", call.inputs[1]);
  launch.add("edge_ids", call.relation->kernel_csr().edge_ids);
  launch.add("in_rows", call.relation->edges().in_rows),
      launch.add("out_rows", call.relation->edges().out_rows);
  launch.add("parts", numbers(parts.table));
  launch.add("sizes", numbers({as_int(call.groups), as_int(in_group(call)), as_int(out_group(call)),
                               strides[0], strides[1], strides[2]}));
  const std::string arguments = "(x, g, edge_ids, in_rows, out_rows, parts, sizes, u, ";
  if (unit) {
    launch.call.source = std::string("threadgroup float4 memory[lattice::") +
                         (tensors ? "outer_tensor_blocks(" : "outer_blocks<T>(") + tiles.sizes() +
                         ")];\nlattice::" + kernel + "<T, U, " + tiles.arguments() + ">" +
                         arguments +
                         "memory, threadgroup_position_in_grid, thread_index_in_threadgroup, " +
                         "simdgroup_index_in_threadgroup, thread_index_in_simdgroup);";
    const auto blocks = [&](int64_t c) { return (c + tiles.width - 1) / tiles.width; };
    launch.call.grid = {as_int(int64_t{parts.count()} * kThreads), as_int(blocks(in_group(call))),
                        as_int(call.groups * blocks(out_group(call)))};
    launch.call.threadgroup = {kThreads, 1, 1};
  } else {
    launch.call.source = "lattice::outer_rows<U>" + arguments + "thread_position_in_grid);";
    launch.call.grid = {as_int(call.c_out), as_int(in_group(call)), parts.count()};
    launch.call.threadgroup = row_threads(call.c_out);
  }
  const mx::array u = launch.run(s);
  if (parts.direct) return u;
  const mx::array sum = metal_reduce(u, {numbers(parts.offsets), std::nullopt, std::nullopt},
                                     ReduceMode::sum, call.dtype, s);
  return mx::reshape(sum, shape, s);
}

}  // namespace

Rejection needs_few_groups(const Call& call) {
  // Of each kernel the most: tiles of rows, parts of the edges of an offset.
  const int64_t n_k = call.relation->n_kernels();
  const int64_t groups = std::max(call.n_out() / kRows, call.n_edges() / kPart) + n_k + 1;
  if (groups > kMostGroups)
    return {Step::shape, std::to_string(groups) +
                             " groups of 128 threads: MLX launches fewer than 2^31 threads"};
  return {};
}

Rejection needs_tiles(const Call& call) {
  if (in_group(call) < 8 || out_group(call) < 8)
    return {Step::shape, "a group has " + std::to_string(in_group(call)) + " -> " +
                             std::to_string(out_group(call)) + " channels, a matrix unit takes 8"};
  return needs_few_groups(call);
}

Rejection needs_tensor_unit(const Call& call) {
  if (tensor_ops() != TensorOps::neural_accelerator)
    return {Step::capability, std::string("the tier is ") + name(tensor_ops()) +
                                  ": only a neural accelerator multiplies faster this way"};
  if (call.dtype == mx::float32)
    return {Step::storage, "float32: the tensor unit would round to fewer bits"};
  if (in_group(call) < 16 || out_group(call) < 16)
    return {Step::shape, "a group has " + std::to_string(in_group(call)) + " -> " +
                             std::to_string(out_group(call)) +
                             " channels, the tensor unit takes 16"};
  return {};
}

Rejection needs_map(const Call& call) {
  const Relation& r = *call.relation;
  if (r.kind() == RelationKind::custom)
    return {Step::relation, "custom edges may have two of one offset in a row; the map holds one"};
  if (r.n_out() * r.n_kernels() > std::numeric_limits<int32_t>::max())
    return {Step::relation, "rows times offsets exceed the 2^31 - 1 entries of a map"};
  return {};
}

Rejection needs_one_edge(const Call& call) {
  const Relation& r = *call.relation;
  bool one = r.edge_count() == r.n_out();
  const int32_t* begin = one ? r.output_csr().row_offsets.data<int32_t>() : nullptr;
  for (int64_t row = 0; one && row < r.n_out(); ++row) one = begin[row + 1] - begin[row] == 1;
  if (!one) return {Step::relation, "some output row has no edge or several"};
  return {};
}

Rejection needs_full_tiles(const Call& call) {
  const Relation& r = *call.relation;
  const int64_t lists = (r.n_out() + kRows - 1) / kRows * r.n_kernels();
  if (lists > 4 * r.edge_count() + 4096)
    return {Step::relation, std::to_string(lists) + " lists of a tile and an offset for " +
                                std::to_string(r.edge_count()) + " edges: most would be empty"};
  return {};
}

Rejection needs_sorted_map(const Call& call) {
  const Relation& r = *call.relation;
  const bool kind = r.kind() == RelationKind::forward || r.kind() == RelationKind::target ||
                    r.kind() == RelationKind::submanifold;
  if (!kind || r.is_reversed())
    return {Step::relation,
            std::string(r.is_reversed() ? "reversed " : "") + kind_name(r.kind()) +
                " relation: only forward, target and submanifold rows are sorted by mask"};
  return needs_short_mask(call);
}

Rejection needs_mirror(const Call& call) {
  if (call.relation->kind() != RelationKind::submanifold || !call.relation->is_reversed())
    return {Step::relation, "not a reversed submanifold relation: no mirror image"};
  return needs_short_mask(call);
}

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

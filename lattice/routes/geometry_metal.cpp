// Launches of kernels/metal/{coords,relations,neighbors}.metal: the rows "metal.*" of the geometry
// operations. int32 coordinates only.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/portable/geometry_sizes.h"
#include "lattice/routes/geometry.h"
#include "lattice/routes/kernel_call.h"

namespace lattice {
namespace {

constexpr int kTile = 64;  // as in neighbors.metal

int rows_of(const mx::array& a) { return a.shape(0); }

// A kernel with one thread per row.
struct RowKernel : KernelCall {
  RowKernel(const char* topic, const std::string& name, int n)
      : KernelCall(std::string(topic) + "_" + name, topic) {
    call.grid = {n, 1, 1};
    call.threadgroup = {256, 1, 1};
  }
};

// Slots with every row of coords; twice as many as rows, or more.
mx::array table_of(const mx::array& coords, mx::StreamOrDevice s) {
  const int n = rows_of(coords),
            slots = static_cast<int>(std::bit_ceil(static_cast<uint32_t>(2 * n + 2)));
  RowKernel kernel("coords", "insert", n);
  kernel.add("coords", coords);
  kernel.add_output("out", {{slots}, mx::int32});
  kernel.add_sizes("TableSizes", TableSizes{.n_slots = slots, .n_rows = n});
  kernel.enter("insert_coordinate", "out, coords, sizes, thread_position_in_grid");
  kernel.call.init_value = -1.0f;
  return kernel.run(s)[0];
}

mx::array find(const mx::array& coords, const mx::array& queries, mx::StreamOrDevice s) {
  const int n = rows_of(queries);
  if (n == 0 || rows_of(coords) == 0) return mx::full({n}, -1, mx::int32, s);
  const mx::array slots = table_of(coords, s);
  RowKernel kernel("coords", "find", n);
  kernel.add("slots", slots), kernel.add("coords", coords), kernel.add("queries", queries);
  kernel.add_output("out", {{n}, mx::int32});
  kernel.add_sizes("TableSizes", TableSizes{.n_slots = rows_of(slots), .n_rows = rows_of(coords)});
  kernel.enter("find_row", "out, slots, coords, queries, sizes, thread_position_in_grid");
  return kernel.run(s)[0];
}

// Neighbors of all queries by comparing each of them with every source. The kernel `function`,
// count or take, keeps `width` neighbors per query in its outputs.
graph::Arrays search(const std::string& function, const Call& call, int width,
                     const std::vector<graph::OutputSpec>& outputs) {
  const int n = rows_of(call.inputs[1]);
  const bool points = call.geometry().points;
  KernelCall kernel("neighbors_" + function + (points ? "_points" : "_coords"), "neighbors");
  kernel.add("source", call.inputs[0]), kernel.add("query", call.inputs[1]);
  std::string arguments;
  for (size_t i = 0; i < outputs.size(); ++i) {
    kernel.add_output(i ? "distances" : "out", outputs[i]);
    arguments += i ? "distances, " : "out, ";
  }
  kernel.add_sizes(
      "SearchSizes",
      SearchSizes{.n_sources = rows_of(call.inputs[0]),
                  .n_queries = n,
                  .width = width,
                  .reach = call.geometry().reach.value_or(std::numeric_limits<float>::infinity())});
  kernel.call.shared = {{"int4", "tile", "lattice::kTile"}};
  kernel.enter(function + "_neighbors<" + (points ? "true>" : "false>"),
               arguments + "source, query, sizes, tile, lattice::SearchPlace{" +
                   "thread_position_in_grid, thread_position_in_threadgroup}");
  kernel.call.grid = {(n + kTile - 1) / kTile * kTile, 1, 1};
  kernel.call.threadgroup = {kTile, 1, 1};
  if (function == "take") kernel.call.init_value = -1.0f;
  return kernel.run(call.stream);
}

}  // namespace

Rejection needs_hash(const Call& call) {
  for (const mx::array& a : call.inputs)
    if (a.dtype() == mx::int64 || a.size() >= size_t{1} << 31)
      return {Rejection::Step::shape, "coordinates are int64 or have 2^29 rows or more"};
  return needs_gpu_kernels(call);
}

Rejection needs_map_by_hash(const Call& call) {
  const Geometry& g = call.geometry();
  const bool scatters = offsets_start_at_zero(g.kind);
  const int64_t k = g.spec.volume(), words = (k + 31) / 32, n = rows_of(call.inputs[0]);
  // Where the output rows are still to be made there are at most so many.
  const int64_t n_out = g.has_target ? call.n_out() : n * (scatters ? k : 1);
  if (n_out * (k + words) > std::numeric_limits<int32_t>::max() || n_out >= 1 << 29)
    return {Rejection::Step::shape, "the map may have 2^31 values or more"};
  const Rejection why = needs_hash(call);
  if (!why.fits() || g.has_target || !scatters) return why;
  const int32_t* rows = n ? call.inputs[0].data<int32_t>() : nullptr;
  for (int64_t r = 0; r < n; ++r)
    for (size_t a = 0; a < 3; ++a) {
      const int64_t low =
          rows[r * 4 + 1 + static_cast<int64_t>(a)] * g.spec.stride[a] - g.spec.padding[a];
      const int64_t high = low + (g.spec.size[a] - 1) * g.spec.dilation[a];
      if (low < std::numeric_limits<int32_t>::min() || high > std::numeric_limits<int32_t>::max())
        return {Rejection::Step::shape, "some output coordinate leaves int32"};
    }
  return why;
}

mx::array lookup_with_metal(const Call& call) {
  return find(call.inputs[0], call.inputs[1], call.stream);
}

mx::array unique_with_metal(const Call& call) {
  const mx::array& coords = call.inputs[0];
  const auto s = call.stream;
  const int n = rows_of(coords);
  if (n == 0) return mx::zeros({2, 0}, mx::int32, s);
  const mx::array first = find(coords, coords, s);
  const mx::array is_first = mx::equal(first, mx::arange(n, mx::int32, s), s);
  const mx::array number = mx::subtract(
      mx::cumsum(mx::astype(is_first, mx::int32, s), 0, false, true, s), mx::array(1), s);
  RowKernel kernel("coords", "compact", n);
  kernel.add("first", first), kernel.add("number", number);
  kernel.add_output("out", {{2, n}, mx::int32});
  kernel.add_sizes("TableSizes", TableSizes{.n_slots = 0, .n_rows = n});
  kernel.enter("compact_row", "out, first, number, sizes, thread_position_in_grid");
  kernel.call.init_value = -1.0f;
  return kernel.run(s)[0];
}

mx::array relate_with_metal(const Call& call) {
  const mx::array &in = call.inputs[0], &out = call.inputs[1];
  const auto s = call.stream;
  const RelationKind kind = call.geometry().kind;
  const KernelSpec& spec = call.geometry().spec;
  const int n_k = static_cast<int>(spec.volume()), n_words = (n_k + 31) / 32, n = rows_of(out);
  if (n == 0 || rows_of(in) == 0) {
    const mx::array none = mx::full({n, n_k}, -1, mx::int32, s);
    return mx::concatenate({none, mx::zeros({n, n_words}, mx::int32, s)}, 1, s);
  }
  const bool scatters = offsets_start_at_zero(kind);
  const mx::array slots = table_of(in, s);
  RelateSizes sizes{.n_slots = rows_of(slots), .n_k = n_k, .stride = {}, .padding = {}};
  for (size_t a = 0; a < 3; ++a) {
    sizes.stride[a] = static_cast<int>(spec.stride[a]);
    sizes.padding[a] = static_cast<int>(spec.padding[a]);
  }
  std::vector<int32_t> offsets;
  for (const Triple& offset : kernel_offsets(spec.size, spec.dilation, !scatters))
    for (const int64_t v : offset) offsets.push_back(static_cast<int32_t>(v));
  RowKernel kernel("relations", scatters ? "scatter" : "gather", n);
  kernel.add("slots", slots), kernel.add("rows", in), kernel.add("targets", out);
  kernel.add("offsets", mx::array(offsets.data(), {n_k, 3}, mx::int32));
  kernel.add_output("out", {{n, n_k + n_words}, mx::int32});
  kernel.add_sizes("RelateSizes", sizes);
  kernel.enter(std::string("relate_row<") + (scatters ? "true>" : "false>"),
               "out, slots, rows, targets, offsets, sizes, thread_position_in_grid.xy");
  kernel.call.grid[1] = n_words;
  return kernel.run(s)[0];
}

mx::array neighbors_with_metal(const Call& call) {
  const int n = rows_of(call.inputs[1]);
  const int64_t limit = call.geometry().limit;
  std::vector<int32_t> result = {0, 0, 0};  // truncated in two words, the first offset
  if (n == 0 || rows_of(call.inputs[0]) == 0) {
    result.resize(static_cast<size_t>(n) + 3, 0);
    return mx::array(result.data(), {n + 3}, mx::int32);
  }
  mx::array counts = search("count", call, 0, {{{n}, mx::int32}})[0];
  counts.eval();
  const int32_t* count = counts.data<int32_t>();
  const int64_t most = *std::max_element(count, count + n);
  const int width = static_cast<int>(std::min(limit, most));
  int64_t truncated = 0;
  for (int q = 0; q < n && call.geometry().reach; ++q)
    truncated += std::max<int64_t>(0, count[q] - int64_t{width});
  if (int64_t{n} * width > std::numeric_limits<int32_t>::max())
    fail("neighbors", "metal.brute keeps " + std::to_string(width) + " neighbors for each of " +
                          std::to_string(n) + " queries, expected fewer than 2^31");
  result[0] = static_cast<int32_t>(truncated & ((1 << 30) - 1));
  result[1] = static_cast<int32_t>(truncated >> 30);
  std::vector<int32_t> distances;
  if (width > 0) {
    std::vector<mx::array> found =
        search("take", call, width, {{{n, width}, mx::int32}, {{n, width}, mx::float32}});
    mx::eval(found);
    std::vector<int32_t> sources;
    for (int q = 0; q < n; ++q) {
      const int64_t kept = std::min<int64_t>(count[q], width), at = int64_t{q} * width;
      for (int64_t e = at; e < at + kept; ++e) {
        sources.push_back(found[0].data<int32_t>()[e]);
        distances.push_back(std::bit_cast<int32_t>(found[1].data<float>()[e]));
      }
      result.push_back(static_cast<int32_t>(sources.size()));
    }
    result.insert(result.end(), sources.begin(), sources.end());
    result.insert(result.end(), distances.begin(), distances.end());
  } else {
    result.resize(static_cast<size_t>(n) + 3, 0);
  }
  return mx::array(result.data(), {static_cast<int>(result.size())}, mx::int32);
}

}  // namespace lattice

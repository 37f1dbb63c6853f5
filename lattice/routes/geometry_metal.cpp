// Launches of kernels/metal/{coords,relations,neighbors}.metal: the rows "metal.*" of the geometry
// operations. int32 coordinates only.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/kernels/portable/geometry_sizes.h"
#include "lattice/routes/geometry.h"
#include "lattice/routes/kernel_call.h"

namespace lattice::routes {
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

cpu::Buffer<int32_t> buffer_of(mx::array values, int64_t n) {
  values.eval();
  cpu::Buffer<int32_t> out(n);
  if (n) std::copy_n(values.data<int32_t>(), n, out.begin());
  return out;
}

// Rows that the relation makes, in the order of core: distinct floor(in / stride), or distinct in *
// stride + offset - padding. A condition of the row says that they fit int32.
CoordinateSet made_rows(const RelateAsked& asked) {
  const KernelSpec& spec = asked.spec;
  const cpu::CoordSpan in = asked.in.span();
  const int64_t k = asked.scatters() ? spec.volume() : 1, n = in.rows * k;
  cpu::Buffer<int32_t> rows(n * 4);
  if (!asked.scatters()) {
    cpu::floor_coords(in, spec.stride, rows.data());
  } else {
    const std::vector<Triple> offsets = kernel_offsets(spec.size, spec.dilation, false);
    for (int64_t i = 0; i < n; ++i) {
      rows[i * 4] = static_cast<int32_t>(in.at(i / k, 0));
      for (size_t a = 0; a < 3; ++a)
        rows[i * 4 + 1 + static_cast<int64_t>(a)] =
            static_cast<int32_t>(in.at(i / k, static_cast<int>(a) + 1) * spec.stride[a] +
                                 offsets[static_cast<size_t>(i % k)][a] - spec.padding[a]);
    }
  }
  const CoordinateSet all(adopt(std::move(rows), {static_cast<int>(n), 4}), asked.operation);
  const cpu::Buffer<int32_t> first = unique_with_metal({all, asked.stream}).first;
  cpu::Buffer<int32_t> kept(first.size() * 4);
  cpu::take_rows(all.span(), first.span(), kept.data());
  return CoordinateSet(adopt(std::move(kept), {static_cast<int>(first.size()), 4}),
                       asked.operation);
}

// out_in_map and, behind it, the masks of the rows.
mx::array map_and_masks(const RelateAsked& asked, const mx::array& in, const mx::array& out) {
  const mx::StreamOrDevice s = asked.stream;
  const KernelSpec& spec = asked.spec;
  const int n_k = static_cast<int>(spec.volume()), n_words = (n_k + 31) / 32, n = rows_of(out);
  if (n == 0 || rows_of(in) == 0) {
    const mx::array none = mx::full({n, n_k}, -1, mx::int32, s);
    return mx::concatenate({none, mx::zeros({n, n_words}, mx::int32, s)}, 1, s);
  }
  const mx::array slots = table_of(in, s);
  RelateSizes sizes{.n_slots = rows_of(slots), .n_k = n_k, .stride = {}, .padding = {}};
  for (size_t a = 0; a < 3; ++a) {
    sizes.stride[a] = static_cast<int>(spec.stride[a]);
    sizes.padding[a] = static_cast<int>(spec.padding[a]);
  }
  std::vector<int32_t> offsets;
  for (const Triple& offset : kernel_offsets(spec.size, spec.dilation, !asked.scatters()))
    for (const int64_t v : offset) offsets.push_back(static_cast<int32_t>(v));
  RowKernel kernel("relations", asked.scatters() ? "scatter" : "gather", n);
  kernel.add("slots", slots), kernel.add("rows", in), kernel.add("targets", out);
  kernel.add("offsets", mx::array(offsets.data(), {n_k, 3}, mx::int32));
  kernel.add_output("out", {{n, n_k + n_words}, mx::int32});
  kernel.add_sizes("RelateSizes", sizes);
  kernel.enter(std::string("relate_row<") + (asked.scatters() ? "true>" : "false>"),
               "out, slots, rows, targets, offsets, sizes, thread_position_in_grid.xy");
  kernel.call.grid[1] = n_words;
  return kernel.run(s)[0];
}

// Source and query as the kernel reads them, (N, 4) int32.
struct SearchRows {
  mx::array source, query;
};

// Neighbors of all queries by comparing each of them with every source. The kernel `function`,
// count or take, keeps `width` neighbors per query in its outputs.
graph::Arrays search(const std::string& function, const NeighborsAsked& asked,
                     const SearchRows& rows, int width,
                     const std::vector<graph::OutputSpec>& outputs) {
  const int n = rows_of(rows.query);
  const bool points = asked.are_points();
  KernelCall kernel("neighbors_" + function + (points ? "_points" : "_coords"), "neighbors");
  kernel.add("source", rows.source), kernel.add("query", rows.query);
  std::string arguments;
  for (size_t i = 0; i < outputs.size(); ++i) {
    kernel.add_output(i ? "distances" : "out", outputs[i]);
    arguments += i ? "distances, " : "out, ";
  }
  kernel.add_sizes(
      "SearchSizes",
      SearchSizes{.n_sources = rows_of(rows.source),
                  .n_queries = n,
                  .width = width,
                  .reach = asked.query.reach.value_or(std::numeric_limits<float>::infinity())});
  kernel.call.shared = {{"int4", "tile", "lattice::kTile"}};
  kernel.enter(function + "_neighbors<" + (points ? "true>" : "false>"),
               arguments + "source, query, sizes, tile, lattice::SearchPlace{" +
                   "thread_position_in_grid, thread_position_in_threadgroup}");
  kernel.call.grid = {(n + kTile - 1) / kTile * kTile, 1, 1};
  kernel.call.threadgroup = {kTile, 1, 1};
  if (function == "take") kernel.call.init_value = -1.0f;
  return kernel.run(asked.stream);
}

cpu::Neighbors found_neighbors(const NeighborsAsked& asked, const SearchRows& rows) {
  const int n = rows_of(rows.query);
  cpu::Neighbors result;
  result.offsets = cpu::Buffer<int32_t>(n + 1);
  std::fill(result.offsets.begin(), result.offsets.end(), 0);
  if (n == 0 || rows_of(rows.source) == 0) return result;
  const cpu::Buffer<int32_t> count =
      buffer_of(search("count", asked, rows, 0, {{{n}, mx::int32}})[0], n);
  const int64_t most = *std::max_element(count.begin(), count.end());
  const int width = static_cast<int>(std::min(asked.query.limit, most));
  if (int64_t{n} * width > std::numeric_limits<int32_t>::max())
    fail("neighbors", "metal.brute keeps " + std::to_string(width) + " neighbors for each of " +
                          std::to_string(n) + " queries, expected fewer than 2^31");
  for (int q = 0; q < n; ++q) {
    if (asked.query.reach) result.truncated += std::max(0, count[q] - width);
    result.offsets[q + 1] = result.offsets[q] + std::min(count[q], width);
  }
  if (width == 0) return result;
  std::vector<mx::array> found =
      search("take", asked, rows, width, {{{n, width}, mx::int32}, {{n, width}, mx::float32}});
  mx::eval(found);
  result.sources = cpu::Buffer<int32_t>(result.offsets[n]);
  result.distances = cpu::Buffer<float>(result.offsets[n]);
  for (int q = 0; q < n; ++q) {
    const int64_t at = int64_t{q} * width, kept = std::min(count[q], width);
    std::copy_n(found[0].data<int32_t>() + at, kept, result.sources.begin() + result.offsets[q]);
    std::copy_n(found[1].data<float>() + at, kept, result.distances.begin() + result.offsets[q]);
  }
  return result;
}

}  // namespace

cpu::Buffer<int32_t> lookup_with_metal(const LookupAsked& asked) {
  return buffer_of(find(asked.coords.array(), asked.queries.array(), asked.stream),
                   asked.queries.rows());
}

cpu::Distinct unique_with_metal(const UniqueAsked& asked) {
  const mx::array& coords = asked.coords.array();
  const auto s = asked.stream;
  const int n = rows_of(coords);
  if (n == 0) return {};
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
  mx::array both = kernel.run(s)[0];  // the distinct row of each row; the first row of each, -1
  both.eval();
  const int32_t* firsts = both.data<int32_t>() + n;
  const int64_t count = std::find(firsts, firsts + n, -1) - firsts;
  cpu::Distinct distinct{cpu::Buffer<int32_t>(count), cpu::Buffer<int32_t>(n)};
  std::copy_n(firsts, count, distinct.first.begin());
  std::copy_n(both.data<int32_t>(), n, distinct.inverse.begin());
  return distinct;
}

Relation::Fresh relate_with_metal(const RelateAsked& asked) {
  const mx::StreamOrDevice s = asked.stream;
  const cpu::Buffer<int32_t> first = lookup_with_metal({asked.in, asked.in, s});
  for (int64_t r = 0; r < first.size(); ++r)
    if (first[r] != r) asked.in.unique_index(asked.operation);  // throws
  const std::optional<CoordinateSet> known = asked.out();
  CoordinateSet out = known ? *known : made_rows(asked);
  const mx::array map = map_and_masks(asked, asked.in.array(), out.array());
  const int n = map.shape(0), n_k = static_cast<int>(asked.spec.volume());
  mx::array rows = mx::contiguous(mx::slice(map, {0, 0}, {n, n_k}, s), false, s);
  mx::array masks = mx::contiguous(mx::slice(map, {0, n_k}, {n, map.shape(1)}, s), false, s);
  masks = mx::view(masks, mx::uint32, s);
  mx::eval(rows, masks);
  return Relation::from_map(asked.kind, asked.spec, asked.in.rows(), {rows, masks}, std::move(out));
}

NeighborRelation::Ptr neighbors_with_metal(const NeighborsAsked& asked) {
  const auto& [source, query, batches, query_batches] = asked.rows;
  if (query && mx::issubdtype(query->dtype(), mx::floating) != asked.are_points())
    fail(asked.operation,
         "source and query must both be integer coordinates or both be float points");
  const mx::array sources = neighbor_rows(source, batches, asked.operation, "source_coords");
  const SearchRows rows{
      sources,
      query ? neighbor_rows(*query, query_batches, asked.operation, "query_coords") : sources};
  return std::make_shared<const NeighborRelation>(found_neighbors(asked, rows), source.shape(0),
                                                  asked.limit);
}

}  // namespace lattice::routes

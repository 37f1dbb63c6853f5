#include "lattice/core/relation_views.h"

#include <limits>
#include <numeric>
#include <utility>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/sorted_map.h"

namespace lattice {
namespace {

constexpr const char* kName = "KernelRelation";

int checked_int(int64_t n, const char* view) {
  if (n > std::numeric_limits<int32_t>::max())
    fail(kName, std::string(view) + " needs " + std::to_string(n) +
                    " entries; at most 2^31 - 1 are possible");
  return static_cast<int>(n);
}

[[noreturn]] void fail_with_two_edges(const char* view) {
  fail(kName,
       std::string(view) + ": some output row has two edges with one offset; the map holds one");
}

// Arrays that a kernel writes.
mx::array ints(int64_t n) { return graph::empty_array({static_cast<int>(n)}, mx::int32); }
mx::array table(int64_t rows, int64_t columns, mx::Dtype dtype = mx::int32) {
  return graph::empty_array({static_cast<int>(rows), static_cast<int>(columns)}, dtype);
}
int32_t* data(mx::array& a) { return a.data<int32_t>(); }

size_t sum_of(std::initializer_list<const mx::array*> arrays) {
  size_t total = 0;
  for (const mx::array* a : arrays) total += a->nbytes();
  return total;
}

}  // namespace

EdgesByOutput make_edges(const cpu::RelationLists& lists) {
  const int64_t n = checked_int(lists.n_edges, "edges");
  mx::array offsets = ints(checked_int(lists.n_out + 1, "edges")), in = ints(n), out = ints(n),
            k = ints(n);
  cpu::edge_arrays(lists, data(offsets), data(in), data(out), data(k));
  return {{in, out, k}, offsets};
}

Edges swapped(const Edges& e, int64_t n_in, int64_t n_out, int64_t n_k) {
  const int64_t n = static_cast<int64_t>(e.in_rows.size());
  cpu::Buffer<int32_t> order(n), next(n), ids(n), keys(n);
  std::iota(order.begin(), order.end(), 0);
  const auto take = [&](const mx::array& values, int32_t* to) {
    for (int64_t i = 0; i < n; ++i) to[i] = values.data<int32_t>()[order[i]];
  };
  const std::pair<const mx::array*, int64_t> passes[] = {
      {&e.out_rows, n_out}, {&e.kernel_ids, n_k}, {&e.in_rows, n_in}};
  for (const auto& [values, groups] : passes) {  // the least important key first
    cpu::Buffer<int32_t> offsets(groups + 1);
    take(*values, keys.data());
    cpu::group_edges(keys.data(), n, groups, offsets.data(), ids.data());
    for (int64_t i = 0; i < n; ++i) next[i] = order[ids[i]];
    std::swap(order, next);
  }
  const auto taken = [&](const mx::array& values) {
    mx::array to = ints(n);
    take(values, data(to));
    return to;
  };
  return {taken(e.out_rows), taken(e.in_rows), taken(e.kernel_ids)};
}

EdgeGroups group_edges(const mx::array& keys, int64_t n_groups) {
  const int64_t n = static_cast<int64_t>(keys.size());
  mx::array offsets = ints(n_groups + 1), ids = ints(n);
  cpu::group_edges(keys.data<int32_t>(), n, n_groups, data(offsets), data(ids));
  return {offsets, ids};
}

EdgeGroups groups_in_order(const mx::array& row_offsets, int64_t n_edges) {
  mx::array ids = ints(n_edges);
  std::iota(data(ids), data(ids) + n_edges, 0);
  return {row_offsets, ids};
}

OffsetEdges make_offset_edges(const cpu::RelationLists& lists) {
  const int64_t n = checked_int(lists.n_edges, "offset_edges");
  mx::array row_offsets = ints(lists.n_k() + 1), in = ints(n), out = ints(n);
  cpu::offset_edges(lists, data(row_offsets), data(in), data(out));
  return {row_offsets, in, out};
}

ImplicitGemm make_implicit_gemm(const cpu::RelationLists& lists) {
  const int64_t n_out = lists.n_out, n_k = lists.n_k(), words = (n_k + 31) / 32;
  checked_int(n_out * n_k, "implicit_gemm");
  mx::array map = table(n_out, n_k), masks = table(n_out, words, mx::uint32);
  if (!cpu::implicit_map(lists, data(map), masks.data<uint32_t>()))
    fail_with_two_edges("implicit_gemm");
  return {map, masks};
}

SortedImplicitGemm make_sorted_implicit_gemm(const cpu::RelationLists& lists) {
  constexpr const char* kView = "sorted_implicit_gemm";
  const int64_t n_out = lists.n_out, n_k = lists.n_k(), tiles = (n_out + 63) / 64;
  checked_int(n_out * n_k, kView);
  mx::array map = table(n_k, n_out), order = ints(n_out), tile_masks = table(tiles, 4, mx::uint32);
  if (!cpu::sorted_map(lists, data(map), data(order), tile_masks.data<uint32_t>()))
    fail_with_two_edges(kView);
  return {map, order, tile_masks};
}

mx::array SortedImplicitGemm::sorted_out_in_map() const {
  const int ks = sorted_kv_out_in_map.shape(0), rows = sorted_kv_out_in_map.shape(1);
  mx::array map = table(rows, ks);
  int32_t* to = data(map);
  const auto* from = sorted_kv_out_in_map.data<int32_t>();
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t k = 0; k < ks; ++k) to[p * ks + k] = from[k * rows + p];
  return map;
}

TileLists make_tile_lists(const cpu::RelationLists& lists) {
  constexpr const char* kView = "tile_lists";
  cpu::TileBounds tiles = cpu::tile_bounds(lists, 64);
  const int n_k = static_cast<int>(lists.n_k()),
            n = checked_int((tiles.n_tiles + 1) * n_k, kView) / n_k;
  const int64_t n_edges = checked_int(lists.n_edges, kView);
  mx::array in = ints(n_edges), positions = ints(n_edges), order = ints(lists.n_out);
  cpu::tile_lists(lists, tiles, data(in), data(positions), data(order));
  return {adopt(std::move(tiles.bounds), {n, n_k}), in, positions, order};
}

EdgeParts make_edge_parts(const mx::array& row_offsets, int32_t length) {
  const int32_t* begin = row_offsets.data<int32_t>();
  const int32_t n_k = row_offsets.shape(0) - 1;
  bool direct = true;
  for (int32_t k = 0; k < n_k; ++k) direct = direct && begin[k + 1] - begin[k] <= length;
  std::vector<int32_t> table, offsets = {0};
  for (int32_t k = 0; k < n_k; ++k) {
    int32_t from = begin[k], end = begin[k + 1];
    do {  // an offset without edges writes zeros
      const int32_t to = end - from > length ? from + length : end;
      table.insert(table.end(), {k, from, to, direct ? k : static_cast<int32_t>(table.size() / 4)});
      from = to;
    } while (from < end);
    offsets.push_back(static_cast<int32_t>(table.size() / 4));
  }
  const auto column = [](const std::vector<int32_t>& values) {
    return new_array(values.data(), {static_cast<int>(values.size())}, mx::int32);
  };
  EdgeParts parts{column(table), column(offsets), {}, offsets.back(), direct};
  if (!direct) parts.pieces = cut_segments(parts.offsets);
  return parts;
}

size_t bytes_of(const Edges& e) { return sum_of({&e.in_rows, &e.out_rows, &e.kernel_ids}); }
size_t bytes_of(const EdgeGroups& g) { return sum_of({&g.row_offsets, &g.edge_ids}); }
size_t bytes_of(const OffsetEdges& e) { return sum_of({&e.row_offsets, &e.in_rows, &e.out_rows}); }
size_t bytes_of(const ImplicitGemm& m) { return sum_of({&m.out_in_map, &m.row_masks}); }
size_t bytes_of(const SortedImplicitGemm& m) {
  return sum_of({&m.sorted_kv_out_in_map, &m.reorder_rows, &m.tile_masks});
}
size_t bytes_of(const TileLists& t) {
  return sum_of({&t.bounds, &t.in_rows, &t.positions, &t.order});
}
size_t bytes_of(const EdgeParts& p) { return sum_of({&p.table, &p.offsets}) + bytes_of(p.pieces); }
size_t bytes_of(const std::vector<SegmentPieces>& pieces) {
  size_t total = 0;
  for (const SegmentPieces& cut : pieces) total += sum_of({&cut.bounds, &cut.owners, &cut.starts});
  return total;
}

}  // namespace lattice

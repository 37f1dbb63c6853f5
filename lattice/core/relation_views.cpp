#include "lattice/core/relation_views.h"

#include <limits>
#include <numeric>
#include <utility>

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

size_t sum_of(std::initializer_list<const mx::array*> arrays) {
  size_t total = 0;
  for (const mx::array* a : arrays) total += a->nbytes();
  return total;
}

}  // namespace

EdgesByOutput make_edges(const cpu::RelationLists& lists) {
  const int64_t n = checked_int(lists.n_edges, "edges");
  cpu::Buffer<int32_t> offsets(checked_int(lists.n_out + 1, "edges")), in(n), out(n), k(n);
  cpu::edge_arrays(lists, offsets.data(), in.data(), out.data(), k.data());
  return {{adopt(std::move(in)), adopt(std::move(out)), adopt(std::move(k))},
          adopt(std::move(offsets))};
}

Edges swapped(const Edges& e, int64_t n_in, int64_t n_out, int64_t n_k) {
  const int64_t n = static_cast<int64_t>(e.in_rows.size());
  cpu::Buffer<int32_t> order(n), next(n), ids(n), keys(n);
  std::iota(order.begin(), order.end(), 0);
  const auto taken = [&](const mx::array& values, cpu::Buffer<int32_t>& to) {
    for (int64_t i = 0; i < n; ++i) to[i] = values.data<int32_t>()[order[i]];
  };
  const std::pair<const mx::array*, int64_t> passes[] = {
      {&e.out_rows, n_out}, {&e.kernel_ids, n_k}, {&e.in_rows, n_in}};
  for (const auto& [values, groups] : passes) {  // the least important key first
    cpu::Buffer<int32_t> offsets(groups + 1);
    taken(*values, keys);
    cpu::group_edges(keys.data(), n, groups, offsets.data(), ids.data());
    for (int64_t i = 0; i < n; ++i) next[i] = order[ids[i]];
    std::swap(order, next);
  }
  cpu::Buffer<int32_t> in(n), out(n), k(n);
  taken(e.out_rows, in), taken(e.in_rows, out), taken(e.kernel_ids, k);
  return {adopt(std::move(in)), adopt(std::move(out)), adopt(std::move(k))};
}

EdgeGroups group_edges(const mx::array& keys, int64_t n_groups) {
  const int64_t n = static_cast<int64_t>(keys.size());
  cpu::Buffer<int32_t> offsets(n_groups + 1), ids(n);
  cpu::group_edges(keys.data<int32_t>(), n, n_groups, offsets.data(), ids.data());
  return {adopt(std::move(offsets)), adopt(std::move(ids))};
}

EdgeGroups groups_in_order(const mx::array& row_offsets, int64_t n_edges) {
  cpu::Buffer<int32_t> ids(n_edges);
  std::iota(ids.begin(), ids.end(), 0);
  return {row_offsets, adopt(std::move(ids))};
}

ImplicitGemm make_implicit_gemm(const cpu::RelationLists& lists) {
  const int64_t n_out = lists.n_out, n_k = lists.n_k(), words = (n_k + 31) / 32;
  cpu::Buffer<int32_t> map(checked_int(n_out * n_k, "implicit_gemm"));
  cpu::Buffer<uint32_t> masks(n_out * words);
  if (!cpu::implicit_map(lists, map.data(), masks.data())) fail_with_two_edges("implicit_gemm");
  const int rows = static_cast<int>(n_out);
  return {adopt(std::move(map), {rows, static_cast<int>(n_k)}),
          adopt(std::move(masks), {rows, static_cast<int>(words)})};
}

SortedImplicitGemm make_sorted_implicit_gemm(const cpu::RelationLists& lists) {
  constexpr const char* kView = "sorted_implicit_gemm";
  const int64_t n_out = lists.n_out, n_k = lists.n_k(), tiles = (n_out + 63) / 64;
  cpu::Buffer<int32_t> map(checked_int(n_out * n_k, kView)), order(n_out);
  cpu::Buffer<uint32_t> tile_masks(tiles * 4);
  if (!cpu::sorted_map(lists, map.data(), order.data(), tile_masks.data()))
    fail_with_two_edges(kView);
  return {adopt(std::move(map), {static_cast<int>(n_k), static_cast<int>(n_out)}),
          adopt(std::move(order)), adopt(std::move(tile_masks), {static_cast<int>(tiles), 4})};
}

mx::array SortedImplicitGemm::sorted_out_in_map() const {
  const int ks = sorted_kv_out_in_map.shape(0), rows = sorted_kv_out_in_map.shape(1);
  cpu::Buffer<int32_t> map(static_cast<int64_t>(sorted_kv_out_in_map.size()));
  const int32_t* from = map.empty() ? nullptr : sorted_kv_out_in_map.data<int32_t>();
  for (int64_t p = 0; p < rows; ++p)
    for (int64_t k = 0; k < ks; ++k) map[p * ks + k] = from[k * rows + p];
  return adopt(std::move(map), {rows, ks});
}

TileLists make_tile_lists(const cpu::RelationLists& lists) {
  constexpr const char* kView = "tile_lists";
  cpu::TileBounds tiles = cpu::tile_bounds(lists, 64);
  const int n_k = static_cast<int>(lists.n_k()),
            n = checked_int((tiles.n_tiles + 1) * n_k, kView) / n_k;
  const int64_t n_edges = checked_int(lists.n_edges, kView);
  cpu::Buffer<int32_t> in(n_edges), positions(n_edges), order(lists.n_out);
  cpu::tile_lists(lists, tiles, in.data(), positions.data(), order.data());
  return {adopt(std::move(tiles.bounds), {n, n_k}), adopt(std::move(in)),
          adopt(std::move(positions)), adopt(std::move(order))};
}

size_t bytes_of(const Edges& e) { return sum_of({&e.in_rows, &e.out_rows, &e.kernel_ids}); }
size_t bytes_of(const EdgeGroups& g) { return sum_of({&g.row_offsets, &g.edge_ids}); }
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

#include "lattice/ops/coords.h"

#include <algorithm>
#include <limits>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/coordinate_manager.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/child_masks.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"
#include "lattice/ops/geometry.h"

namespace lattice {
namespace {

using cpu::Buffer;

constexpr int64_t kMaxRows = std::numeric_limits<int32_t>::max();

mx::array count_array(int64_t n) { return mx::array({static_cast<int32_t>(n)}, {1}, mx::int32); }

Buffer<std::byte> coords_buffer(int64_t rows, bool is64) {
  return Buffer<std::byte>(rows * 4 * (is64 ? 8 : 4));
}

mx::array coords_array(Buffer<std::byte>&& data, int64_t rows, mx::Dtype dtype) {
  return adopt(std::move(data), {static_cast<int>(rows), 4}, dtype);
}

mx::array take(const CoordinateSet& set, const Buffer<int32_t>& rows) {
  auto out = coords_buffer(rows.size(), set.span().is64);
  cpu::take_rows(set.span(), rows.span(), out.data());
  return coords_array(std::move(out), rows.size(), set.dtype());
}

struct Pair {
  CoordinateSet lhs, rhs;
};
Pair pair_of(const CoordsLike& lhs, const CoordsLike& rhs, std::string_view operation,
             std::string_view lhs_name, std::string_view rhs_name) {
  Pair pair{lhs.set(operation, lhs_name), rhs.set(operation, rhs_name)};
  check_same_dtype(pair.lhs, pair.rhs, operation,
                   std::string(lhs_name) + " and " + std::string(rhs_name));
  return pair;
}

// Distinct lhs rows whose presence in rhs is `present`.
mx::array rows_by_presence(const Pair& pair, bool present, mx::StreamOrDevice s) {
  const cpu::Distinct distinct = distinct_rows(pair.lhs, s);
  const Buffer<int32_t> found = find_rows(pair.rhs, pair.lhs, s);
  Buffer<int32_t> rows(distinct.first.size());
  int64_t n = 0;
  for (int32_t row : distinct.first)
    if ((found[row] >= 0) == present) rows[n++] = row;
  rows.shrink(n);
  return take(pair.lhs, rows);
}

// The first `active` rows, as a set of their own when they are fewer.
CoordinateSet active_set(const CoordsLike& coords, const std::optional<mx::array>& active,
                         std::string_view operation, std::string_view what) {
  CoordinateSet all = coords.set(operation, what);
  const mx::array kept = keep_active(all.array(), active, operation);
  return kept.shape(0) == all.rows() ? all : CoordinateSet(kept, operation, what);
}

mx::array order_array(Buffer<int32_t> (*order)(const cpu::CoordSpan&), const CoordsLike& coords,
                      std::string_view operation) {
  return adopt(order(coords.set(operation).span()));
}

// child_coords under the name of the operation.
mx::array children_of(const CoordinateSet& set, std::span<const int32_t> rows,
                      std::span<const int32_t> indices, std::string_view operation) {
  const int64_t n = static_cast<int64_t>(rows.size());
  auto out = coords_buffer(n, set.span().is64);
  named(operation, [&] { cpu::child_coords(set.span(), rows, indices, out.data()); });
  return coords_array(std::move(out), n, set.dtype());
}

}  // namespace

CoordinateSet CoordsLike::set(std::string_view operation, std::string_view what) const {
  if (const auto* set = std::get_if<CoordinateSet>(&value_)) return *set;
  return CoordinateSet(std::get<mx::array>(value_), operation, what);
}

mx::array downsample_coords(const CoordsLike& coords, const Triple& stride, mx::StreamOrDevice s) {
  const CoordinateSet set = coords.set("downsample_coords");
  for (int64_t step : stride)
    if (step < 1) fail("downsample_coords", "stride must be >= 1, got " + triple_text(stride));
  auto floors = coords_buffer(set.rows(), set.span().is64);
  cpu::floor_coords(set.span(), stride, floors.data());
  const mx::array all = coords_array(std::move(floors), set.rows(), set.dtype());
  return distinct_coords(CoordinateSet(all, "downsample_coords"), s);
}

mx::array union_coords(const CoordsLike& lhs, const CoordsLike& rhs, mx::StreamOrDevice s) {
  const Pair pair = pair_of(lhs, rhs, "union_coords", "lhs", "rhs");
  const cpu::CoordSpan a = pair.lhs.span(), b = pair.rhs.span();
  if (a.rows + b.rows > kMaxRows)
    fail("union_coords", "lhs and rhs must have fewer than 2^31 rows together, got " +
                             std::to_string(a.rows + b.rows));
  auto both = coords_buffer(a.rows + b.rows, a.is64);
  const auto bytes = [](const cpu::CoordSpan& c) { return c.rows * 4 * (c.is64 ? 8 : 4); };
  std::copy_n(static_cast<const std::byte*>(a.data), bytes(a), both.begin());
  std::copy_n(static_cast<const std::byte*>(b.data), bytes(b), both.begin() + bytes(a));
  const mx::array all = coords_array(std::move(both), a.rows + b.rows, pair.lhs.dtype());
  return distinct_coords(CoordinateSet(all, "union_coords"), s);
}

mx::array intersection_coords(const CoordsLike& lhs, const CoordsLike& rhs, mx::StreamOrDevice s) {
  return rows_by_presence(pair_of(lhs, rhs, "intersection_coords", "lhs", "rhs"), true, s);
}

mx::array difference_coords(const CoordsLike& lhs, const CoordsLike& rhs, mx::StreamOrDevice s) {
  return rows_by_presence(pair_of(lhs, rhs, "difference_coords", "lhs", "rhs"), false, s);
}

mx::array lookup_coords(const CoordsLike& coords, const CoordsLike& queries, mx::StreamOrDevice s) {
  const Pair pair = pair_of(coords, queries, "lookup_coords", "coords", "queries");
  return adopt(find_rows(pair.lhs, pair.rhs, s));
}

mx::array contains_coords(const CoordsLike& coords, const CoordsLike& queries,
                          mx::StreamOrDevice s) {
  const Pair pair = pair_of(coords, queries, "contains_coords", "coords", "queries");
  const Buffer<int32_t> found = find_rows(pair.lhs, pair.rhs, s);
  Buffer<bool> present(pair.rhs.rows());
  for (int64_t q = 0; q < present.size(); ++q) present[q] = found[q] >= 0;
  return adopt(std::move(present));
}

mx::array inverse_map(const CoordsLike& source, const CoordsLike& target, mx::StreamOrDevice s) {
  const Pair pair = pair_of(source, target, "inverse_map", "source", "target");
  return adopt(find_rows(pair.lhs, pair.rhs, s));
}

mx::array inverse_map_in(const CoordinateManager& manager, const CoordinateMapKey& source,
                         const CoordinateMapKey& target, mx::StreamOrDevice s) {
  constexpr const char* kName = "CoordinateManager.inverse_map";
  const CoordinateSet &from = manager.set(target), &to = manager.set(source);
  check_same_dtype(to, from, kName, "source and target");
  const Triple ratio = output_stride(source.stride, target.stride, RelationKind::transposed, kName);
  auto floors = coords_buffer(from.rows(), from.span().is64);
  cpu::floor_coords(from.span(), ratio, floors.data());
  const mx::array cells = coords_array(std::move(floors), from.rows(), from.dtype());
  return adopt(find_rows(to, CoordinateSet(cells, kName), s));
}

Join parse_join(std::string_view name, std::string_view operation) {
  if (name == "inner") return Join::inner;
  if (name == "left") return Join::left;
  if (name == "right") return Join::right;
  if (name == "outer") return Join::outer;
  fail(operation, "join must be inner, left, right or outer, got '" + std::string(name) + "'");
}

SparseAlignment build_sparse_alignment(const CoordsLike& lhs,
                                       const std::optional<mx::array>& lhs_active,
                                       const CoordsLike& rhs,
                                       const std::optional<mx::array>& rhs_active, Join join,
                                       mx::StreamOrDevice) {
  constexpr std::string_view op = "build_sparse_alignment";
  const CoordinateSet a = active_set(lhs, lhs_active, op, "lhs");
  const CoordinateSet b = active_set(rhs, rhs_active, op, "rhs");
  check_same_dtype(a, b, op, "lhs and rhs");
  if (a.rows() + b.rows() > kMaxRows)
    fail("build_sparse_alignment", "lhs and rhs must have fewer than 2^31 rows together, got " +
                                       std::to_string(a.rows() + b.rows()));
  cpu::Alignment rows = cpu::align(*a.unique_index(op), *b.unique_index(op), join);
  const int64_t n = rows.lhs.size();
  const auto coords = [&]() -> mx::array {
    if (join == Join::left) return a.array();
    if (join == Join::right) return b.array();
    if (join == Join::inner) return take(a, rows.lhs);
    if (n == a.rows()) return a.array();
    auto out = coords_buffer(n, a.span().is64);
    const int64_t row_bytes = a.span().is64 ? 32 : 16;
    std::copy_n(static_cast<const std::byte*>(a.span().data), a.rows() * row_bytes, out.begin());
    cpu::take_rows(b.span(), rows.rhs.span().subspan(static_cast<size_t>(a.rows())),
                   out.data() + a.rows() * row_bytes);
    return coords_array(std::move(out), n, a.dtype());
  }();
  return {coords, count_array(n), adopt(std::move(rows.lhs)), adopt(std::move(rows.rhs))};
}

mx::array morton_codes(const CoordsLike& coords, mx::StreamOrDevice) {
  const CoordinateSet set = coords.set("morton_codes");
  Buffer<int64_t> codes(set.rows());
  cpu::morton_codes(set.span(), codes.span());
  return adopt(std::move(codes));
}

mx::array morton_order(const CoordsLike& coords, mx::StreamOrDevice) {
  return order_array(cpu::morton_order, coords, "morton_order");
}

mx::array hilbert_order(const CoordsLike& coords, mx::StreamOrDevice) {
  return order_array(cpu::hilbert_order, coords, "hilbert_order");
}

CoordinateOrdering morton_sort_coords(const CoordsLike& coords, mx::StreamOrDevice) {
  const CoordinateSet set = coords.set("morton_sort_coords");
  Buffer<int32_t> order = cpu::morton_order(set.span());
  Buffer<int32_t> inverse(order.size());
  for (int64_t p = 0; p < order.size(); ++p) inverse[order[p]] = static_cast<int32_t>(p);
  mx::array sorted = take(set, order);
  return {std::move(sorted), adopt(std::move(order)), adopt(std::move(inverse))};
}

SparseOccupancy occupancy_downsample(const CoordsLike& coords, mx::StreamOrDevice) {
  const CoordinateSet set = coords.set("occupancy_downsample");
  cpu::Occupancy found = cpu::occupancy_downsample(set.span());
  const int64_t n = found.masks.size();
  Buffer<int32_t> indices(set.rows());
  set.span().visit([&](const auto* c) {
    for (int64_t r = 0; r < indices.size(); ++r)
      indices[r] = static_cast<int32_t>((c[r * 4 + 1] & 1) + 2 * (c[r * 4 + 2] & 1) +
                                        4 * (c[r * 4 + 3] & 1));
  });
  return {coords_array(std::move(found.parents), n, set.dtype()), count_array(n),
          adopt(std::move(found.masks), {static_cast<int>(n)}), adopt(std::move(found.parent_rows)),
          adopt(std::move(indices))};
}

OccupancyExpansion occupancy_expand(const CoordsLike& coords, const mx::array& occupancy,
                                    mx::StreamOrDevice) {
  constexpr std::string_view op = "occupancy_expand";
  const CoordinateSet set = coords.set(op);
  if (occupancy.ndim() != 1 || occupancy.shape(0) != set.rows() || occupancy.dtype() != mx::uint8)
    fail("occupancy_expand", "occupancy must be uint8 of shape (" + std::to_string(set.rows()) +
                                 ",), got " + graph::dtype_name(occupancy.dtype()) + " of shape " +
                                 shape_text(occupancy.shape()));
  const mx::array masks = evaluated(occupancy, op, "occupancy");
  cpu::Children children = named(op, [&] {
    return cpu::occupancy_expand({masks.size() ? masks.data<uint8_t>() : nullptr, masks.size()});
  });
  const int64_t n = children.parent_rows.size();
  mx::array made = children_of(set, children.parent_rows.span(), children.indices.span(), op);
  return {std::move(made), count_array(n), adopt(std::move(children.parent_rows)),
          adopt(std::move(children.indices))};
}

mx::array child_coords_from_indices(const CoordsLike& coords, const mx::array& parent_rows,
                                    const mx::array& child_indices, mx::StreamOrDevice) {
  constexpr std::string_view op = "child_coords_from_indices";
  const CoordinateSet set = coords.set(op);
  const mx::array rows = checked_rows(parent_rows, set.rows(), op, "parent_rows");
  const mx::array indices = checked_rows(child_indices, 8, op, "child_indices");
  if (rows.size() != indices.size())
    fail("child_coords_from_indices",
         "parent_rows and child_indices must have equal lengths, got " +
             std::to_string(rows.size()) + " and " + std::to_string(indices.size()));
  const auto span = [](const mx::array& a) {
    return std::span<const int32_t>(a.size() ? a.data<int32_t>() : nullptr, a.size());
  };
  return children_of(set, span(rows), span(indices), op);
}

}  // namespace lattice

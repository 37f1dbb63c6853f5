#include "lattice/ops/segments.h"

#include <mlx/ops.h>

#include <limits>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/ops/check.h"
#include "lattice/ops/reduce_edges.h"

namespace lattice {
namespace {

constexpr int64_t kMostRows = std::numeric_limits<int32_t>::max();

// x as (rows, everything else).
mx::array flat(const mx::array& x, std::string_view function, mx::StreamOrDevice s) {
  if (x.ndim() < 1) fail(function, "x must have at least one axis, got a scalar");
  check_float(function, x);
  int columns = 1;
  for (size_t axis = 1; axis < x.ndim(); ++axis) columns *= x.shape(static_cast<int>(axis));
  return mx::reshape(x, {x.shape(0), columns}, s);
}

// y (n, columns) with the trailing axes of x.
mx::array unflat(const mx::array& y, const mx::array& x, mx::StreamOrDevice s) {
  mx::Shape shape = x.shape();
  shape[0] = y.shape(0);
  return mx::reshape(y, shape, s);
}

// Rows of empty segments become the value that an empty segment has.
mx::array fill_empty(const mx::array& y, const int32_t* offsets, int64_t n,
                     const SegmentOptions& options, mx::StreamOrDevice s) {
  constexpr float kInf = std::numeric_limits<float>::infinity();
  const float natural = options.reduction == Reduction::max   ? -kInf
                        : options.reduction == Reduction::min ? kInf
                                                              : 0.0f;
  const float value = options.empty_value.value_or(natural);
  cpu::Buffer<bool> empty(n);
  bool any = false;
  for (int64_t i = 0; i < n; ++i) any |= empty[i] = offsets[i] == offsets[i + 1];
  if (!any || value == 0.0f) return y;
  return mx::where(adopt(std::move(empty), {static_cast<int>(n), 1}, mx::bool_),
                   mx::array(value, y.dtype()), y, s);
}

mx::array reduce_groups(const mx::array& x, const RowGroups::Ptr& groups,
                        const SegmentOptions& options, std::string_view function,
                        mx::StreamOrDevice s) {
  const mx::array y = reduce_rows(flat(x, function, s), groups, options.reduction, s, options.ties);
  return unflat(fill_empty(y, groups->segments().offsets, groups->n_groups(), options, s), x, s);
}

PoolMode pool_mode(Reduction reduction) {
  static constexpr PoolMode kModes[] = {PoolMode::sum, PoolMode::mean, PoolMode::max,
                                        PoolMode::min};
  return kModes[static_cast<int>(reduction)];
}

}  // namespace

SegmentOptions segment_options(std::string_view reduction, std::string_view ties,
                               std::optional<float> empty_value, std::string_view function) {
  SegmentOptions options;
  options.empty_value = empty_value;
  if (reduction == "min")
    options.reduction = Reduction::min;
  else if (reduction == "sum" || reduction == "mean" || reduction == "max")
    options.reduction = parse_reduction(reduction, function, "operation");
  else
    fail(function, "operation must be sum, mean, max or min, got '" + std::string(reduction) + "'");
  if (ties == "all")
    options.ties = Ties::all;
  else if (ties == "first")
    options.ties = Ties::first;
  else if (ties != "split")
    fail(function, "ties must be split, all or first, got '" + std::string(ties) + "'");
  return options;
}

mx::array segment_reduce(const mx::array& x, const mx::array& lengths,
                         const SegmentOptions& options, mx::StreamOrDevice s) {
  constexpr const char* kName = "segment_reduce";
  if (x.ndim() < 1) fail(kName, "x must have at least one axis, got a scalar");
  return reduce_groups(
      x, RowGroups::contiguous(checked_offsets(lengths, x.shape(0), kName, "lengths")), options,
      kName, s);
}

mx::array segment_reduce_offsets(const mx::array& x, const mx::array& offsets,
                                 const SegmentOptions& options, mx::StreamOrDevice s) {
  constexpr const char* kName = "segment_reduce_offsets";
  if (x.ndim() < 1) fail(kName, "x must have at least one axis, got a scalar");
  return reduce_groups(
      x, RowGroups::contiguous(checked_borders(offsets, x.shape(0), kName, "offsets")), options,
      kName, s);
}

mx::array scatter_reduce(const mx::array& x, const mx::array& ids, int64_t n,
                         const SegmentOptions& options, mx::StreamOrDevice s) {
  constexpr const char* kName = "scatter_reduce";
  if (x.ndim() < 1) fail(kName, "x must have at least one axis, got a scalar");
  if (n < 0 || n > kMostRows) fail(kName, "n must be in 0..2^31-1, got " + std::to_string(n));
  const mx::array rows = checked_rows(ids, n, kName, "ids");
  if (static_cast<int64_t>(rows.size()) != x.shape(0))
    fail(kName, "ids must have " + std::to_string(x.shape(0)) + " entries, got " +
                    std::to_string(rows.size()));
  return reduce_groups(x, groups_of(rows, n), options, kName, s);
}

mx::array indexed_segment_reduce(const mx::array& x, const mx::array& indices,
                                 const mx::array& lengths, const SegmentOptions& options,
                                 mx::StreamOrDevice s) {
  constexpr const char* kName = "indexed_segment_reduce";
  const mx::array rows = flat(x, kName, s);
  const mx::array from = checked_rows(indices, x.shape(0), kName, "indices");
  const int n_entries = static_cast<int>(from.size());
  const cpu::Buffer<int32_t> offsets = checked_offsets(lengths, n_entries, kName, "lengths");
  const int64_t n = offsets.size() - 1;
  cpu::Buffer<int32_t> to(n_entries), zeros(n_entries);
  for (int64_t i = 0; i < n; ++i)
    std::fill(to.begin() + offsets[i], to.begin() + offsets[i + 1], static_cast<int32_t>(i));
  std::fill(zeros.begin(), zeros.end(), 0);
  const Relation::Ptr r =
      Relation::from_edges(from, adopt(std::move(to), {n_entries}),
                           adopt(std::move(zeros), {n_entries}), x.shape(0), n, 1);
  const mx::array y = reduce_edges(rows, r, pool_mode(options.reduction), {}, s, options.ties);
  return unflat(fill_empty(y, offsets.data(), n, options, s), x, s);
}

mx::array segment_expand(const mx::array& y, const mx::array& lengths, mx::StreamOrDevice s) {
  constexpr const char* kName = "segment_expand";
  const mx::array rows = flat(y, kName, s);
  cpu::Buffer<int32_t> offsets = checked_offsets(lengths, -1, kName, "lengths");
  if (offsets.size() - 1 != y.shape(0))
    fail(kName, "lengths must have an entry for each of " + std::to_string(y.shape(0)) +
                    " rows, got " + std::to_string(offsets.size() - 1));
  return unflat(gather_rows(rows, RowGroups::contiguous(std::move(offsets)), 0, s), y, s);
}

mx::array segment_softmax(const mx::array& x, const mx::array& lengths, mx::StreamOrDevice s) {
  constexpr const char* kName = "segment_softmax";
  const mx::array rows = mx::astype(flat(x, kName, s), mx::float32, s);
  const RowGroups::Ptr groups =
      RowGroups::contiguous(checked_offsets(lengths, x.shape(0), kName, "lengths"));
  const mx::array most = reduce_rows(mx::stop_gradient(rows, s), groups, Reduction::max, s);
  const mx::array e = mx::exp(mx::subtract(rows, gather_rows(most, groups, 0, s), s), s);
  const mx::array sums = gather_rows(reduce_rows(e, groups, Reduction::sum, s), groups, 1, s);
  return unflat(mx::astype(mx::divide(e, sums, s), x.dtype(), s), x, s);
}

mx::array segment_offsets(const mx::array& lengths) {
  return adopt(checked_offsets(lengths, -1, "segment_offsets", "lengths"));
}

mx::array segment_indices(const mx::array& lengths) {
  const cpu::Buffer<int32_t> offsets = checked_offsets(lengths, -1, "segment_indices", "lengths");
  const int64_t n = offsets.size() - 1;
  cpu::Buffer<int32_t> of_row(offsets[n]);
  for (int64_t i = 0; i < n; ++i)
    std::fill(of_row.begin() + offsets[i], of_row.begin() + offsets[i + 1],
              static_cast<int32_t>(i));
  return adopt(std::move(of_row));
}

}  // namespace lattice

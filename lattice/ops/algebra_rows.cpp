// Rows of one tensor: selection, the largest of each batch item, duplicates, collation.
#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/ops/algebra.h"
#include "lattice/ops/check.h"
#include "lattice/ops/geometry.h"
#include "lattice/ops/reduce_rows.h"

namespace lattice {
namespace {

// The set of some rows of another.
CoordinateSet selected(std::string_view op, const CoordinateSet& set,
                       const cpu::Buffer<int32_t>& rows) {
  cpu::Buffer<std::byte> out(rows.size() * 4 * (set.span().is64 ? 8 : 4));
  cpu::take_rows(set.span(), rows.span(), out.data());
  return CoordinateSet(adopt(std::move(out), {static_cast<int>(rows.size()), 4}, set.dtype()), op);
}

std::optional<BatchCounts> recount(const SparseTensor& x, const CoordinateSet& set) {
  if (!x.batch_counts()) return std::nullopt;
  return count_batches(set, static_cast<int64_t>(x.batch_counts()->size()));
}

SparseTensor pruned(std::string_view op, const SparseTensor& x, cpu::Buffer<int32_t> rows,
                    mx::StreamOrDevice s) {
  check_float(op, x);
  bool all = rows.size() == x.active_count();
  for (int64_t i = 0; all && i < rows.size(); ++i) all = rows[i] == i;
  if (all) return x;
  const CoordinateSet set = selected(op, x.coordinate_set(), rows);
  const mx::array feats =
      gather_rows(x.feats(), RowGroups::create(std::move(rows), x.active_count()), 0, s);
  return SparseTensor(x.coord_manager(), x.coord_manager()->insert_set(set, x.stride()), feats,
                      recount(x, set));
}

// One row for each coordinate.
SparseTensor merged(const SparseTensor& x, Duplicates how, mx::StreamOrDevice s) {
  constexpr const char* kName = "sparse_from_coordinates";
  if (how == Duplicates::none || x.coordinate_set().index()->duplicate < 0) return x;
  cpu::Distinct distinct = distinct_rows(x.coordinate_set(), s);
  const int64_t n = distinct.first.size();
  if (how == Duplicates::first) return pruned(kName, x, std::move(distinct.first), s);
  const CoordinateSet set = selected(kName, x.coordinate_set(), distinct.first);
  const Reduction mode = how == Duplicates::sum    ? Reduction::sum
                         : how == Duplicates::mean ? Reduction::mean
                                                   : Reduction::max;
  const mx::array feats =
      reduce_rows(x.feats(), RowGroups::create(std::move(distinct.inverse), n), mode, s);
  return SparseTensor(x.coord_manager(), x.coord_manager()->insert_set(set, x.stride()), feats,
                      recount(x, set));
}

}  // namespace

SparseTensor prune(const SparseTensor& x, const mx::array& rows, mx::StreamOrDevice s) {
  const mx::array checked = checked_rows(rows, x.active_count(), "prune", "rows");
  cpu::Buffer<int32_t> copy(static_cast<int64_t>(checked.size()));
  if (!copy.empty()) std::copy_n(checked.data<int32_t>(), copy.size(), copy.begin());
  return pruned("prune", x, std::move(copy), s);
}

SparseTensor prune_mask(const SparseTensor& x, const mx::array& mask, mx::StreamOrDevice s) {
  if (mask.ndim() != 1 || mask.shape(0) != x.active_count() || mask.dtype() != mx::bool_)
    fail("prune_mask", "mask must be bool of shape (" + std::to_string(x.active_count()) +
                           ",), got " + graph::dtype_name(mask.dtype()) + " of shape " +
                           shape_text(mask.shape()));
  const mx::array keep = evaluated(mask, "prune_mask", "mask");
  cpu::Buffer<int32_t> rows;
  if (keep.size())
    rows = cpu::rows_where({reinterpret_cast<const uint8_t*>(keep.data<bool>()), keep.size()});
  return pruned("prune_mask", x, std::move(rows), s);
}

mx::array rows_where(const mx::array& mask) {
  if (mask.ndim() != 1 || mask.dtype() != mx::bool_)
    fail("rows_where", "mask must be bool of shape (N,), got " + graph::dtype_name(mask.dtype()) +
                           " of shape " + shape_text(mask.shape()));
  const mx::array keep = evaluated(mask, "rows_where", "mask");
  if (keep.size() == 0) return mx::zeros({0}, mx::int32, mx::Device::cpu);
  return adopt(cpu::rows_where({reinterpret_cast<const uint8_t*>(keep.data<bool>()), keep.size()}));
}

SparseTensor crop(const SparseTensor& x, const Triple& min_coord, const Triple& max_coord,
                  mx::StreamOrDevice s) {
  cpu::Buffer<int32_t> rows;
  x.coordinate_set().span().visit([&](const auto* c) {
    rows = cpu::rows_that(x.active_count(), [&](int64_t r) {
      for (size_t a = 0; a < 3; ++a) {
        const int64_t v = static_cast<int64_t>(c[r * 4 + 1 + static_cast<int64_t>(a)]);
        if (v < min_coord[a] || v > max_coord[a]) return false;
      }
      return true;
    });
  });
  return pruned("crop", x, std::move(rows), s);
}

mx::array topk_rows(const SparseTensor& x, const std::vector<int64_t>& counts, double rho) {
  constexpr const char* kName = "topk_rows";
  check_float(kName, x);
  if (x.channels() < 1) fail(kName, "x must have a channel, got 0");
  if (!(rho >= 0) || !std::isfinite(rho))
    fail(kName, "rho must be finite and >= 0, got " + std::to_string(rho));
  const std::vector<mx::array> items = x.batch_rows();
  if (counts.size() != items.size())
    fail(kName, "counts must have one number for each of " + std::to_string(items.size()) +
                    " batch items, got " + std::to_string(counts.size()));
  for (const int64_t n : counts)
    if (n < 0) fail(kName, "counts must not be negative, got " + std::to_string(n));
  const mx::array first = mx::slice(x.feats(), {0, 0}, {static_cast<int>(x.active_count()), 1});
  const mx::array column = evaluated(mx::astype(first, mx::float32), kName, "x");
  const float* values = column.size() ? column.data<float>() : nullptr;
  std::vector<int32_t> kept;
  for (size_t b = 0; b < items.size(); ++b) {
    const auto n = static_cast<int64_t>(items[b].size());
    if (n == 0) continue;
    std::vector<int32_t> rows(items[b].data<int32_t>(), items[b].data<int32_t>() + n);
    const double wanted = std::floor(rho * static_cast<double>(counts[b]));
    const auto k = static_cast<int64_t>(std::min(wanted, static_cast<double>(n)));
    const auto before = [&](int32_t p, int32_t q) {
      const float u = values[p], v = values[q];
      if (std::isnan(u) || std::isnan(v)) return std::isnan(v) && (!std::isnan(u) || p < q);
      return u > v || (u == v && p < q);
    };
    std::nth_element(rows.begin(), rows.begin() + std::min(k, n - 1), rows.end(), before);
    kept.insert(kept.end(), rows.begin(), rows.begin() + k);
  }
  std::sort(kept.begin(), kept.end());
  cpu::Buffer<int32_t> out(static_cast<int64_t>(kept.size()));
  std::copy(kept.begin(), kept.end(), out.begin());
  return adopt(std::move(out), {static_cast<int>(kept.size())});
}

Duplicates parse_duplicates(std::string_view name, std::string_view operation) {
  if (name == "none") return Duplicates::none;
  if (name == "first") return Duplicates::first;
  if (name == "sum") return Duplicates::sum;
  if (name == "mean") return Duplicates::mean;
  if (name == "max") return Duplicates::max;
  fail(operation, "duplicate_reduction must be none, first, sum, mean or max, got '" +
                      std::string(name) + "'");
}

SparseTensor sparse_from_coordinates(const mx::array& coords, const mx::array& feats,
                                     const Triple& stride,
                                     const std::optional<BatchCounts>& batch_counts,
                                     Duplicates duplicates, mx::StreamOrDevice s) {
  return merged(SparseTensor(coords, feats, stride, std::nullopt, nullptr, batch_counts),
                duplicates, s);
}

SparseTensor sparse_collate(const std::vector<mx::array>& coords,
                            const std::vector<mx::array>& feats, const Triple& stride,
                            Duplicates duplicates, mx::StreamOrDevice s) {
  constexpr const char* kName = "sparse_collate";
  if (coords.empty() || coords.size() != feats.size())
    fail(kName,
         "coords_list and feats_list must have the same number of items, at least one, got " +
             std::to_string(coords.size()) + " and " + std::to_string(feats.size()));
  BatchCounts counts;
  int64_t total = 0;
  for (size_t b = 0; b < coords.size(); ++b) {
    const mx::array& c = coords[b];
    const std::string item = "coords_list[" + std::to_string(b) + "]";
    if (c.ndim() != 2 || c.shape(1) != 3)
      fail(kName, item + " must have shape (N, 3), got " + shape_text(c.shape()));
    if ((c.dtype() != mx::int32 && c.dtype() != mx::int64) || c.dtype() != coords[0].dtype())
      fail(kName, item + " must be int32 or int64, all alike, got " + graph::dtype_name(c.dtype()));
    const mx::array& f = feats[b];
    if (f.ndim() != 2 || f.shape(0) != c.shape(0) || f.shape(1) != feats[0].shape(1) ||
        f.dtype() != feats[0].dtype())
      fail(kName, "feats_list[" + std::to_string(b) + "] must have shape (" +
                      std::to_string(c.shape(0)) +
                      ", C) and the dtype and channels of the others, got " +
                      shape_text(f.shape()) + " " + graph::dtype_name(f.dtype()));
    counts.push_back(c.shape(0));
    total += c.shape(0);
  }
  if (total > std::numeric_limits<int32_t>::max())
    fail(kName, "too many rows: " + std::to_string(total));
  const bool is64 = coords[0].dtype() == mx::int64;
  cpu::Buffer<std::byte> out(total * 4 * (is64 ? 8 : 4));
  const auto fill = [&]<typename T>(T) {
    T* to = reinterpret_cast<T*>(out.data());
    for (size_t b = 0; b < coords.size(); ++b) {
      const mx::array c = evaluated(coords[b], kName, "coords_list");
      const T* from = c.size() ? c.data<T>() : nullptr;
      for (int64_t r = 0; r < counts[b]; ++r, to += 4) {
        to[0] = static_cast<T>(b);
        std::copy_n(from + r * 3, 3, to + 1);
      }
    }
  };
  is64 ? fill(int64_t{}) : fill(int32_t{});
  return sparse_from_coordinates(
      adopt(std::move(out), {static_cast<int>(total), 4}, coords[0].dtype()),
      feats.size() == 1 ? feats[0] : mx::concatenate(feats, 0, s), stride, counts, duplicates, s);
}

}  // namespace lattice

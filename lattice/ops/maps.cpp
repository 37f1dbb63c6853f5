#include "lattice/ops/maps.h"

#include <mlx/ops.h>

#include <algorithm>
#include <list>
#include <mutex>
#include <stdexcept>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/dense.h"
#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/ops/segments.h"

namespace lattice {
namespace {

constexpr size_t kMaps = 16;  // number of map sizes whose relations are kept

// A tensor without channels on all cells, whose manager keeps the relations for all callers.
SparseTensor make_full_map(int batch, int height, int width, int64_t stride) {
  cpu::Buffer<int32_t> rows(int64_t{4} * batch * height * width);
  int32_t* at = rows.data();
  for (int b = 0; b < batch; ++b)
    for (int y = 0; y < height; ++y)
      for (int x = 0; x < width; ++x, at += 4) at[0] = b, at[1] = 0, at[2] = y, at[3] = x;
  const int n = batch * height * width;
  const SparseTensor full(adopt(std::move(rows), {n, 4}),
                          mx::zeros({n, 0}, mx::float32, mx::Device::cpu), {1, stride, stride},
                          std::nullopt, nullptr,
                          BatchCounts(static_cast<size_t>(batch), int64_t{height} * width));
  return full.with_bounds({{0, 0, 0}, {1, std::max(height, 1), std::max(width, 1)}});
}

// The maps that were asked for last; the newest is in front.
struct FullMaps {
  using Key = std::array<int64_t, 4>;
  std::mutex mutex;
  std::list<std::pair<Key, SparseTensor>> kept;
};
FullMaps& full_maps() {
  static auto* instance = new FullMaps;  // arrays of MLX must not outlive its allocator
  return *instance;
}

SparseTensor full_map(int batch, int height, int width, int64_t stride) {
  const FullMaps::Key key{batch, height, width, stride};
  const std::lock_guard lock(full_maps().mutex);
  auto& kept = full_maps().kept;
  const auto found =
      std::find_if(kept.begin(), kept.end(), [&](const auto& entry) { return entry.first == key; });
  if (found != kept.end()) {
    kept.splice(kept.begin(), kept, found);
  } else {
    kept.emplace_front(key, make_full_map(batch, height, width, stride));
    if (kept.size() > kMaps) kept.pop_back();
  }
  return kept.front().second;
}

// Whether every cell has one row and no row is elsewhere, also not along the first axis.
bool fills(const SparseTensor& x, int64_t batch, int64_t h, int64_t w) {
  if (x.active_count() != batch * h * w || x.active_count() == 0) return false;
  const CoordinateSet& set = x.coordinate_set();
  const cpu::Wide4 end{batch, 1, h, w};
  for (size_t a = 0; a < 4; ++a)
    if (set.box().lo[a] < 0 || set.box().hi[a] >= end[a]) return false;
  return set.is_unique();
}

SparseTensor flattened(const SparseTensor& y, const SparseTensor& x, int64_t axis) {
  std::optional<Bounds> bounds = x.bounds();
  if (!bounds) return y;
  bounds->low[static_cast<size_t>(axis)] = 0;
  bounds->high[static_cast<size_t>(axis)] = 1;
  return y.with_bounds(*bounds);
}

}  // namespace

void release_maps() {
  const std::lock_guard lock(full_maps().mutex);
  full_maps().kept.clear();
}

SparseTensor from_map(const mx::array& dense, int64_t stride) {
  if (dense.ndim() != 4)
    fail("from_map", "the map must have shape (B, H, W, C), got " + shape_text(dense.shape()));
  if (stride < 1) fail("from_map", "stride must be at least 1, got " + std::to_string(stride));
  const int b = dense.shape(0), h = dense.shape(1), w = dense.shape(2), c = dense.shape(3);
  if (int64_t{b} * h * w > INT32_MAX)
    fail("from_map", "the map must have less than 2^31 cells, got " + shape_text(dense.shape()));
  return full_map(b, h, w, stride).with_feats(mx::reshape(dense, {b * h * w, c}));
}

mx::array to_map(const SparseTensor& x, const std::optional<std::array<int64_t, 2>>& shape,
                 const std::optional<int64_t>& batch_size, mx::StreamOrDevice s) {
  const std::optional<Bounds> bounds = x.bounds();
  if (!shape && !bounds) fail("to_map", "the tensor has no bounds; give shape=(H, W)");
  const int64_t h = shape ? (*shape)[0] : bounds->high[1];
  const int64_t w = shape ? (*shape)[1] : bounds->high[2];
  const int64_t batch = batch_size ? *batch_size : x.batch_size();
  if (h < 0 || w < 0 || batch < 0 || h > INT32_MAX || w > INT32_MAX ||
      (h > 0 && w > 0 && batch > INT32_MAX / h / w))
    fail("to_map", "the map must have less than 2^31 cells and no negative size, got (" +
                       std::to_string(batch) + ", " + std::to_string(h) + ", " + std::to_string(w) +
                       ")");
  if (!fills(x, batch, h, w))
    return mx::squeeze(to_dense(x, std::vector<int64_t>{batch, 1, h, w}, std::nullopt, s), 1, s);
  // Every cell has its row, so that sorted rows are the map.
  const auto [ordered, order] = x.sorted();
  const mx::array feats =
      ordered.coord_key() == x.coord_key() ? x.feats() : take_rows(x.feats(), order, s);
  return mx::reshape(feats, {static_cast<int>(batch), static_cast<int>(h), static_cast<int>(w), -1},
                     s);
}

SparseTensor sum_over(const SparseTensor& x, int64_t axis, mx::StreamOrDevice s) {
  if (axis < 0 || axis > 2) fail("sum_over", "axis must be 0, 1 or 2, got " + std::to_string(axis));
  std::array<bool, 4> keep{true, true, true, true};
  keep[static_cast<size_t>(axis + 1)] = false;
  const auto cpu = mx::Device::cpu;
  const mx::array columns = new_array(keep.data(), {4}, mx::bool_);
  const mx::array coords = mx::where(columns, x.coords(), mx::zeros_like(x.coords(), cpu), cpu);
  const auto [ordered, order] = SparseTensor(coords, x.feats(), x.stride()).sorted();
  const mx::array& rows = ordered.coords();
  const int n = rows.shape(0);
  if (n == 0) return flattened(ordered, x, axis);
  const mx::array differs =
      evaluated(mx::any(mx::not_equal(mx::slice(rows, {1, 0}, {n, 4}, cpu),
                                      mx::slice(rows, {0, 0}, {n - 1, 4}, cpu), cpu),
                        1, false, cpu),
                "sum_over", "coords");
  cpu::Buffer<int32_t> first(n);
  int64_t count = 1;
  first[0] = 0;
  for (int i = 1; i < n; ++i)
    if (differs.data<bool>()[i - 1]) first[count++] = i;
  cpu::Buffer<int32_t> starts(count), lengths(count);
  for (int64_t i = 0; i < count; ++i) {
    starts[i] = first[i];
    lengths[i] = (i + 1 < count ? first[i + 1] : n) - first[i];
  }
  const mx::array total =
      segment_reduce(take_rows(x.feats(), order, s), adopt(std::move(lengths)), {}, s);
  const SparseTensor made(mx::take(rows, adopt(std::move(starts)), 0, cpu), total, x.stride());
  return flattened(made, x, axis);
}

SparseTensor merge_levels(const std::vector<SparseTensor>& levels) {
  if (levels.empty()) fail("merge_levels", "levels must hold at least one tensor");
  const SparseTensor& first = levels[0];
  std::vector<mx::array> coords, feats;
  for (const SparseTensor& level : levels) {
    std::array<int32_t, 4> ratio{1, 1, 1, 1};
    for (size_t a = 0; a < 3; ++a) {
      if (level.stride()[a] % first.stride()[a] != 0)
        fail("merge_levels", "stride " + triple_text(level.stride()) + " is no multiple of " +
                                 triple_text(first.stride()));
      ratio[a + 1] = static_cast<int32_t>(level.stride()[a] / first.stride()[a]);
    }
    if (level.channels() != first.channels() || level.dtype() != first.dtype())
      fail("merge_levels", "levels must have equal channels and dtypes, got " +
                               std::to_string(first.channels()) + " and " +
                               std::to_string(level.channels()) + " channels");
    const auto cpu = mx::Device::cpu;
    const mx::array by = new_array(ratio.data(), {4}, mx::int32);
    const mx::array wide = mx::multiply(mx::astype(level.coords(), mx::int64, cpu),
                                        mx::astype(by, mx::int64, cpu), cpu);
    const mx::Dtype dtype = level.coords().dtype();
    if (dtype == mx::int32 && wide.size() &&
        evaluated(mx::max(mx::abs(wide, cpu), cpu), "merge_levels", "coords").item<int64_t>() >
            INT32_MAX)
      throw std::overflow_error("[merge_levels] some coordinate of stride " +
                                triple_text(level.stride()) + " leaves int32 at stride " +
                                triple_text(first.stride()));
    coords.push_back(mx::astype(wide, dtype, cpu));
    feats.push_back(level.feats());
  }
  const SparseTensor merged(mx::concatenate(coords, 0, mx::Device::cpu), mx::concatenate(feats, 0),
                            first.stride());
  return first.bounds() ? merged.with_bounds(*first.bounds()) : merged;
}

}  // namespace lattice

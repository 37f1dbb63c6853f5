#include "lattice/core/point_values.h"

#include <mlx/ops.h>

#include <algorithm>
#include <mutex>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/chunks.h"

namespace lattice {
namespace {

using cpu::Buffer;

mx::array count_array(int64_t n) { return mx::array({static_cast<int32_t>(n)}, {1}, mx::int32); }

}  // namespace

SparseQuantization::SparseQuantization(mx::array c, mx::array active, mx::array inverse,
                                       mx::array n)
    : coords(std::move(c)),
      active_rows(std::move(active)),
      inverse_rows(std::move(inverse)),
      counts(std::move(n)) {
  constexpr std::string_view op = "SparseQuantization";
  if (coords.ndim() != 2 || coords.shape(1) != 4 || coords.dtype() != mx::int32)
    fail("SparseQuantization", "coords must be int32 of shape (M, 4), got " +
                                   graph::dtype_name(coords.dtype()) + " of shape " +
                                   shape_text(coords.shape()));
  const int64_t m = coords.shape(0);
  if (active_rows.shape() != mx::Shape{1} ||
      checked_rows(active_rows, m + 1, op, "active_rows", m).size() != 1)
    fail("SparseQuantization",
         "active_rows must have shape (1,), got " + shape_text(active_rows.shape()));
  inverse_rows = checked_rows(inverse_rows, m, op, "inverse_rows");
  const int64_t points = static_cast<int64_t>(inverse_rows.size());
  counts = checked_rows(counts, points + 1, op, "counts");
  if (static_cast<int64_t>(counts.size()) != m)
    fail("SparseQuantization",
         "counts must have shape (" + std::to_string(m) + ",), got " + shape_text(counts.shape()));
  points_of_voxel_ =
      RowMap::make({m, points, inverse_rows, std::nullopt, std::nullopt})->transposed();
  for (int64_t v = 0; v < m; ++v)
    if (const int32_t* at = points_of_voxel_->offsets() + v;
        counts.data<int32_t>()[v] != at[1] - at[0])
      fail("SparseQuantization", "counts[" + std::to_string(v) +
                                     "] = " + std::to_string(counts.data<int32_t>()[v]) +
                                     ", but inverse_rows names voxel " + std::to_string(v) + " " +
                                     std::to_string(at[1] - at[0]) + " times");
}

SparseQuantization::SparseQuantization(mx::array c, mx::array inverse, mx::array n,
                                       RowMap::Ptr points_of_voxel)
    : coords(std::move(c)),
      active_rows(count_array(coords.shape(0))),
      inverse_rows(std::move(inverse)),
      counts(std::move(n)),
      points_of_voxel_(std::move(points_of_voxel)) {}

struct PointVoxelMap::State {
  std::mutex mutex;
  RowMap::Ptr map;
};

PointVoxelMap::PointVoxelMap(mx::array r, mx::array w)
    : rows(std::move(r)), weights(std::move(w)), state_(std::make_shared<State>()) {
  for (const auto& [name, a, dtype] :
       {std::tuple("rows", &rows, mx::int32), std::tuple("weights", &weights, mx::float32)})
    if (a->ndim() != 2 || a->shape(1) != 8 || a->dtype() != dtype)
      fail("PointVoxelMap", std::string(name) + " must be " + graph::dtype_name(dtype) +
                                " of shape (P, 8), got " + graph::dtype_name(a->dtype()) +
                                " of shape " + shape_text(a->shape()));
  if (rows.shape(0) != weights.shape(0))
    fail("PointVoxelMap", "rows and weights must have equal lengths, got " +
                              std::to_string(rows.shape(0)) + " and " +
                              std::to_string(weights.shape(0)));
}

RowMap::Ptr PointVoxelMap::map(int64_t n_voxels, std::string_view operation) const {
  std::lock_guard lock(state_->mutex);
  if (state_->map && state_->map->n_in() == n_voxels) return state_->map;
  const mx::array given_rows = evaluated(rows, operation, "map.rows");
  const mx::array given_weights = evaluated(weights, operation, "map.weights");
  const int64_t n = rows.shape(0);
  const int32_t* row = n ? given_rows.data<int32_t>() : nullptr;
  const float* weight = n ? given_weights.data<float>() : nullptr;
  Buffer<int32_t> offsets(n + 1);
  std::vector<int64_t> first(static_cast<size_t>(cpu::piece_count(n))), bad(first.size(), -1);
  cpu::each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    for (int64_t e = begin * 8; e < end * 8; ++e) {
      if ((row[e] < -1 || row[e] >= n_voxels) && bad[piece] < 0) bad[piece] = e;
      first[piece] += row[e] >= 0;
    }
  });
  for (int64_t e : bad)
    if (e >= 0)
      fail(operation, "map.rows[" + std::to_string(e / 8) + ", " + std::to_string(e % 8) +
                          "] = " + std::to_string(row[e]) + " is outside -1.." +
                          std::to_string(n_voxels - 1));
  const int64_t entries = cpu::exclusive_sum(first);
  if (entries > std::numeric_limits<int32_t>::max())
    fail(operation, "map must have fewer than 2^31 voxels, got " + std::to_string(entries));
  Buffer<int32_t> kept(entries);
  Buffer<float> scale(entries);
  offsets[n] = static_cast<int32_t>(entries);
  cpu::each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    int64_t at = first[piece];
    for (int64_t e = begin * 8; e < end * 8; ++e) {
      if (e % 8 == 0) offsets[e / 8] = static_cast<int32_t>(at);
      if (row[e] >= 0) kept[at] = row[e], scale[at++] = weight[e];
    }
  });
  const int n_entries = static_cast<int>(entries);
  state_->map = RowMap::make({n_voxels, n, adopt(std::move(kept), {n_entries}),
                              adopt(std::move(offsets), {static_cast<int>(n) + 1}),
                              adopt(std::move(scale), {n_entries})});
  return state_->map;
}

}  // namespace lattice

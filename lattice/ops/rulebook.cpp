#include "lattice/ops/rulebook.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/rulebook.h"
#include "lattice/ops/rulebook_parts.h"

namespace lattice {

using namespace rulebook_parts;

KernelShape parse_shape(std::string_view name, std::string_view function) {
  if (name == "ball") return KernelShape::ball;
  if (name == "cube") return KernelShape::cube;
  fail(function, "shape must be ball or cube, got '" + std::string(name) + "'");
}

GridPick parse_pick(std::string_view name, std::string_view function) {
  if (name == "center_nearest") return GridPick::center_nearest;
  if (name == "center") return GridPick::center;
  if (name == "mean") return GridPick::mean;
  if (name == "first") return GridPick::first;
  fail(function,
       "pick must be center_nearest, center, mean or first, got '" + std::string(name) + "'");
}

float radius_scaler(int64_t ks, float rfs, KernelShape shape) {
  check_kernel("radius_scaler", ks);
  check_positive("radius_scaler", "rfs", rfs);
  const double size = static_cast<double>(ks), scale = double{rfs};
  if (shape == KernelShape::cube) return static_cast<float>(size * std::cbrt(scale) / 2);
  return static_cast<float>(std::cbrt(3 * size * size * size * scale / (4 * std::numbers::pi)));
}

mx::array voxel_tap(const mx::array& offsets, float grid, int64_t ks) {
  constexpr const char* kName = "voxel_tap";
  check_kernel(kName, ks);
  check_positive(kName, "grid", grid);
  if (offsets.ndim() != 2 || offsets.shape(1) != 3)
    fail(kName, "offsets must have shape (N, 3), got " + shape_text(offsets.shape()));
  const mx::array d = evaluated(mx::astype(offsets, mx::float32), kName, "offsets");
  const int64_t n = d.shape(0);
  if (const int64_t bad = n ? cpu::first_bad_point(d.data<float>(), n) : -1; bad >= 0)
    fail(kName, "offsets must be finite, got row " + std::to_string(bad));
  cpu::Buffer<int32_t> taps(n);
  for (int64_t i = 0; i < n; ++i) {
    const float* v = d.data<float>() + 3 * i;
    taps[i] = cpu::voxel_tap(v[0], v[1], v[2], grid, static_cast<int32_t>(ks));
  }
  return adopt(std::move(taps));
}

Neighbors radius_search(const PointSet& points, const PointSet& queries, float radius,
                        KernelShape shape) {
  constexpr const char* kName = "radius_search";
  check_positive(kName, "radius", radius);
  check_batches(kName, points, queries);
  cpu::NearPoints near = named(kName, [&] {
    return cpu::near_points(span_of(points), span_of(queries),
                            {radius, shape == KernelShape::cube});
  });
  cpu::Buffer<int32_t> counts(queries.size());
  for (int64_t q = 0; q < counts.size(); ++q) counts[q] = near.offsets[q + 1] - near.offsets[q];
  return {adopt(std::move(near.rows)), adopt(std::move(counts)), adopt(std::move(near.distances))};
}

Neighbors clip_neighbors(const Neighbors& neighbors, int64_t most) {
  constexpr const char* kName = "clip_neighbors";
  if (most < 0) fail(kName, "most must be >= 0, got " + std::to_string(most));
  const int64_t n = static_cast<int64_t>(neighbors.rows.size());
  if (neighbors.rows.ndim() != 1 || neighbors.distances.shape() != neighbors.rows.shape())
    fail(kName, "rows and distances must have one shape (N,), got " +
                    shape_text(neighbors.rows.shape()) + " and " +
                    shape_text(neighbors.distances.shape()));
  const mx::array rows =
      checked_rows(neighbors.rows, std::numeric_limits<int32_t>::max(), kName, "rows");
  const mx::array far = evaluated(mx::astype(neighbors.distances, mx::float32), kName, "distances");
  for (int64_t e = 0; e < n; ++e)
    if (std::isnan(far.data<float>()[e]))
      fail(kName, "distances[" + std::to_string(e) + "] is NaN, expected distances in order");
  const cpu::Buffer<int32_t> offsets = checked_offsets(neighbors.counts, n, kName, "counts");
  std::vector<int32_t> kept;
  cpu::Buffer<int32_t> counts(offsets.size() - 1);
  for (int64_t q = 0; q + 1 < offsets.size(); ++q) {
    const auto begin = static_cast<std::ptrdiff_t>(kept.size());
    for (int32_t e = offsets[q]; e < offsets[q + 1]; ++e) kept.push_back(e);
    counts[q] = static_cast<int32_t>(std::min<int64_t>(most, offsets[q + 1] - offsets[q]));
    if (counts[q] == offsets[q + 1] - offsets[q]) continue;
    const auto nearer = [&](int32_t a, int32_t b) {
      const float x = far.data<float>()[a], y = far.data<float>()[b];
      return x != y ? x < y : rows.data<int32_t>()[a] < rows.data<int32_t>()[b];
    };
    std::sort(kept.begin() + begin, kept.end(), nearer);
    kept.resize(static_cast<size_t>(begin + counts[q]));
    std::sort(kept.begin() + begin, kept.end());
  }
  cpu::Buffer<int32_t> some(static_cast<int64_t>(kept.size()));
  cpu::Buffer<float> distances(some.size());
  for (int64_t i = 0; i < some.size(); ++i) {
    some[i] = rows.data<int32_t>()[kept[static_cast<size_t>(i)]];
    distances[i] = far.data<float>()[kept[static_cast<size_t>(i)]];
  }
  return {adopt(std::move(some)), adopt(std::move(counts)), adopt(std::move(distances))};
}

Downsampled grid_downsample(const PointSet& points, float cell, GridPick pick) {
  constexpr const char* kName = "grid_downsample";
  check_positive(kName, "cell", cell);
  cpu::PointCells cells = named(kName, [&] { return cpu::point_cells(span_of(points), cell); });
  const int64_t n = cells.first.size() - 1;
  const float* xyz = points.size() ? points.positions().data<float>() : nullptr;
  cpu::Buffer<float> positions(n * 3);
  cpu::Buffer<int32_t> indices(n);
  std::vector<int32_t> lengths(static_cast<size_t>(points.batch_size()));
  for (int64_t c = 0; c < n; ++c) {
    const int32_t begin = cells.first[c], end = cells.first[c + 1];
    float center[3];
    double sum[3] = {0, 0, 0};
    for (int a = 0; a < 3; ++a)
      center[a] = (static_cast<float>(cells.cells[c * 4 + 1 + a]) + 0.5f) * cell;
    int32_t best = cells.order[begin];
    float least = INFINITY;
    for (int32_t p = begin; p < end; ++p) {
      const float* at = xyz + int64_t{cells.order[p]} * 3;
      float d2 = 0;
      for (int a = 0; a < 3; ++a)
        d2 += (at[a] - center[a]) * (at[a] - center[a]), sum[a] += double{at[a]};
      if (pick == GridPick::center_nearest && d2 < least)
        least = d2, best = cells.order[p];  // ties: the lowest row
    }
    indices[c] = best;
    for (int a = 0; a < 3; ++a)
      positions[c * 3 + a] = pick == GridPick::center ? center[a]
                             : pick == GridPick::mean ? static_cast<float>(sum[a] / (end - begin))
                                                      : xyz[int64_t{best} * 3 + a];
    ++lengths[static_cast<size_t>(cells.cells[c * 4])];
  }
  return {PointSet(adopt(std::move(positions), {static_cast<int>(n), 3}), ints(lengths), cell),
          adopt(std::move(indices)), adopt(std::move(cells.cell_of))};
}

Rulebook rulebook_from_triplets(const mx::array& i, const mx::array& j, const mx::array& k,
                                int64_t n_out, int64_t n_in, int64_t n_k) {
  const Relation::Ptr relation = Relation::from_edges(j, i, k, n_in, n_out, n_k);
  const int64_t ks = std::llround(std::cbrt(static_cast<double>(n_k)));
  return {relation, ks * ks * ks == n_k ? ks : 0, 0, 0};
}

std::vector<mx::array> Rulebook::triplets() const {
  const cpu::RelationLists& lists = relation->lists();
  const auto row = [](const auto& order, int32_t p) { return order ? (*order)[p] : p; };
  cpu::Buffer<int32_t> i(lists.n_edges), j(lists.n_edges), k(lists.n_edges),
      begins(lists.n_k() + 1);
  int64_t at = 0;
  for (int64_t list = 0; list < lists.n_k(); ++list) {
    const cpu::OffsetList& edges = lists.lists[static_cast<size_t>(list)];
    std::vector<std::pair<int32_t, int32_t>> pairs;
    for (int64_t e = 0; e < edges.size; ++e)
      pairs.emplace_back(row(lists.out_order, edges.out_at(e)),
                         row(lists.in_order, edges.in_at(e)));
    std::sort(pairs.begin(), pairs.end());
    begins[list] = static_cast<int32_t>(at);
    for (const auto& [target, source] : pairs) {
      i[at] = target;
      j[at] = source;
      k[at++] = static_cast<int32_t>(list);
    }
  }
  begins[lists.n_k()] = static_cast<int32_t>(at);
  return {adopt(std::move(i)), adopt(std::move(j)), adopt(std::move(k)), adopt(std::move(begins))};
}

int64_t Rulebook::n_buckets() const {
  const cpu::RelationLists& lists = relation->lists();
  return lists.out_once ? lists.n_edges : lists.n_buckets;
}

Rulebook build_rulebook(const PointSet& src, const PointSet& dst, int64_t ks, float rfs,
                        KernelShape shape, std::optional<float> radius, bool allow_empty) {
  constexpr const char* kName = "build_rulebook";
  check_kernel(kName, ks);
  check_batches(kName, src, dst);
  const float r = radius ? *radius : src.grid() * radius_scaler(ks, rfs, shape);
  check_positive(kName, "radius", r);
  cpu::RelationLists lists = named(kName, [&] {
    return cpu::point_lists(span_of(src), span_of(dst), {r, shape == KernelShape::cube}, src.grid(),
                            static_cast<int32_t>(ks));
  });
  if (!allow_empty)
    if (const int64_t alone = cpu::coverage(lists).empty_outputs; alone > 0)
      fail(kName, std::to_string(alone) + " of " + std::to_string(dst.size()) +
                      " targets have no neighbor within radius " + std::to_string(r) +
                      "; increase the radius or pass allow_empty");
  return {Relation::from_lists(std::move(lists)), ks, r, src.grid()};
}

}  // namespace lattice

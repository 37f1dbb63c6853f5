#include "lattice/ops/surface.h"

#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/features/nearest.h"
#include "lattice/kernels/cpu/geometry/farthest.h"
#include "lattice/kernels/cpu/geometry/neighbors.h"
#include "lattice/kernels/cpu/geometry/normals.h"

namespace lattice {
namespace {

// Finite float32 rows; `columns` 0 takes any width.
mx::array checked(const mx::array& a, int columns, const char* operation, const char* what) {
  const std::string shape = columns ? "(N, " + std::to_string(columns) + ")" : "(N, C)";
  if (a.ndim() != 2 || (columns && a.shape(1) != columns) || a.shape(1) == 0)
    fail(operation,
         std::string(what) + " must have shape " + shape + ", got " + shape_text(a.shape()));
  if (!is_float(a.dtype()))
    fail(operation, std::string(what) + " must be float32, float16 or bfloat16, got " +
                        graph::dtype_name(a.dtype()));
  mx::array out = evaluated(mx::astype(a, mx::float32, mx::Device::cpu), operation, what);
  const int64_t n = static_cast<int64_t>(out.size());
  for (int64_t i = 0; i < n; ++i)
    if (!std::isfinite(out.data<float>()[i]))
      fail(operation, std::string(what) + " must be finite, got " +
                          std::to_string(out.data<float>()[i]) + " in row " +
                          std::to_string(i / a.shape(1)));
  return out;
}

void in_range(int64_t value, int64_t low, int64_t high, const char* operation, const char* what,
              const char* hint) {
  if (value < low || value > high)
    fail(operation, std::string(what) + " must be in " + std::to_string(low) + ".." +
                        std::to_string(high) + ", got " + std::to_string(value) + "; " + hint);
}

template <typename T>
mx::array whole(cpu::Buffer<T>&& values, int64_t rows, int64_t columns) {
  return adopt(std::move(values), {static_cast<int>(rows), static_cast<int>(columns)});
}

cpu::Places places_of(const mx::array& points) {
  cpu::Places places;
  places.n = points.shape(0);
  places.points = points.data<float>();
  return places;
}

}  // namespace

mx::array farthest_point_sample(const mx::array& points, int64_t count, int64_t start) {
  constexpr const char* kName = "farthest_point_sample";
  const mx::array p = checked(points, 3, kName, "points");
  const int64_t n = p.shape(0);
  in_range(count, 0, n, kName, "count", "ask for at most as many samples as there are points");
  if (count == 0) return mx::zeros({0}, mx::int32, mx::Device::cpu);
  in_range(start, 0, n - 1, kName, "start", "it is the row of the first sample");
  cpu::Buffer<int32_t> rows(count);
  cpu::Buffer<float> distances(count);
  cpu::farthest_points(p.data<float>(), n, start, count, rows.data(), distances.data());
  return adopt(std::move(rows), {static_cast<int>(count)});
}

std::pair<mx::array, mx::array> estimate_normals(const mx::array& points, int64_t k,
                                                 const std::array<float, 3>& viewpoint) {
  constexpr const char* kName = "estimate_normals";
  const mx::array p = checked(points, 3, kName, "points");
  const int64_t n = p.shape(0);
  if (k < 3) fail(kName, "k must be at least 3, got " + std::to_string(k));
  for (const float v : viewpoint)
    if (!std::isfinite(v)) fail(kName, "viewpoint must be finite, got " + std::to_string(v));
  if (n == 0)
    return {mx::zeros({0, 3}, mx::float32, mx::Device::cpu),
            mx::zeros({0}, mx::float32, mx::Device::cpu)};
  cpu::Buffer<float> normals(n * 3), curvature(n);
  const cpu::Neighbors found = cpu::NeighborTree(places_of(p)).search({k, std::nullopt});
  cpu::point_normals(p.data<float>(), n, found.offsets.data(), found.sources.data(), viewpoint,
                     normals.data(), curvature.data());
  return {whole(std::move(normals), n, 3), adopt(std::move(curvature), {static_cast<int>(n)})};
}

std::pair<mx::array, mx::array> knn_rows(const mx::array& feats, int64_t k,
                                         const std::optional<mx::array>& queries) {
  constexpr const char* kName = "knn_rows";
  const mx::array source = checked(feats, 0, kName, "feats");
  const int width = source.shape(1);
  const mx::array query = queries ? checked(*queries, width, kName, "queries") : source;
  const int64_t n = source.shape(0), m = query.shape(0);
  in_range(k, 1, n, kName, "k", "there must be at least k rows in feats");
  if (m == 0)
    return {mx::zeros({0, static_cast<int>(k)}, mx::int32, mx::Device::cpu),
            mx::zeros({0, static_cast<int>(k)}, mx::float32, mx::Device::cpu)};
  if (width == 3) {
    const cpu::NeighborTree tree(places_of(source));
    cpu::Neighbors found =
        queries ? tree.search(places_of(query), {k, std::nullopt}) : tree.search({k, std::nullopt});
    return {whole(std::move(found.sources), m, k), whole(std::move(found.distances), m, k)};
  }
  cpu::Buffer<int32_t> rows(m * k);
  cpu::Buffer<float> distances(m * k);
  cpu::nearest_rows(source.data<float>(), n, query.data<float>(), m, width, k, rows.data(),
                    distances.data());
  return {whole(std::move(rows), m, k), whole(std::move(distances), m, k)};
}

mx::array feature_graph(const mx::array& x, int64_t k, const mx::array& lengths) {
  constexpr const char* kName = "feature_graph";
  const mx::array rows = checked(x, 0, kName, "x");
  in_range(k, 1, 65536, kName, "k", "it is the number of neighbors");
  const cpu::Buffer<int32_t> offsets = checked_offsets(lengths, rows.shape(0), kName, "lengths");
  cpu::Buffer<int32_t> graph(rows.shape(0) * k);
  for (int64_t cloud = 0; cloud + 1 < offsets.size(); ++cloud) {
    const int32_t begin = offsets[cloud], n = offsets[cloud + 1] - begin;
    if (n == 0) continue;
    const int64_t found = std::min<int64_t>(k, n);
    const mx::array own =
        new_array(rows.data<float>() + static_cast<int64_t>(begin) * rows.shape(1),
                  {n, rows.shape(1)}, mx::float32);
    const mx::array near = knn_rows(own, found).first;
    for (int64_t i = 0; i < n; ++i)
      for (int64_t rank = 0; rank < k; ++rank)
        graph[(begin + i) * k + rank] =
            begin + near.data<int32_t>()[i * found + (rank < found ? rank : 0)];
  }
  return whole(std::move(graph), rows.shape(0), k);
}

std::pair<mx::array, mx::array> sample_centers(const mx::array& positions, const mx::array& lengths,
                                               double share) {
  constexpr const char* kName = "sample_centers";
  const mx::array p = checked(positions, 3, kName, "positions");
  if (!(share > 0 && share <= 1))
    fail(kName, "share must be above 0 and at most 1, got " + std::to_string(share));
  const cpu::Buffer<int32_t> offsets = checked_offsets(lengths, p.shape(0), kName, "lengths");
  const int64_t clouds = offsets.size() - 1;
  cpu::Buffer<int32_t> counts(clouds);
  int64_t total = 0;
  for (int64_t b = 0; b < clouds; ++b) {
    const int64_t n = offsets[b + 1] - offsets[b];
    const auto wanted = static_cast<int64_t>(std::nearbyint(static_cast<double>(n) * share));
    counts[b] = static_cast<int32_t>(std::min(n, std::max<int64_t>(1, wanted)));
    total += counts[b];
  }
  cpu::Buffer<int32_t> rows(total);
  cpu::Buffer<float> distances(total);
  int32_t* out = rows.data();
  for (int64_t b = 0; b < clouds; ++b) {
    const int64_t n = offsets[b + 1] - offsets[b];
    if (n)
      cpu::farthest_points(p.data<float>() + int64_t{3} * offsets[b], n, 0, counts[b], out,
                           distances.data());
    for (int32_t i = 0; i < counts[b]; ++i) *out++ += offsets[b];
  }
  return {adopt(std::move(rows)), adopt(std::move(counts))};
}

}  // namespace lattice

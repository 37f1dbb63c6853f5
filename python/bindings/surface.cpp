// Samples, normals and graphs of points. Arguments only.
#include "lattice/ops/surface.h"

#include <nanobind/stl/array.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_surface(nb::module_& m) {
  m.def(
      "farthest_point_sample",
      [](const mx::array& points, nb::handle count, nb::handle start) {
        const int64_t n = integer(count, "farthest_point_sample", "count");
        const int64_t first = integer(start, "farthest_point_sample", "start");
        Release release;
        return farthest_point_sample(points, n, first);
      },
      "points"_a, "count"_a, nb::kw_only(), "start"_a = 0,
      "(count,) rows of points (N, 3): each is farthest from all rows before it.");
  m.def(
      "estimate_normals",
      [](const mx::array& points, nb::handle k, nb::handle viewpoint) {
        const int64_t n = integer(k, "estimate_normals", "k");
        const auto view = floats3(viewpoint, "estimate_normals", "viewpoint");
        Release release;
        return estimate_normals(points, n, view);
      },
      "points"_a, nb::kw_only(), "k"_a = 16, "viewpoint"_a = 0.0f,
      "(normals (N, 3), curvature (N,)) from the k nearest points; normals face the viewpoint.");
  m.def(
      "knn_rows",
      [](const mx::array& feats, nb::handle k, const std::optional<mx::array>& queries) {
        const int64_t n = integer(k, "knn_rows", "k");
        Release release;
        return knn_rows(feats, n, queries);
      },
      "feats"_a, "k"_a, nb::kw_only(), "queries"_a = nb::none(),
      "(rows (M, k), squared distances (M, k)) of the k nearest rows of feats (N, C), any C.");
}

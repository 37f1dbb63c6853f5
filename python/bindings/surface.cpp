// Samples, normals and graphs of points. Arguments only.
#include "lattice/ops/surface.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_surface(nb::module_& m) {
  def(m, "farthest_point_sample", &farthest_point_sample, "points"_a, "count"_a, "start"_a,
      Unlocked());
  def(
      m, "estimate_normals",
      [](const mx::array& points, int64_t k, const std::array<double, 3>& viewpoint) {
        const std::array<float, 3> from{static_cast<float>(viewpoint[0]),
                                        static_cast<float>(viewpoint[1]),
                                        static_cast<float>(viewpoint[2])};
        return estimate_normals(points, k, from);
      },
      "points"_a, "k"_a, "viewpoint"_a, Unlocked());
  def(m, "feature_graph", &feature_graph, "x"_a, "k"_a, "lengths"_a, Unlocked());
  def(m, "sample_centers", &sample_centers, "positions"_a, "lengths"_a, "share"_a, Unlocked());
  def(m, "knn_rows", &knn_rows, "feats"_a, "k"_a, "queries"_a, Unlocked());
}

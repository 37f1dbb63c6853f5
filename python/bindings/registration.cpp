// Outlier removal and registration. Arguments only; clouds are NumPy arrays.
#include "lattice/ops/registration.h"

#include <nanobind/stl/array.h>

#include "arguments.h"
#include "bind.h"
#include "columns.h"

using namespace lattice;
using namespace nb::literals;

namespace {

// A mask as NumPy's bool.
nb::object mask_of(std::vector<uint8_t> keep) {
  const auto held = std::make_shared<std::vector<uint8_t>>(std::move(keep));
  const auto rows = static_cast<int64_t>(held->size());
  return numpy_of({Number::boolean, held->data(), rows, 1, 1, 1, held});
}

template <size_t kSize>
nb::object square_of(const std::array<double, kSize>& values, int64_t side) {
  const auto held = std::make_shared<std::array<double, kSize>>(values);
  return numpy_of({Number::float64, held->data(), side, side, side * 8, 8, held}, true);
}

}  // namespace

void bind_registration(nb::module_& m) {
  m.def(
      "statistical_inliers",
      [](nb::handle points, int64_t k, double ratio) {
        const Cloud cloud(column_of(points));
        return mask_of(unlocked([&] { return statistical_inliers(cloud, k, ratio); }));
      },
      "points"_a, "k"_a, "ratio"_a, "(N,) bool.");
  m.def(
      "radius_inliers",
      [](nb::handle points, double radius, int64_t least) {
        const Cloud cloud(column_of(points));
        return mask_of(unlocked([&] { return radius_inliers(cloud, radius, least); }));
      },
      "points"_a, "radius"_a, "least"_a, "(N,) bool.");
  m.def(
      "icp",
      [](nb::handle source, nb::handle target, nb::handle normals,
         const std::optional<std::array<double, 16>>& pose, double reach, int64_t steps,
         double tolerance, int64_t k) {
        const Cloud from(column_of(source)), onto(column_of(target));
        IcpOptions options{{}, pose, reach, steps, tolerance, k};
        if (!normals.is_none()) options.normals = column_of(normals);
        const Registration found = unlocked([&] { return icp(from, onto, options); });
        return nb::make_tuple(square_of(found.pose, 4), square_of(found.covariance, 6), found.rms,
                              found.pairs, found.steps, found.converged);
      },
      "source"_a, "target"_a, "normals"_a.none(), "pose"_a.none(), "reach"_a, "steps"_a,
      "tolerance"_a, "k"_a, "(pose, covariance, rms, pairs, steps, converged).");
}

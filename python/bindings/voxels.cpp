// Points into the cells of a grid. Arguments only.
#include "lattice/ops/voxels.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

void bind_voxels(nb::module_& m) {
  nb::class_<PointVoxels>(m, "PointVoxels", "The voxels of a cloud, in the order of their points.")
      .def_ro("voxels", &PointVoxels::voxels, "(V, max_points, F): 0 in slots without a point.")
      .def_ro("mean", &PointVoxels::mean, "(V, F): the mean of the points that entered.")
      .def_ro("coords", &PointVoxels::coords, "(V, 3) int32: z, y, x.")
      .def_ro("counts", &PointVoxels::counts, "(V,) int32: how many points entered.")
      .def_ro("owner", &PointVoxels::owner, "(N,) int32: the voxel of each cell; -1: none.")
      .def_ro("outside", &PointVoxels::outside, "Points outside of the grid or not finite.")
      .def_ro("full_voxel", &PointVoxels::full_voxel, "Points of voxels that were full.")
      .def_ro("full_grid", &PointVoxels::full_grid, "Points of new cells behind max_voxels.")
      .def_prop_ro("dropped", &PointVoxels::dropped, "(3,) int32: outside, full_voxel, full_grid.");
  def(m, "point_voxels", &point_voxels, "points"_a, "low"_a, "high"_a, "size"_a, "max_points"_a,
      "max_voxels"_a, Unlocked());
}

// Point sets, downsampling, radius search and rulebooks. Arguments only.
#include "lattice/ops/rulebook.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Array = const mx::array&;
using Optional = const std::optional<mx::array>&;
using Points = const PointSet&;
using Text = std::string_view;

void bind_points_value(nb::module_& m) {
  nb::class_<PointSet> points(
      m, "PointSet",
      R"(Points (N, 3) of clouds that follow each other, with the size of a kernel cell. Immutable.

Args:
    positions: (N, 3), float32.
    lengths: Points per cloud, integers (B,); by default one cloud.
    grid: Side of a kernel cell, in units of the positions.

>>> from mlx_lattice import points
>>> points.PointSet([[0.0, 0, 0], [1, 0, 0], [2, 0, 0]], [2, 1], grid=0.5)
PointSet(3 points, 2 clouds, grid=0.500000))");
  def_init(
      points,
      [](Array positions, Optional lengths, float grid) {
        return PointSet(positions, lengths, grid);
      },
      "positions"_a, "lengths"_a = nb::none(), nb::kw_only(), "grid"_a = 1.0f, Unlocked());
  points.def_prop_ro("positions", &PointSet::positions, "(N, 3), float32.")
      .def_prop_ro("lengths", &PointSet::lengths, "Points per cloud, (B,).")
      .def_prop_ro("grid", &PointSet::grid, "Side of a kernel cell.")
      .def_prop_ro("batch_size", &PointSet::batch_size, "The number of clouds.")
      .def("with_grid", &PointSet::with_grid, "grid"_a,
           "The same points with another size of a kernel cell.")
      .def("__len__", &PointSet::size)
      .def("__repr__", [](Points p) {
        return "PointSet(" + std::to_string(p.size()) + " points, " +
               std::to_string(p.batch_size()) + " clouds, grid=" + std::to_string(p.grid()) + ")";
      });
}

void bind_rulebook_value(nb::module_& m) {
  nb::class_<Rulebook>(
      m, "Rulebook",
      "Edges (source point, target point, kernel cell) of a point convolution. Immutable.")
      .def_prop_ro(
          "relation", [](const Rulebook& r) { return r.relation; }, "The edges as a relation.")
      .def_ro("kernel_size", &Rulebook::kernel_size, "Cells per axis.")
      .def_ro("radius", &Rulebook::radius, "Reach of the kernel.")
      .def_ro("grid", &Rulebook::grid, "Side of a kernel cell.")
      .def_prop_ro(
          "n_in", [](const Rulebook& r) { return r.relation->n_in(); }, "Source points.")
      .def_prop_ro(
          "n_out", [](const Rulebook& r) { return r.relation->n_out(); }, "Target points.")
      .def_prop_ro(
          "n_kernels", [](const Rulebook& r) { return r.relation->n_kernels(); }, "Kernel cells.")
      .def_prop_ro("n_buckets", &Rulebook::n_buckets, "Kernel cells that have an edge.")
      .def_prop_ro("exact_cover_out", &Rulebook::exact_cover_out,
                   "Every target has exactly one edge.")
      .def_prop_ro("exact_cover_in", &Rulebook::exact_cover_in,
                   "Every source has exactly one edge.")
      .def("transposed", &Rulebook::transposed, "negate"_a = false, Unlocked(),
           "Ends swapped, same kernel cells; with negate the cells of the opposite offsets.")
      .def(
          "triplets",
          [](const Rulebook& r) {
            const std::vector<mx::array> t = r.triplets();
            return std::make_tuple(t[0], t[1], t[2], t[3]);
          },
          Unlocked(),
          "(i, j, k, seg_offs): target, source and cell of every edge by (k, i, j), and where each "
          "k begins.")
      .def("__len__", [](const Rulebook& r) { return r.relation->edge_count(); })
      .def("__repr__", [](const Rulebook& r) {
        return "Rulebook(kernel_size=" + std::to_string(r.kernel_size) +
               ", radius=" + std::to_string(r.radius) + ", " + r.relation->text() + ")";
      });
}

void bind_search(nb::module_& m) {
  def(
      m, "radius_scaler",
      [](int64_t size, float rfs, Text shape) {
        return radius_scaler(size, rfs, parse_shape(shape, "radius_scaler"));
      },
      "kernel_size"_a, "rfs"_a, "shape"_a);
  def(m, "voxel_tap", &voxel_tap, "offsets"_a, "grid"_a, "kernel_size"_a, Unlocked());
  def(
      m, "radius_search",
      [](Array points, Array queries, float radius, Optional lengths, Optional query_lengths,
         Text shape) {
        const Neighbors n =
            radius_search(PointSet(points, lengths, 1), PointSet(queries, query_lengths, 1), radius,
                          parse_shape(shape, "radius_search"));
        return std::make_tuple(n.rows, n.counts, n.distances);
      },
      "points"_a, "queries"_a, "radius"_a, "lengths"_a, "query_lengths"_a, "shape"_a, Unlocked());
  def(
      m, "clip_neighbors",
      [](Array rows, Array counts, Array distances, int64_t most) {
        const Neighbors n = clip_neighbors({rows, counts, distances}, most);
        return std::make_tuple(n.rows, n.counts, n.distances);
      },
      "rows"_a, "counts"_a, "distances"_a, "most"_a, Unlocked());
  def(
      m, "grid_downsample",
      [](Points points, float cell, Text pick) {
        const Downsampled d = grid_downsample(points, cell, parse_pick(pick, "grid_downsample"));
        return std::make_tuple(d.points, d.indices, d.cell_of);
      },
      "points"_a, "cell"_a, "pick"_a, Unlocked());
}

}  // namespace

void bind_rulebook(nb::module_& m) {
  bind_points_value(m);
  bind_rulebook_value(m);
  bind_search(m);
  def(m, "rulebook_from_triplets", &rulebook_from_triplets, "i"_a, "j"_a, "k"_a, "n_out"_a,
      "n_in"_a, "n_kernels"_a, Unlocked());
  def(
      m, "build_rulebook",
      [](Points source, Points target, int64_t size, float rfs, Text shape,
         const std::optional<float>& radius, bool allow_empty) {
        return build_rulebook(source, target, size, rfs, parse_shape(shape, "build_rulebook"),
                              radius, allow_empty);
      },
      "source"_a, "target"_a, "kernel_size"_a, "rfs"_a, "shape"_a, "radius"_a, "allow_empty"_a,
      Unlocked());
  def(
      m, "build_partition_rulebook",
      [](Points source, float stride, int64_t size) {
        const Partition p = build_partition_rulebook(source, stride, size);
        return std::make_pair(p.rulebook, p.targets);
      },
      "source"_a, "stride"_a, "kernel_size"_a, Unlocked());
  def(
      m, "build_full_cover_rulebook",
      [](Points source, float stride, int64_t size, float margin) {
        const FullCover c = build_full_cover_rulebook(source, stride, size, margin);
        return std::make_tuple(c.rulebook, c.targets, c.indices, c.n_added);
      },
      "source"_a, "stride"_a, "kernel_size"_a, "margin"_a, Unlocked());
  def(
      m, "build_generative_rulebook",
      [](Points source, int64_t size, float expansion, Optional stencil) {
        const Generated g = build_generative_rulebook(source, size, expansion, stencil);
        return std::make_pair(g.rulebook, g.targets);
      },
      "source"_a, "kernel_size"_a, "expansion"_a, "stencil"_a, Unlocked());
  def(
      m, "build_subdivision_rulebook",
      [](Points source, int64_t expansion) {
        const Generated g = build_subdivision_rulebook(source, expansion);
        return std::make_pair(g.rulebook, g.targets);
      },
      "source"_a, "expansion"_a, Unlocked());
}

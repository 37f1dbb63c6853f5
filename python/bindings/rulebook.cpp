// Point sets, downsampling, radius search and rulebooks. Arguments only.
#include "lattice/ops/rulebook.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "arguments.h"
#include "bind.h"

using namespace lattice;

namespace {
using Array = std::optional<mx::array>;
}  // namespace

void bind_rulebook(nb::module_& m) {
  nb::class_<PointSet>(
      m, "PointSet",
      "Points (N, 3) of clouds that follow each other, with the size of a kernel cell. Immutable.")
      .def(
          "__init__",
          [](PointSet* self, const Given& positions, const std::optional<Given>& lengths,
             float grid) {
            Release release;
            new (self) PointSet(*positions, lengths ? Array(**lengths) : std::nullopt, grid);
          },
          nb::arg("positions"), nb::arg("lengths") = nb::none(), nb::kw_only(),
          nb::arg("grid") = 1.0f)
      .def_prop_ro("positions", &PointSet::positions)
      .def_prop_ro("lengths", &PointSet::lengths)
      .def_prop_ro("grid", &PointSet::grid)
      .def_prop_ro("batch_size", &PointSet::batch_size)
      .def("with_grid", &PointSet::with_grid, nb::arg("grid"),
           "The same points with another size of a kernel cell.")
      .def("__len__", &PointSet::size)
      .def("__repr__", [](const PointSet& p) {
        return "PointSet(" + std::to_string(p.size()) + " points, " +
               std::to_string(p.batch_size()) + " clouds, grid=" + std::to_string(p.grid()) + ")";
      });
  nb::class_<Rulebook>(
      m, "Rulebook",
      "Edges (source point, target point, kernel cell) of a point convolution. Immutable.")
      .def_prop_ro("relation", [](const Rulebook& r) { return r.relation; })
      .def_ro("kernel_size", &Rulebook::kernel_size)
      .def_ro("radius", &Rulebook::radius)
      .def_ro("grid", &Rulebook::grid)
      .def_prop_ro("n_in", [](const Rulebook& r) { return r.relation->n_in(); })
      .def_prop_ro("n_out", [](const Rulebook& r) { return r.relation->n_out(); })
      .def_prop_ro("n_kernels", [](const Rulebook& r) { return r.relation->n_kernels(); })
      .def_prop_ro("n_buckets", &Rulebook::n_buckets)
      .def_prop_ro("exact_cover_out", &Rulebook::exact_cover_out,
                   "Every target has exactly one edge.")
      .def_prop_ro("exact_cover_in", &Rulebook::exact_cover_in,
                   "Every source has exactly one edge.")
      .def("transposed", &Rulebook::transposed, nb::arg("negate") = false, Unlocked(),
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
  m.def(
      "radius_scaler",
      [](int64_t ks, float rfs, const std::string& shape) {
        return radius_scaler(ks, rfs, parse_shape(shape, "radius_scaler"));
      },
      nb::arg("kernel_size"), nb::arg("rfs") = 1.0f, nb::arg("shape") = "ball",
      "Radius of a kernel in units of the grid: the ball with the volume of kernel_size^3 rfs "
      "cells.");
  m.def("voxel_tap", &voxel_tap, nb::arg("offsets"), nb::arg("grid"), nb::arg("kernel_size"),
        Unlocked(),
        "(N, 3) offsets -> (N,) kernel cells: divided by grid, rounded half to even, clamped.");
  m.def(
      "radius_search",
      [](const mx::array& points, const mx::array& queries, float radius, const Array& lengths,
         const Array& query_lengths, const std::string& shape) {
        const Neighbors n =
            radius_search(PointSet(points, lengths, 1), PointSet(queries, query_lengths, 1), radius,
                          parse_shape(shape, "radius_search"));
        return std::make_tuple(n.rows, n.counts, n.distances);
      },
      nb::arg("points"), nb::arg("queries"), nb::arg("radius"), nb::arg("lengths") = nb::none(),
      nb::arg("query_lengths") = nb::none(), nb::kw_only(), nb::arg("shape") = "ball", Unlocked(),
      "(rows, counts, distances): points within the radius of each query, ascending, inclusive.");
  m.def(
      "clip_neighbors",
      [](const mx::array& rows, const mx::array& counts, const mx::array& distances, int64_t most) {
        const Neighbors n = clip_neighbors({rows, counts, distances}, most);
        return std::make_tuple(n.rows, n.counts, n.distances);
      },
      nb::arg("rows"), nb::arg("counts"), nb::arg("distances"), nb::arg("most"), Unlocked(),
      "(rows, counts, distances): of each query the `most` nearest at most, by (distance, row).");
  m.def("rulebook_from_triplets", &rulebook_from_triplets, nb::arg("i"), nb::arg("j"), nb::arg("k"),
        nb::kw_only(), nb::arg("n_out"), nb::arg("n_in"), nb::arg("n_kernels"), Unlocked(),
        "The rulebook of given edges in any order: target i, source j, kernel cell k.");
  m.def(
      "grid_downsample",
      [](const PointSet& points, float cell, const std::string& pick) {
        const Downsampled d = grid_downsample(points, cell, parse_pick(pick, "grid_downsample"));
        return std::make_tuple(d.points, d.indices, d.cell_of);
      },
      nb::arg("points"), nb::arg("cell"), nb::arg("pick") = "center_nearest", Unlocked(),
      "(PointSet, indices, cell_of): one point for each cell, by cloud, z, y, x; the rows picked; "
      "the cell of each "
      "row.");
  m.def(
      "build_rulebook",
      [](const PointSet& src, const PointSet& dst, int64_t ks, float rfs, const std::string& shape,
         std::optional<float> radius, bool allow_empty) {
        return build_rulebook(src, dst, ks, rfs, parse_shape(shape, "build_rulebook"), radius,
                              allow_empty);
      },
      nb::arg("source"), nb::arg("target"), nb::arg("kernel_size") = 3, nb::kw_only(),
      nb::arg("rfs") = 1.0f, nb::arg("shape") = "ball", nb::arg("radius") = nb::none(),
      nb::arg("allow_empty") = false, Unlocked(),
      "Edges from the source points near each target point to the cells of a kernel.");
  m.def(
      "build_partition_rulebook",
      [](const PointSet& src, float stride, int64_t ks) {
        const Partition p = build_partition_rulebook(src, stride, ks);
        return std::make_pair(p.rulebook, p.targets);
      },
      nb::arg("source"), nb::arg("stride"), nb::arg("kernel_size"), Unlocked(),
      "(Rulebook, PointSet): every point belongs to one target, the center of its cell of side "
      "stride * grid.");
  m.def(
      "build_full_cover_rulebook",
      [](const PointSet& src, float stride, int64_t ks, float margin) {
        const FullCover c = build_full_cover_rulebook(src, stride, ks, margin);
        return std::make_tuple(c.rulebook, c.targets, c.indices, c.n_added);
      },
      nb::arg("source"), nb::arg("stride"), nb::arg("kernel_size"), nb::arg("margin") = 1e-2f,
      Unlocked(),
      "(Rulebook, PointSet, indices, n_added): targets so that every point lies within grid * "
      "sqrt(3) / 2 * stride of "
      "one.");
  m.def(
      "build_generative_rulebook",
      [](const PointSet& src, int64_t ks, float expansion, const Array& stencil) {
        const Generated g = build_generative_rulebook(src, ks, expansion, stencil);
        return std::make_pair(g.rulebook, g.targets);
      },
      nb::arg("source"), nb::arg("kernel_size") = 3, nb::arg("expansion") = 1.0f, nb::kw_only(),
      nb::arg("stencil") = nb::none(), Unlocked(),
      "(Rulebook, PointSet): the voxels of side grid / expansion around the voxel of each point, "
      "one edge for each.");
  m.def(
      "build_subdivision_rulebook",
      [](const PointSet& src, int64_t expansion) {
        const Generated g = build_subdivision_rulebook(src, expansion);
        return std::make_pair(g.rulebook, g.targets);
      },
      nb::arg("source"), nb::arg("expansion") = 2, Unlocked(),
      "(Rulebook, PointSet): the expansion^3 parts of the voxel of each point.");
}

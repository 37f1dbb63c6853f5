// Coordinate sets and the operations on them. Arguments only.
#include "lattice/ops/coords.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"

namespace mx = mlx::core;
using namespace lattice;

namespace {

CoordsLike coords_like(nb::handle value, const char* operation, const char* argument) {
  if (nb::isinstance<CoordinateSet>(value)) return nb::cast<CoordinateSet>(value);
  if (nb::isinstance<mx::array>(value)) return nb::cast<mx::array>(value);
  throw TypeError("[" + std::string(operation) + "] " + argument +
                  " must be an mx.array or a CoordinateSet, got " +
                  nb::type_name(value.type()).c_str());
}

template <typename Result>
using OneSet = Result (*)(const CoordsLike&, mx::StreamOrDevice);
template <typename Result>
void def_one(nb::module_& m, const char* name, OneSet<Result> f, const char* doc) {
  m.def(
      name,
      [f, name](nb::handle coords, mx::StreamOrDevice s) {
        const CoordsLike set = coords_like(coords, name, "coords");
        return unlocked([&] { return f(set, s); });
      },
      nb::arg("coords"), nb::kw_only(), nb::arg("stream") = nb::none(), doc);
}

template <typename Result = mx::array>  // or CoordinateSet
void def_two(nb::module_& m, const char* name,
             mx::array (*f)(const CoordsLike&, const CoordsLike&, mx::StreamOrDevice),
             const char* first, const char* second, const char* doc) {
  m.def(
      name,
      [f, name, first, second](nb::handle a, nb::handle b, mx::StreamOrDevice s) {
        const CoordsLike lhs = coords_like(a, name, first), rhs = coords_like(b, name, second);
        return unlocked([&] {
          if constexpr (std::is_same_v<Result, CoordinateSet>)
            return CoordinateSet(f(lhs, rhs, s), name);
          else
            return f(lhs, rhs, s);
        });
      },
      nb::arg(first), nb::arg(second), nb::kw_only(), nb::arg("stream") = nb::none(), doc);
}

nb::object attribute_of_coords(const CoordinateSet& set, nb::handle name) {
  return nb::getattr(nb::cast(set.python_array()), name);
}

void bind_values(nb::module_& m) {
  nb::class_<CoordinateSet>(
      m, "CoordinateSet",
      "Coordinate rows with their sorted index, which is built once on first use.")
      .def(
          "__init__",
          [](CoordinateSet* self, const Given& coords) {
            Release release;
            new (self) CoordinateSet(*coords, "CoordinateSet");
          },
          nb::arg("coords"))
      .def_prop_ro("coords", &CoordinateSet::python_array)
      .def_prop_ro("dtype", &CoordinateSet::dtype)
      .def_prop_ro(
          "is_unique", [](const CoordinateSet& set) { return set.index()->duplicate < 0; },
          Unlocked())
      .def_prop_ro("nbytes", &CoordinateSet::nbytes)
      .def_prop_ro("capacity", &CoordinateSet::rows)
      .def_prop_ro("active_count", &CoordinateSet::rows)
      .def_prop_ro("active_rows",
                   [](const CoordinateSet& set) {
                     const auto rows = static_cast<int32_t>(set.rows());
                     return new_array(&rows, {1}, mx::int32);
                   })
      // An array in every other respect.
      .def("__mlx_array__", [](const CoordinateSet& set) { return set.python_array(); })
      .def(
          "__array__",
          [](const CoordinateSet& set, const nb::object& dtype, const nb::object&) {
            const nb::object array =
                nb::module_::import_("numpy").attr("array")(set.python_array());
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none())
      .def("__getitem__",
           [](const CoordinateSet& set, nb::handle index) {
             return nb::object(nb::cast(set.python_array())[index]);
           })
      .def("__iter__",
           [](const CoordinateSet& set) { return nb::iter(nb::cast(set.python_array())); })
      .def("__eq__",
           [](const CoordinateSet& set, nb::handle other) {
             const nb::object rhs =
                 nb::isinstance<CoordinateSet>(other)
                     ? nb::cast(nb::cast<const CoordinateSet&>(other).python_array())
                     : nb::borrow(other);
             return attribute_of_coords(set, nb::str("__eq__"))(rhs);
           })
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; })
      .def("__getattr__", &attribute_of_coords)
      .def("__len__", &CoordinateSet::rows)
      .def("__repr__", [](const CoordinateSet& set) {
        return "CoordinateSet(" + std::to_string(set.rows()) + " rows, " +
               (set.span().is64 ? "int64" : "int32") + ")";
      });
  nb::class_<CoordinateOrdering>(m, "CoordinateOrdering",
                                 "coords[p] = given[order[p]], given[r] = coords[inverse_rows[r]].")
      .def(
          "__init__",
          [](CoordinateOrdering* self, const Given& coords, const Given& order,
             const Given& inverse_rows) {
            new (self) CoordinateOrdering{*coords, *order, *inverse_rows};
          },
          nb::arg("coords"), nb::arg("order"), nb::arg("inverse_rows"))
      .def_ro("coords", &CoordinateOrdering::coords)
      .def_ro("order", &CoordinateOrdering::order)
      .def_ro("inverse_rows", &CoordinateOrdering::inverse_rows);
  nb::class_<SparseAlignment>(
      m, "SparseAlignment", "Row i joins lhs_rows[i] and rhs_rows[i]; -1 where that side has none.")
      .def(
          "__init__",
          [](SparseAlignment* self, const Given& coords, const Given& active_rows,
             const Given& lhs_rows, const Given& rhs_rows) {
            new (self) SparseAlignment{*coords, *active_rows, *lhs_rows, *rhs_rows};
          },
          nb::arg("coords"), nb::arg("active_rows"), nb::arg("lhs_rows"), nb::arg("rhs_rows"))
      .def_ro("coords", &SparseAlignment::coords)
      .def_ro("active_rows", &SparseAlignment::active_rows)
      .def_ro("lhs_rows", &SparseAlignment::lhs_rows)
      .def_ro("rhs_rows", &SparseAlignment::rhs_rows);
  nb::class_<SparseOccupancy>(
      m, "SparseOccupancy", "Parents with the mask of their children, and the parent of each row.")
      .def(
          "__init__",
          [](SparseOccupancy* self, const Given& coords, const Given& active_rows,
             const Given& occupancy, const std::optional<Given>& parent_rows,
             const std::optional<Given>& child_indices) {
            const mx::array none = new_array(nullptr, {0}, mx::int32);
            new (self) SparseOccupancy{*coords, *active_rows, *occupancy,
                                       parent_rows ? **parent_rows : none,
                                       child_indices ? **child_indices : none};
          },
          nb::arg("coords"), nb::arg("active_rows"), nb::arg("occupancy"),
          nb::arg("parent_rows") = nb::none(), nb::arg("child_indices") = nb::none())
      .def_ro("coords", &SparseOccupancy::coords)
      .def_ro("active_rows", &SparseOccupancy::active_rows)
      .def_ro("occupancy", &SparseOccupancy::occupancy)
      .def_ro("parent_rows", &SparseOccupancy::parent_rows)
      .def_ro("child_indices", &SparseOccupancy::child_indices);
  nb::class_<OccupancyExpansion>(m, "OccupancyExpansion", "Children by parent, then by bit.")
      .def(
          "__init__",
          [](OccupancyExpansion* self, const Given& coords, const Given& active_rows,
             const Given& parent_rows, const Given& child_indices) {
            new (self) OccupancyExpansion{*coords, *active_rows, *parent_rows, *child_indices};
          },
          nb::arg("coords"), nb::arg("active_rows"), nb::arg("parent_rows"),
          nb::arg("child_indices"))
      .def_ro("coords", &OccupancyExpansion::coords)
      .def_ro("active_rows", &OccupancyExpansion::active_rows)
      .def_ro("parent_rows", &OccupancyExpansion::parent_rows)
      .def_ro("child_indices", &OccupancyExpansion::child_indices);
}

}  // namespace

void bind_coords(nb::module_& m) {
  bind_values(m);
  nb::module_::import_("mlx.core");                        // the conversion needs its type
  nb::implicitly_convertible<CoordinateSet, mx::array>();  // accepted wherever an array is

  m.def(
      "downsample_coords",
      [](nb::handle coords, nb::handle stride, mx::StreamOrDevice s) {
        const CoordsLike set = coords_like(coords, "downsample_coords", "coords");
        const Triple by = triple(stride, "downsample_coords", "stride");
        return unlocked(
            [&] { return CoordinateSet(downsample_coords(set, by, s), "downsample_coords"); });
      },
      nb::arg("coords"), nb::arg("stride") = 2, nb::kw_only(), nb::arg("stream") = nb::none(),
      "Distinct floor(coords / stride), first seen first.");
  def_two<CoordinateSet>(m, "union_coords", union_coords, "lhs", "rhs",
                         "Distinct rows of either, first seen first, lhs before rhs.");
  def_two<CoordinateSet>(m, "intersection_coords", intersection_coords, "lhs", "rhs",
                         "Distinct lhs rows that rhs has, first seen first.");
  def_two<CoordinateSet>(m, "difference_coords", difference_coords, "lhs", "rhs",
                         "Distinct lhs rows that rhs lacks, first seen first.");
  def_two(m, "lookup_coords", lookup_coords, "coords", "queries",
          "The first row of coords equal to each query, or -1.");
  def_two(m, "contains_coords", contains_coords, "coords", "queries",
          "Whether coords has each query.");
  def_two(m, "inverse_map", inverse_map, "source", "target",
          "For each target row the first equal source row, or -1: shape (T,).");
  m.def(
      "build_sparse_alignment",
      [](nb::handle lhs, const std::optional<mx::array>& lhs_active, nb::handle rhs,
         const std::optional<mx::array>& rhs_active, std::string_view join, mx::StreamOrDevice s) {
        const CoordsLike a = coords_like(lhs, "build_sparse_alignment", "lhs"),
                         b = coords_like(rhs, "build_sparse_alignment", "rhs");
        const Join kind = parse_join(join, "build_sparse_alignment");
        return unlocked(
            [&] { return build_sparse_alignment(a, lhs_active, b, rhs_active, kind, s); });
      },
      nb::arg("lhs"), nb::arg("lhs_active").none(), nb::arg("rhs"), nb::arg("rhs_active").none(),
      nb::kw_only(), nb::arg("join") = "inner", nb::arg("stream") = nb::none(),
      "Joins two sets by value. inner, left: lhs order; right: rhs order; outer: lhs, then the rhs "
      "rows without "
      "partner.");
  def_one(m, "morton_codes", morton_codes,
          "int64 codes: x bit 0, y bit 1, z bit 2 of each triple, batch from bit 60.");
  def_one(m, "morton_order", morton_order, "Rows by batch, then along the Morton curve; stable.");
  def_one(m, "hilbert_order", hilbert_order,
          "Rows by batch, then along the Hilbert curve; stable.");
  def_one(m, "morton_sort_coords", morton_sort_coords,
          "The rows in Morton order, with the order and its inverse.");
  def_one(m, "occupancy_downsample", occupancy_downsample,
          "Parents floor(c / 2), first seen first, with child masks.");
  m.def(
      "occupancy_expand",
      [](nb::handle coords, const mx::array& occupancy, mx::StreamOrDevice s) {
        const CoordsLike set = coords_like(coords, "occupancy_expand", "coords");
        return unlocked([&] { return occupancy_expand(set, occupancy, s); });
      },
      nb::arg("coords"), nb::arg("occupancy"), nb::kw_only(), nb::arg("stream") = nb::none(),
      "The children that each parent's mask names, in ascending bit.");
  m.def(
      "child_coords_from_indices",
      [](nb::handle coords, const mx::array& parent_rows, const mx::array& child_indices,
         mx::StreamOrDevice s) {
        const CoordsLike set = coords_like(coords, "child_coords_from_indices", "coords");
        return unlocked(
            [&] { return child_coords_from_indices(set, parent_rows, child_indices, s); });
      },
      nb::arg("coords"), nb::arg("parent_rows"), nb::arg("child_indices"), nb::kw_only(),
      nb::arg("stream") = nb::none(),
      "Child child_indices[m], 0..7, of parent row parent_rows[m].");
}

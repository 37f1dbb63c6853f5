// Coordinate sets and the operations on them. Arguments only.
#include "lattice/ops/coords.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/arrays.h"

namespace mx = mlx::core;
using namespace lattice;
using namespace nb::literals;

namespace {

using Array = const mx::array&;
using Optional = const std::optional<mx::array>&;
using Set = const CoordsLike&;
using Stream = mx::StreamOrDevice;

nb::object attribute_of_coords(const CoordinateSet& set, nb::handle name) {
  return nb::getattr(nb::cast(set.python_array()), name);
}

// An array in every other respect.
void def_array_protocol(nb::class_<CoordinateSet>& c) {
  c.def("__mlx_array__", [](const CoordinateSet& set) { return set.python_array(); })
      .def(
          "__array__",
          [](const CoordinateSet& set, const nb::object& dtype, const nb::object&) {
            const nb::object array =
                nb::module_::import_("numpy").attr("array")(set.python_array());
            return dtype.is_none() ? array : array.attr("astype")(dtype);
          },
          "dtype"_a = nb::none(), "copy"_a = nb::none(),
          nb::sig("def __array__(self, dtype: object = None, copy: object = None) -> "
                  "numpy.typing.NDArray[numpy.signedinteger]"))
      .def(
          "__getitem__",
          [](const CoordinateSet& set, nb::handle index) {
            return nb::object(nb::cast(set.python_array())[index]);
          },
          nb::sig("def __getitem__(self, index: object, /) -> mlx.core.array"))
      .def(
          "__iter__",
          [](const CoordinateSet& set) { return nb::iter(nb::cast(set.python_array())); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[mlx.core.array]"))
      .def(
          "__eq__",
          [](const CoordinateSet& set, nb::handle other) {
            const nb::object rhs =
                nb::isinstance<CoordinateSet>(other)
                    ? nb::cast(nb::cast<const CoordinateSet&>(other).python_array())
                    : nb::borrow(other);
            return attribute_of_coords(set, nb::str("__eq__"))(rhs);
          },
          nb::sig("def __eq__(self, other: object, /) -> typing.Any"))
      .def("__getattr__", &attribute_of_coords,
           nb::sig("def __getattr__(self, name: str, /) -> typing.Any"));
}

void bind_set(nb::module_& m) {
  nb::class_<CoordinateSet> c(
      m, "CoordinateSet",
      R"(Coordinate rows (N, 4) with their sorted index, which is built once on first use.

Operations on sets return one. It is accepted wherever coordinates are, and has the attributes and
methods of its array.

>>> from mlx_lattice import core, ops
>>> found = ops.union_coords([[0, 0, 0, 0]], [[0, 0, 0, 0], [0, 5, 0, 0]])
>>> found, found.tolist()
(CoordinateSet(2 rows, int32), [[0, 0, 0, 0], [0, 5, 0, 0]]))");
  def_init(
      c, [](const mx::array& coords) { return CoordinateSet(coords, "CoordinateSet"); }, "coords"_a,
      Unlocked());
  c.def_prop_ro("coords", &CoordinateSet::python_array, "The rows, (N, 4).")
      .def_prop_ro("dtype", &CoordinateSet::dtype, "int32 or int64.")
      .def_prop_ro("is_unique", &CoordinateSet::is_unique, Unlocked(),
                   "Whether no coordinate appears twice.")
      .def_prop_ro("nbytes", &CoordinateSet::nbytes, "Bytes of the rows and of the index.")
      .def_prop_ro("capacity", &CoordinateSet::rows, "The number of rows.")
      .def_prop_ro("active_count", &CoordinateSet::rows, "The number of rows.")
      .def_prop_ro(
          "active_rows",
          [](const CoordinateSet& set) {
            const auto rows = static_cast<int32_t>(set.rows());
            return new_array(&rows, {1}, mx::int32);
          },
          "The number of rows as an array (1,).")
      .def("__hash__", [](nb::handle self) { return reinterpret_cast<intptr_t>(self.ptr()) >> 4; })
      .def("__len__", &CoordinateSet::rows)
      .def(
          "__reduce__",
          [](nb::handle self) {
            return nb::make_tuple(self.type(), nb::make_tuple(self.attr("coords")));
          },
          nb::sig("def __reduce__(self) -> tuple[typing.Any, ...]"))
      .def("__deepcopy__",  // otherwise that of the array is found
           [](const CoordinateSet& set, nb::handle) {
             return CoordinateSet(set.array(), "CoordinateSet");
           })
      .def("__repr__", [](const CoordinateSet& set) {
        return "CoordinateSet(" + std::to_string(set.rows()) + " rows, " +
               (set.dtype() == mx::int64 ? "int64" : "int32") + ")";
      });
  def_array_protocol(c);
}

void bind_values(nb::module_& m) {
  nb::class_<CoordinateOrdering> ordering(
      m, "CoordinateOrdering",
      "Rows in another order: coords[p] = given[order[p]] and given[r] = coords[inverse_rows[r]].");
  def_init(
      ordering,
      [](Array coords, Array order, Array inverse) {
        return CoordinateOrdering{coords, order, inverse};
      },
      "coords"_a, "order"_a, "inverse_rows"_a);
  ordering.def_ro("coords", &CoordinateOrdering::coords)
      .def_ro("order", &CoordinateOrdering::order)
      .def_ro("inverse_rows", &CoordinateOrdering::inverse_rows);
  def_row_counts(ordering);
  nb::class_<SparseAlignment> alignment(
      m, "SparseAlignment",
      "Row i of a join has rows lhs_rows[i] and rhs_rows[i]; -1 where that side has none.");
  def_init(
      alignment,
      [](Array coords, Array active, Array lhs, Array rhs) {
        return SparseAlignment{coords, active, lhs, rhs};
      },
      "coords"_a, "active_rows"_a, "lhs_rows"_a, "rhs_rows"_a);
  alignment.def_ro("coords", &SparseAlignment::coords)
      .def_ro("active_rows", &SparseAlignment::active_rows)
      .def_ro("lhs_rows", &SparseAlignment::lhs_rows)
      .def_ro("rhs_rows", &SparseAlignment::rhs_rows);
  def_row_counts(alignment);
}

void bind_occupancy(nb::module_& m) {
  const mx::array none = new_array(nullptr, {0}, mx::int32);
  nb::class_<SparseOccupancy> occupancy(
      m, "SparseOccupancy",
      "Parents with the mask of their children, and for each child its parent row and its bit.");
  def_init(
      occupancy,
      [none](Array coords, Array active, Array masks, Optional parents, Optional children) {
        return SparseOccupancy{coords, active, masks, parents.value_or(none),
                               children.value_or(none)};
      },
      "coords"_a, "active_rows"_a, "occupancy"_a, "parent_rows"_a = nb::none(),
      "child_indices"_a = nb::none());
  occupancy.def_ro("coords", &SparseOccupancy::coords)
      .def_ro("active_rows", &SparseOccupancy::active_rows)
      .def_ro("occupancy", &SparseOccupancy::occupancy)
      .def_ro("parent_rows", &SparseOccupancy::parent_rows)
      .def_ro("child_indices", &SparseOccupancy::child_indices);
  def_row_counts(occupancy);
  nb::class_<OccupancyExpansion> expansion(
      m, "OccupancyExpansion", "Children by parent, then by bit, with both numbers of each.");
  def_init(
      expansion,
      [](Array coords, Array active, Array parents, Array children) {
        return OccupancyExpansion{coords, active, parents, children};
      },
      "coords"_a, "active_rows"_a, "parent_rows"_a, "child_indices"_a);
  expansion.def_ro("coords", &OccupancyExpansion::coords)
      .def_ro("active_rows", &OccupancyExpansion::active_rows)
      .def_ro("parent_rows", &OccupancyExpansion::parent_rows)
      .def_ro("child_indices", &OccupancyExpansion::child_indices);
  def_row_counts(expansion);
}

template <typename Result>
void def_one(nb::module_& m, const char* name, Result (*f)(Set, Stream)) {
  def(m, name, f, "coords"_a, "stream"_a, Unlocked());
}

using TwoSets = mx::array (*)(Set, Set, Stream);
void def_two(nb::module_& m, const char* name, TwoSets f, const char* first, const char* second) {
  def(m, name, f, nb::arg(first), nb::arg(second), "stream"_a, Unlocked());
}

void def_set_of_two(nb::module_& m, const char* name, TwoSets f) {
  def(
      m, name, [f, name](Set a, Set b, Stream s) { return CoordinateSet(f(a, b, s), name); },
      "lhs"_a, "rhs"_a, "stream"_a, Unlocked());
}

}  // namespace

void bind_coords(nb::module_& m) {
  bind_set(m);
  bind_values(m);
  bind_occupancy(m);
  nb::module_::import_("mlx.core");                        // the conversion needs its type
  nb::implicitly_convertible<CoordinateSet, mx::array>();  // accepted wherever an array is

  def(
      m, "downsample_coords",
      [](Set coords, const Triple& stride, Stream s) {
        return CoordinateSet(downsample_coords(coords, stride, s), "downsample_coords");
      },
      "coords"_a, "stride"_a, "stream"_a, Unlocked());
  def_set_of_two(m, "union_coords", union_coords);
  def_set_of_two(m, "intersection_coords", intersection_coords);
  def_set_of_two(m, "difference_coords", difference_coords);
  def_two(m, "lookup_coords", lookup_coords, "coords", "queries");
  def_two(m, "contains_coords", contains_coords, "coords", "queries");
  def_two(m, "inverse_map", inverse_map, "source", "target");
  def(
      m, "build_sparse_alignment",
      [](Set lhs, const std::optional<mx::array>& lhs_active, Set rhs,
         const std::optional<mx::array>& rhs_active, std::string_view join, Stream s) {
        const Join kind = parse_join(join, "build_sparse_alignment");
        return build_sparse_alignment(lhs, lhs_active, rhs, rhs_active, kind, s);
      },
      "lhs_coords"_a, "lhs_active_rows"_a, "rhs_coords"_a, "rhs_active_rows"_a, "join"_a,
      "stream"_a, Unlocked());
  def_one(m, "morton_codes", morton_codes);
  def_one(m, "morton_order", morton_order);
  def_one(m, "hilbert_order", hilbert_order);
  def_one(m, "morton_sort_coords", morton_sort_coords);
  def_one(m, "occupancy_downsample", occupancy_downsample);
  def(m, "occupancy_expand", &occupancy_expand, "parent_coords"_a, "occupancy"_a, "stream"_a,
      Unlocked());
  def(m, "child_coords_from_indices", &child_coords_from_indices, "parent_coords"_a,
      "parent_rows"_a, "child_indices"_a, "stream"_a, Unlocked());
}

// SparseTensor and SparseTensorComponents.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/dense.h"
#include "lattice/core/sparse_tensor.h"
#include "lattice/ops/algebra.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Parts = SparseTensorComponents;

std::optional<BatchCounts> batch_counts(nb::handle value) {
  if (value.is_none()) return std::nullopt;
  return integers(value, "SparseTensor", "batch_counts");
}

nb::object counts_tuple(const std::optional<BatchCounts>& counts) {
  if (!counts) return nb::none();
  nb::list out;
  for (int64_t n : *counts) out.append(n);
  return nb::tuple(out);
}

Parts parts(const mx::array& coords, const mx::array& feats, nb::handle stride,
            const std::optional<CoordinateMapKey>& key, ManagerPtr manager, nb::handle counts,
            const std::optional<mx::array>& active_rows) {
  return {coords,
          feats,
          triple(stride, "SparseTensor", "stride"),
          batch_counts(counts),
          active_rows,
          key,
          std::move(manager)};
}

nb::tuple zipped(const SparseTensor& t) {
  return nb::make_tuple(t.decomposed_coordinates(), t.decomposed_features());
}

void bind_components(nb::module_& m) {
  nb::class_<Parts>(m, "SparseTensorComponents", "What a SparseTensor is made of, as plain data.")
      .def(
          "__init__",
          [](Parts* self, nb::object coords, nb::object feats, nb::object stride,
             const std::optional<CoordinateMapKey>& key, ManagerPtr manager, nb::object counts,
             const std::optional<mx::array>& active_rows) {
            const char* name = "SparseTensorComponents";
            new (self) Parts(parts(array(coords, name, "coords"), array(feats, name, "feats"),
                                   stride, key, std::move(manager), counts, active_rows));
          },
          "coords"_a, "feats"_a, "stride"_a = 1, nb::kw_only(), "coord_key"_a = nb::none(),
          "coord_manager"_a = nb::none(), "batch_counts"_a = nb::none(),
          "active_rows"_a = nb::none())
      .def_prop_ro("coords", [](const Parts& p) { return mx::array(p.coords); })
      .def_prop_ro("feats", [](const Parts& p) { return mx::array(p.feats); })
      .def_prop_ro("stride", [](const Parts& p) { return to_python(p.stride); })
      .def_prop_ro("batch_counts", [](const Parts& p) { return counts_tuple(p.batch_counts); })
      .def_prop_ro("active_rows",
                   [](const Parts& p) { return std::optional<mx::array>(p.active_rows); })
      .def_prop_ro("coord_key", [](const Parts& p) { return p.coord_key; })
      .def_prop_ro("coord_manager", [](const Parts& p) { return p.coord_manager; });
}

}  // namespace

void bind_tensor(nb::module_& m) {
  bind_components(m);
  nb::class_<SparseTensor> c(
      m, "SparseTensor",
      "Feature rows at lattice coordinates (batch, x, y, z). Immutable; features stay lazy.");
  c.def(
      "__init__",
      [](SparseTensor* self, nb::object coords, nb::object feats, nb::object stride,
         const std::optional<CoordinateMapKey>& key, ManagerPtr manager, nb::object counts,
         const std::optional<mx::array>& active_rows) {
        const Parts p =
            parts(array(coords, "SparseTensor", "coords"), array(feats, "SparseTensor", "feats"),
                  stride, key, std::move(manager), counts, active_rows);
        Release release;
        new (self) SparseTensor(SparseTensor::from_components(p));
      },
      "coords"_a, "feats"_a, "stride"_a = 1, nb::kw_only(), "coord_key"_a = nb::none(),
      "coord_manager"_a = nb::none(), "batch_counts"_a = nb::none(), "active_rows"_a = nb::none());
  c.def_prop_ro("coords", [](const SparseTensor& t) { return t.coordinate_set().python_array(); })
      .def_prop_ro("feats", [](const SparseTensor& t) { return mx::array(t.feats()); })
      .def_prop_ro("stride", [](const SparseTensor& t) { return to_python(t.stride()); })
      .def_prop_ro("coord_key", [](const SparseTensor& t) { return t.coord_key(); })
      .def_prop_ro("coord_manager", [](const SparseTensor& t) { return t.coord_manager(); })
      .def_prop_ro("batch_counts",
                   [](const SparseTensor& t) { return counts_tuple(t.batch_counts()); })
      .def_prop_ro("active_rows", &SparseTensor::active_rows)
      .def_prop_ro("capacity", &SparseTensor::capacity)
      .def_prop_ro("active_count", &SparseTensor::active_count)
      .def_prop_ro("channels", &SparseTensor::channels)
      .def_prop_ro("shape",
                   [](const SparseTensor& t) { return nb::make_tuple(t.capacity(), t.channels()); })
      .def_prop_ro("dtype", &SparseTensor::dtype)
      .def_prop_ro("batch_size", &SparseTensor::batch_size)
      .def_prop_ro("batch_indices", &SparseTensor::batch_indices)
      .def_prop_ro("batch_rows", &SparseTensor::batch_rows)
      .def_prop_ro("decomposed_coordinates", &SparseTensor::decomposed_coordinates)
      .def_prop_ro("decomposed_features", &SparseTensor::decomposed_features)
      .def_prop_ro("decomposed_coordinates_and_features", &zipped)
      .def("with_feats", &SparseTensor::with_feats, "feats"_a, "Other features, same coordinates.")
      .def("astype", &SparseTensor::astype, "dtype"_a)
      .def(
          "replace",
          [](const SparseTensor& t, const std::optional<mx::array>& coords,
             const std::optional<mx::array>& feats, nb::object stride) {
            std::optional<Triple> step;
            if (!stride.is_none()) step = triple(stride, "SparseTensor.replace", "stride");
            Release release;
            return t.replace(coords, feats, step);
          },
          nb::kw_only(), "coords"_a = nb::none(), "feats"_a = nb::none(), "stride"_a = nb::none(),
          "Feats alone keep the identity of the coordinates.")
      .def("reuse_coords_from", &SparseTensor::reuse_coords_from, "other"_a,
           "These features on the other's coordinates, row by row.")
      .def("same_coords", &SparseTensor::same_coords, "other"_a,
           "True when manager and key are the same.")
      .def("sorted", &SparseTensor::sorted, Unlocked(),
           "(tensor with rows by (batch, x, y, z), row of each before)")
      .def("export_components", &SparseTensor::export_components)
      .def_static(
          "from_components",
          [](Parts components, const ManagerPtr& manager) {
            if (manager && manager != components.coord_manager) {
              components.coord_manager = manager;
              if (components.coord_key && !manager->owns(*components.coord_key))
                components.coord_key.reset();
            }
            return SparseTensor::from_components(components);
          },
          "components"_a, nb::kw_only(), "coord_manager"_a = nb::none(), Unlocked(),
          "coord_manager: where the coordinates go, instead of the components' own manager.")
      .def(
          "to_dense",
          [](const SparseTensor& t, nb::object shape, nb::object min_coord, mx::StreamOrDevice s) {
            std::optional<std::vector<int64_t>> sizes;
            std::optional<Triple> lowest;
            if (!shape.is_none()) sizes = integers(shape, "to_dense", "shape");
            if (!min_coord.is_none()) lowest = triple(min_coord, "to_dense", "min_coord");
            Release release;
            return to_dense(t, sizes, lowest, s);
          },
          "shape"_a = nb::none(), "min_coord"_a = nb::none(), nb::kw_only(),
          "stream"_a = nb::none(),
          "(B, X, Y, Z, C). shape: X Y Z, or B X Y Z, or B X Y Z C; min_coord: the coordinate of "
          "cell 0, default 0.")
      .def_static(
          "from_dense",
          [](const mx::array& dense, const std::optional<mx::array>& mask, nb::object stride,
             nb::object min_coord, mx::StreamOrDevice s) {
            const Triple step = triple(stride, "from_dense", "stride");
            const Triple lowest = triple(min_coord, "from_dense", "min_coord");
            Release release;
            return from_dense(dense, mask, step, lowest, s);
          },
          "array"_a, nb::kw_only(), "mask"_a = nb::none(), "stride"_a = 1, "min_coord"_a = 0,
          "stream"_a = nb::none(),
          "Rows for the cells of (B, X, Y, Z, C) where mask is true, else where a channel is not "
          "0.")
      .def(
          "__add__",
          [](const SparseTensor& a, const SparseTensor& b) {
            return sparse_binary(a, b, BinaryOp::add, Join::outer);
          },
          nb::is_operator(), Unlocked())
      .def(
          "__sub__",
          [](const SparseTensor& a, const SparseTensor& b) {
            return sparse_binary(a, b, BinaryOp::sub, Join::outer);
          },
          nb::is_operator(), Unlocked())
      .def(
          "__mul__",
          [](const SparseTensor& a, const SparseTensor& b) {
            return sparse_binary(a, b, BinaryOp::mul, Join::inner);
          },
          nb::is_operator(), Unlocked())
      .def(
          "__and__",
          [](const SparseTensor& a, const SparseTensor& b) {
            return sparse_binary(a, b, BinaryOp::mul, Join::inner);
          },
          nb::is_operator(), Unlocked())
      .def("__repr__", &SparseTensor::text)
      .def("__copy__", [](nb::handle self) { return nb::borrow(self); })
      .def("__deepcopy__", [](nb::handle self, nb::handle) { return nb::borrow(self); })
      .def("__getstate__",
           [](const SparseTensor& t) {
             return nb::make_tuple(mx::array(t.coords()), mx::array(t.feats()),
                                   to_python(t.stride()), counts_tuple(t.batch_counts()));
           })
      .def("__setstate__", [](SparseTensor& t, nb::tuple state) {
        if (state.size() != 4 || !nb::isinstance<mx::array>(state[0]) ||
            !nb::isinstance<mx::array>(state[1]))
          throw std::invalid_argument(
              "[SparseTensor] state must be (coords, feats, stride, batch_counts) with two arrays, "
              "found " +
              std::string(nb::repr(nb::object(state).type()).c_str()) + " of " +
              std::to_string(state.size()) + " items; the pickle is damaged or of another version");
        const Parts p = parts(nb::cast<mx::array>(state[0]), nb::cast<mx::array>(state[1]),
                              state[2], std::nullopt, nullptr, state[3], std::nullopt);
        new (&t) SparseTensor(SparseTensor::from_components(p));
      });
}

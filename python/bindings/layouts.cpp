// Who attends to whom: orders along curves, layouts of slots, blocks that are pooled. Arguments
// only.
#include "lattice/ops/layouts.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"

using namespace lattice;
using namespace nb::literals;

namespace {

CoordsLike coords_of(nb::handle value, const char* operation, const char* argument) {
  if (nb::isinstance<CoordinateSet>(value)) return nb::cast<CoordinateSet>(value);
  return array(value, operation, argument);
}

LayoutSource source(nb::handle value, const char* operation) {
  if (nb::isinstance<SparseTensor>(value)) return nb::cast<SparseTensor>(value);
  return coords_of(value, operation, "x");
}

std::optional<int64_t> depth_of(nb::handle value, const char* operation) {
  if (value.is_none()) return std::nullopt;
  return integer(value, operation, "depth");
}

mx::array cluster_of(const GridPooling& pooling) {
  const RowGroups& groups = *pooling.clusters;
  return new_array(groups.group_of(), {static_cast<int>(groups.n_rows())}, mx::int32);
}

void bind_values(nb::module_& m) {
  nb::class_<AttentionLayout>(m, "AttentionLayout",
                              "Segments of slots, and the row that each slot reads.")
      .def_prop_ro("rows", [](const AttentionLayout& l) { return private_copy(l.rows()); })
      .def_prop_ro("slots", [](const AttentionLayout& l) { return private_copy(l.slots()); })
      .def_prop_ro("offsets", [](const AttentionLayout& l) { return private_copy(l.offsets()); })
      .def_prop_ro("positions",
                   [](const AttentionLayout& l) { return private_copy(l.positions()); })
      .def_prop_ro("n_rows", &AttentionLayout::n_rows)
      .def_prop_ro("n_slots", &AttentionLayout::n_slots)
      .def_prop_ro("n_segments", &AttentionLayout::n_segments)
      .def_prop_ro("length", &AttentionLayout::length)
      .def_prop_ro("nbytes", &AttentionLayout::nbytes)
      .def("__repr__", &AttentionLayout::text);
  nb::class_<GridPooling>(m, "GridPooling", "Blocks of cells that become one row each.")
      .def_prop_ro("cluster", &cluster_of)
      .def_prop_ro("n_in", [](const GridPooling& p) { return p.clusters->n_rows(); })
      .def_prop_ro("n_out", [](const GridPooling& p) { return p.clusters->n_groups(); })
      .def_ro("in_key", &GridPooling::in)
      .def_ro("out_key", &GridPooling::out)
      .def("__repr__", [](const GridPooling& p) {
        return "GridPooling(" + std::to_string(p.clusters->n_rows()) + " rows -> " +
               std::to_string(p.clusters->n_groups()) + ")";
      });
}

}  // namespace

void bind_layouts(nb::module_& m) {
  bind_values(m);
  m.def(
      "curve_codes",
      [](nb::object coords, std::string_view order, nb::object depth) {
        const CoordsLike set = coords_of(coords, "curve_codes", "coords");
        const Curve curve = parse_curve(order, "curve_codes");
        const auto bits = depth_of(depth, "curve_codes");
        return unlocked([&] { return curve_codes(set, curve, bits); });
      },
      "coords"_a, "order"_a = "z", nb::kw_only(), "depth"_a = nb::none(),
      "int64 codes: the batch above the place along the curve.");
  m.def(
      "curve_sort_coords",
      [](nb::object coords, std::string_view order, nb::object depth) {
        const CoordsLike set = coords_of(coords, "curve_sort_coords", "coords");
        const Curve curve = parse_curve(order, "curve_sort_coords");
        const auto bits = depth_of(depth, "curve_sort_coords");
        return unlocked([&] { return curve_sort_coords(set, curve, bits); });
      },
      "coords"_a, "order"_a = "z", nb::kw_only(), "depth"_a = nb::none(),
      "The rows by batch, then along the curve, with the order and its inverse; stable.");
  m.def(
      "attention_patches",
      [](nb::object x, nb::object size, std::string_view order, bool shrink) {
        const LayoutSource from = source(x, "attention_patches");
        const int64_t length = integer(size, "attention_patches", "size");
        const Curve curve = parse_curve(order, "attention_patches");
        return unlocked([&] { return attention_patches(from, length, curve, shrink); });
      },
      "x"_a, "size"_a, "order"_a = "z", nb::kw_only(), "shrink"_a = false,
      "Patches of a fixed size along a curve; the last patch of a cloud borrows rows.");
  m.def(
      "attention_windows",
      [](nb::object x, nb::object size, nb::object shift) {
        const LayoutSource from = source(x, "attention_windows");
        const Triple sizes = triple(size, "attention_windows", "size");
        const Triple shifts = triple(shift, "attention_windows", "shift");
        return unlocked([&] { return attention_windows(from, sizes, shifts); });
      },
      "x"_a, "size"_a, "shift"_a = 0, "Windows of size cells per axis; 0 is the whole axis.");
  m.def(
      "to_slots",
      [](const mx::array& feats, const AttentionLayout::Ptr& layout, std::optional<int64_t> parts,
         mx::StreamOrDevice s) -> std::variant<mx::array, std::vector<mx::array>> {
        std::vector<mx::array> made =
            unlocked([&] { return to_slots(feats, layout, parts.value_or(1), s); });
        if (parts) return made;
        return made[0];
      },
      "feats"_a, "layout"_a, nb::kw_only(), "parts"_a = nb::none(), "stream"_a = nb::none(),
      "The row of each slot: (N, C) -> (S, C); or `parts` arrays of C / parts columns each.");
  m.def("to_rows", &to_rows, "feats"_a, "layout"_a, nb::kw_only(), "stream"_a = nb::none(),
        "The own slot of each row: (S, C) -> (N, C).");
  m.def(
      "grid_pooling",
      [](const SparseTensor& x, nb::object stride, std::string_view order) {
        const int64_t by = integer(stride, "grid_pooling", "stride");
        const Curve curve = parse_curve(order, "grid_pooling");
        return unlocked([&] { return grid_pooling(x, by, curve); });
      },
      "x"_a, "stride"_a = 2, "order"_a = "z",
      "Blocks of stride cells per axis, sorted along a curve; the manager of x keeps them.");
  m.def(
      "grid_pool",
      [](const SparseTensor& x, const GridPooling::Ptr& pooling, std::string_view mode,
         mx::StreamOrDevice s) {
        const Reduction reduction = parse_reduction(mode, "grid_pool", "mode");
        return unlocked([&] { return grid_pool(x, pooling, reduction, s); });
      },
      "x"_a, "pooling"_a, "mode"_a = "max", nb::kw_only(), "stream"_a = nb::none(),
      "max, mean or sum of the rows of each block.");
  m.def("grid_unpool", &grid_unpool, "feats"_a, "pooling"_a, nb::kw_only(), "stream"_a = nb::none(),
        "The row of its block for each fine row: (M, C) -> (N, C).");
}

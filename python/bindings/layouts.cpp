// Layouts of attention: orders along curves, layouts of slots, blocks that are pooled. Arguments
// only.
#include "lattice/ops/layouts.h"

#include "arguments.h"
#include "bind.h"
#include "lattice/core/arrays.h"
#include "lattice/core/row_groups.h"
#include "lattice/ops/reduce_rows.h"

using namespace lattice;
using namespace nb::literals;

template <>
struct Argument<LayoutSource> {
  static constexpr auto Name = nb::detail::const_name("SparseTensor | ArrayLike");
  static LayoutSource from(nb::handle value, At at) {
    if (const auto* tensor = instance<SparseTensor>(value)) return *tensor;
    return coords_like(value, at);
  }
};

namespace {

using Depth = const std::optional<int64_t>&;
using Stream = mx::StreamOrDevice;
using Text = std::string_view;

mx::array cluster_of(const GridPooling& pooling) {
  const RowGroups& groups = *pooling.clusters;
  return new_array(groups.group_of(), {static_cast<int>(groups.n_rows())}, mx::int32);
}

void bind_values(nb::module_& m) {
  nb::class_<AttentionLayout>(
      m, "AttentionLayout",
      "Segments of slots, and the row that each slot reads; see `attention_patches`.")
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
  def(
      m, "curve_codes",
      [](const CoordsLike& coords, Text order, Depth depth) {
        return curve_codes(coords, parse_curve(order, "curve_codes"), depth);
      },
      "coords"_a, "order"_a, "depth"_a, Unlocked());
  def(
      m, "curve_sort_coords",
      [](const CoordsLike& coords, Text order, Depth depth) {
        return curve_sort_coords(coords, parse_curve(order, "curve_sort_coords"), depth);
      },
      "coords"_a, "order"_a, "depth"_a, Unlocked());
  def(
      m, "attention_patches",
      [](const LayoutSource& x, int64_t size, Text order, bool shrink, Depth depth) {
        return attention_patches(x, size, parse_curve(order, "attention_patches"), shrink, depth);
      },
      "x"_a, "size"_a, "order"_a, "shrink"_a, "depth"_a, Unlocked());
  def(
      m, "attention_windows",
      [](const LayoutSource& x, const Triple& size, const Triple& shift) {
        return attention_windows(x, size, shift);
      },
      "x"_a, "size"_a, "shift"_a, Unlocked());
  def(
      m, "to_slots",
      [](const mx::array& feats, const AttentionLayout::Ptr& layout, int64_t parts, Stream s) {
        return to_slots(feats, layout, parts, s);
      },
      "feats"_a, "layout"_a, "parts"_a, "stream"_a, Unlocked());
  def(m, "to_rows", &to_rows, "feats"_a, "layout"_a, "stream"_a);
  def(
      m, "grid_pooling",
      [](const SparseTensor& x, int64_t stride, Text order, Depth depth) {
        if (order == "lexicographic") return grid_pooling(x, stride, std::nullopt, depth);
        return grid_pooling(x, stride, parse_curve(order, "grid_pooling"), depth);
      },
      "x"_a, "stride"_a, "order"_a, "depth"_a, Unlocked());
  def(
      m, "grid_pool",
      [](const SparseTensor& x, const GridPooling::Ptr& pooling, Text mode, Stream s) {
        return grid_pool(x, pooling, parse_reduction(mode, "grid_pool", "mode"), s);
      },
      "x"_a, "pooling"_a, "mode"_a, "stream"_a, Unlocked());
  def(m, "grid_unpool", &grid_unpool, "feats"_a, "pooling"_a, "stream"_a);
}

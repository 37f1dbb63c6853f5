#include "lattice/ops/layouts.h"

#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/layouts.h"
#include "lattice/ops/check.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/map_rows.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/ops/relations.h"

namespace lattice {
namespace {

using cpu::Buffer;

// The bits per axis that were asked for; -1 for as many as the coordinates need.
int64_t wanted(const std::optional<int64_t>& depth, std::string_view operation) {
  if (depth && *depth < 0)
    fail(operation, "depth must be at least 0, got " + std::to_string(*depth));
  return depth.value_or(-1);
}

AttentionLayout::Ptr layout_of(const LayoutSource& x, const LayoutSpec& spec,
                               std::string_view operation) {
  if (const auto* tensor = std::get_if<SparseTensor>(&x))
    return tensor->coord_manager()->layout(tensor->coord_key(), spec, operation);
  return AttentionLayout::make(std::get<CoordsLike>(x).set(operation), spec, operation);
}

}  // namespace

mx::array curve_codes(const CoordsLike& coords, Curve curve, std::optional<int64_t> depth) {
  const CoordinateSet set = coords.set("curve_codes");
  Buffer<int64_t> codes = cpu::curve_codes(
      set.span(), curve, frame_of(set, wanted(depth, "curve_codes"), "curve_codes"));
  return adopt(std::move(codes));
}

CoordinateOrdering curve_sort_coords(const CoordsLike& coords, Curve curve,
                                     std::optional<int64_t> depth) {
  constexpr std::string_view op = "curve_sort_coords";
  const CoordinateSet set = coords.set(op);
  cpu::CurveOrder order = cpu::curve_order(set.span(), curve, frame_of(set, wanted(depth, op), op));
  const int n = static_cast<int>(order.rows.size());
  Buffer<int32_t> inverse(n);
  for (int64_t p = 0; p < n; ++p) inverse[order.rows[p]] = static_cast<int32_t>(p);
  Buffer<std::byte> sorted(int64_t{n} * 4 * (set.span().is64 ? 8 : 4));
  cpu::take_rows(set.span(), order.rows.span(), sorted.data());
  return {adopt(std::move(sorted), {n, 4}, set.dtype()), adopt(std::move(order.rows), {n}),
          adopt(std::move(inverse), {n})};
}

AttentionLayout::Ptr attention_patches(const LayoutSource& x, int64_t size, Curve curve,
                                       bool shrink, std::optional<int64_t> depth) {
  constexpr std::string_view op = "attention_patches";
  LayoutSpec spec = LayoutSpec::patches(size, curve, shrink, op);
  spec.depth = wanted(depth, op);
  return layout_of(x, spec, op);
}

AttentionLayout::Ptr attention_windows(const LayoutSource& x, const Triple& size,
                                       const Triple& shift) {
  constexpr std::string_view op = "attention_windows";
  return layout_of(x, LayoutSpec::windows(size, shift, op), op);
}

std::vector<mx::array> to_slots(const mx::array& feats, const AttentionLayout::Ptr& layout,
                                int64_t parts, mx::StreamOrDevice s) {
  if (parts == 1) return {map_rows(feats, layout->to_slots(), "to_slots", "feats", s)};
  check_features("to_slots", "feats", feats, layout->n_rows());
  if (parts < 1 || feats.shape(1) % parts != 0)
    fail("to_slots", "parts must be at least 1 and divide " + std::to_string(feats.shape(1)) +
                         " channels, got " + std::to_string(parts));
  const int width = feats.shape(1) / static_cast<int>(parts);
  std::vector<mx::array> made;
  for (int part = 0; part < parts; ++part)
    made.push_back(map_rows(take_columns(feats, part * width, width, s), layout->to_slots(),
                            "to_slots", "feats", s));
  return made;
}

mx::array to_rows(const mx::array& feats, const AttentionLayout::Ptr& layout,
                  mx::StreamOrDevice s) {
  return map_rows(feats, layout->to_rows(), "to_rows", "feats", s);
}

GridPooling::Ptr grid_pooling(const SparseTensor& x, int64_t stride, std::optional<Curve> curve,
                              std::optional<int64_t> depth) {
  constexpr std::string_view op = "grid_pooling";
  return x.coord_manager()->pooling(x.coord_key(),
                                    PoolingSpec::make(stride, curve, wanted(depth, op), op), op);
}

SparseTensor grid_pool(const SparseTensor& x, const GridPooling::Ptr& pooling, Reduction mode,
                       mx::StreamOrDevice s) {
  if (x.coord_key() != pooling->in)
    fail("grid_pool",
         "x must lie on the coordinates that the pooling was made of; call "
         "grid_pooling on a tensor with x's coordinates");
  return result_on(x, pooling->out, reduce_rows(x.feats(), pooling->clusters, mode, s));
}

mx::array grid_unpool(const mx::array& feats, const GridPooling::Ptr& pooling,
                      mx::StreamOrDevice s) {
  check_features("grid_unpool", "feats", feats, pooling->clusters->n_groups());
  return gather_rows(feats, pooling->clusters, 0, s);
}

}  // namespace lattice

// Rulebooks that make their own targets (partition, full cover, generation), and reversed
// rulebooks.
#include <algorithm>
#include <numbers>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/geometry/full_cover.h"
#include "lattice/kernels/cpu/geometry/generate.h"
#include "lattice/ops/rulebook.h"
#include "lattice/ops/rulebook_parts.h"

namespace lattice {

using namespace rulebook_parts;

Partition build_partition_rulebook(const PointSet& src, float stride, int64_t ks) {
  constexpr const char* kName = "build_partition_rulebook";
  check_kernel(kName, ks);
  check_stride(kName, stride);
  const float cell = src.grid() * stride;
  Downsampled down = grid_downsample(src, cell, GridPick::center);
  const int n = static_cast<int>(src.size());
  cpu::Buffer<int32_t> rows(n), taps(n);
  const float* xyz = n ? src.positions().data<float>() : nullptr;
  for (int64_t r = 0; r < n; ++r) {
    rows[r] = static_cast<int32_t>(r);
    int64_t k = 0;
    for (int a = 0; a < 3; ++a) {
      const float at = xyz[r * 3 + a] / cell, part = at - std::floor(at);
      k = k * ks +
          std::clamp<int64_t>(static_cast<int64_t>(part * static_cast<float>(ks)), 0, ks - 1);
    }
    taps[r] = static_cast<int32_t>(k);
  }
  const Relation::Ptr relation =
      Relation::from_edges(adopt(std::move(rows)), down.cell_of, adopt(std::move(taps)), n,
                           down.points.size(), ks * ks * ks);
  return {{relation, ks, cell, src.grid()}, down.points};
}

FullCover build_full_cover_rulebook(const PointSet& src, float stride, int64_t ks, float margin) {
  constexpr const char* kName = "build_full_cover_rulebook";
  check_kernel(kName, ks);
  check_stride(kName, stride);
  if (!(margin >= 0) || !std::isfinite(margin))
    fail(kName, "margin must be >= 0, got " + std::to_string(margin));
  const double reach =
      std::numbers::sqrt3 / 2 * double{stride} * (1 + double{margin});  // radius / grid
  if (const double least = 2 * std::ceil(reach) + 1; double(ks) < least)
    fail(kName, "kernel_size must be at least " + std::to_string(static_cast<int64_t>(least)) +
                    " at stride " + std::to_string(stride) +
                    ", so that no offset is clamped, got " + std::to_string(ks));
  const float radius = static_cast<float>(double{src.grid()} * reach), cell = src.grid() * stride;
  const Downsampled down = grid_downsample(src, cell);
  cpu::Cover cover = named(kName, [&] {
    return cpu::cover_points(span_of(src), src.size() ? down.indices.data<int32_t>() : nullptr,
                             down.points.size(),
                             src.size() ? down.cell_of.data<int32_t>() : nullptr, radius);
  });
  const int64_t n = cover.rows.size();
  cpu::Buffer<float> positions(n * 3);
  for (int64_t i = 0; i < n; ++i)
    std::copy_n(src.positions().data<float>() + int64_t{cover.rows[i]} * 3, 3,
                positions.begin() + i * 3);
  std::vector<int32_t> lengths;
  for (int64_t b = 0; b < src.batch_size(); ++b)
    lengths.push_back(cover.offsets[b + 1] - cover.offsets[b]);
  const PointSet targets(adopt(std::move(positions), {static_cast<int>(n), 3}), ints(lengths),
                         cell);
  return {build_rulebook(src, targets, ks, 1, KernelShape::ball, radius), targets,
          adopt(std::move(cover.rows)), cover.n_added};
}

namespace {

Generated generated(std::string_view function, const PointSet& src, float cell, int32_t scale,
                    float target_cell, const std::vector<int32_t>& stencil, int64_t ks) {
  cpu::Generated made = named(function, [&] {
    return cpu::generate_targets(span_of(src), cell, scale, stencil.data(),
                                 static_cast<int64_t>(stencil.size() / 3));
  });
  const int64_t n = made.lists.n_out;
  cpu::Buffer<float> positions(n * 3);
  std::vector<int32_t> lengths(static_cast<size_t>(src.batch_size()));
  for (int64_t t = 0; t < n; ++t) {
    ++lengths[static_cast<size_t>(made.cells[t * 4])];
    for (int a = 0; a < 3; ++a)
      positions[t * 3 + a] = (static_cast<float>(made.cells[t * 4 + 1 + a]) + 0.5f) * target_cell;
  }
  return {
      {Relation::from_lists(std::move(made.lists)), ks, target_cell, src.grid()},
      PointSet(adopt(std::move(positions), {static_cast<int>(n), 3}), ints(lengths), target_cell)};
}

// Offsets l + first for each axis, l in 0..ks - 1, x slowest.
std::vector<int32_t> cube(int64_t ks, int64_t first) {
  std::vector<int32_t> out;
  for (int64_t k = 0; k < ks * ks * ks; ++k)
    for (const int64_t l : {k / (ks * ks), k / ks % ks, k % ks})
      out.push_back(static_cast<int32_t>(l + first));
  return out;
}

}  // namespace

Generated build_generative_rulebook(const PointSet& src, int64_t ks, float expansion,
                                    const std::optional<mx::array>& stencil) {
  constexpr const char* kName = "build_generative_rulebook";
  check_kernel(kName, ks);
  check_positive(kName, "expansion", expansion);
  const float cell = src.grid() / expansion;
  check_positive(kName, "grid / expansion", cell);
  if (!stencil) return generated(kName, src, cell, 1, cell, cube(ks, -(ks / 2)), ks);
  if (stencil->ndim() != 2 || stencil->shape(1) != 3 || stencil->shape(0) < 1)
    fail(kName, "stencil must have shape (K, 3), K >= 1, got " + shape_text(stencil->shape()));
  const mx::array taps =
      checked_rows(mx::reshape(*stencil, {-1}), 1 << 20, kName, "stencil", -(1 << 20));
  const int32_t* values = taps.data<int32_t>();
  return generated(kName, src, cell, 1, cell, {values, values + taps.size()}, ks);
}

Generated build_subdivision_rulebook(const PointSet& src, int64_t expansion) {
  constexpr const char* kName = "build_subdivision_rulebook";
  if (expansion < 1 || expansion > 101)
    fail(kName, "expansion must be in 1..101, got " + std::to_string(expansion));
  return generated(kName, src, src.grid(), static_cast<int32_t>(expansion),
                   src.grid() / static_cast<float>(expansion), cube(expansion, 0), expansion);
}

Rulebook Rulebook::transposed(bool negate) const {
  if (!negate) return {relation->reversed(), kernel_size, radius, grid};
  constexpr const char* kName = "Rulebook.transposed";
  const int64_t ks = kernel_size, n_k = ks * ks * ks, twice = 2 * (ks / 2);
  cpu::RelationLists lists = relation->reversed()->lists();
  if (lists.n_k() != n_k) fail(kName, "only a kernel of kernel_size^3 cells can be negated");
  std::vector<cpu::OffsetList> negated(lists.lists.size());
  for (int64_t k = 0; k < n_k; ++k) {
    int64_t to = 0;
    bool inside = true;
    for (const int64_t l : {k / (ks * ks), k / ks % ks, k % ks}) {  // l = d + ks / 2
      inside = inside && twice - l < ks;
      to = to * ks + (twice - l);
    }
    const cpu::OffsetList& list = lists.lists[static_cast<size_t>(k)];
    if (inside) {
      negated[static_cast<size_t>(to)] = list;
    } else if (list.size > 0) {
      fail(kName, "a kernel of even size has no cell for the opposite of its first, found " +
                      std::to_string(list.size) + " edges there");
    }
  }
  lists.lists = std::move(negated);
  return {Relation::from_lists(std::move(lists)), kernel_size, radius, grid};
}

bool Rulebook::exact_cover_out() const {
  return relation->edge_count() == relation->n_out() && relation->coverage().empty_outputs == 0;
}

bool Rulebook::exact_cover_in() const {
  return relation->edge_count() == relation->n_in() && relation->coverage().unused_inputs == 0;
}

}  // namespace lattice

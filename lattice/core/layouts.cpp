#include "lattice/core/layouts.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <stdexcept>
#include <vector>

#include "lattice/core/errors.h"
#include "lattice/core/kernel_spec.h"
#include "lattice/core/row_groups.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/layouts.h"

namespace lattice {
namespace {

constexpr const char* kCurves[] = {"z", "z-trans", "hilbert", "hilbert-trans"};
constexpr int64_t kMost = std::numeric_limits<int32_t>::max();

// Rows of each cloud along an order that has the batch on top.
std::vector<int64_t> cloud_lengths(const cpu::CurveOrder& order, int depth) {
  std::vector<int64_t> lengths;
  for (int64_t p = 0; p < order.rows.size(); ++p) {
    const bool first =
        p == 0 || (order.codes[p] >> (3 * depth)) != (order.codes[p - 1] >> (3 * depth));
    if (first) lengths.push_back(0);
    ++lengths.back();
  }
  return lengths;
}

struct Made {
  cpu::Slots slots;
  int64_t length;
};

Made make_patches(const CoordinateSet& coords, const LayoutSpec& spec, std::string_view operation) {
  const cpu::CurveFrame frame = frame_of(coords, spec.depth, operation);
  const cpu::CurveOrder order = cpu::curve_order(coords.span(), spec.curve, frame);
  const std::vector<int64_t> lengths = cloud_lengths(order, frame.depth);
  int64_t size = spec.size[0];
  if (spec.shrink && !lengths.empty())
    size = std::min(size, *std::min_element(lengths.begin(), lengths.end()));
  return {cpu::patch_slots(order.rows.span(), lengths, size), size};
}

Made make_windows(const CoordinateSet& coords, const LayoutSpec& spec) {
  for (size_t a = 0; a < 3 && coords.rows() > 0; ++a)
    if (coords.box().hi[a + 1] > cpu::int128{INT64_MAX} - spec.shift[a])
      throw std::overflow_error(std::string(cpu::axis_name(static_cast<int>(a) + 1)) + " + shift " +
                                std::to_string(spec.shift[a]) + " leaves the range of int64");
  Made made{cpu::window_slots(coords.span(), spec.size, spec.shift), 0};
  const cpu::Buffer<int32_t>& offsets = made.slots.offsets;
  for (int64_t s = 0; s + 1 < offsets.size(); ++s)
    made.length = std::max<int64_t>(made.length, offsets[s + 1] - offsets[s]);
  return made;
}

// Positions relative to the lowest coordinate, so that int64 coordinates fit int32.
mx::array slot_positions(const CoordinateSet& coords, const cpu::Buffer<int32_t>& rows) {
  cpu::Buffer<int32_t> positions(rows.size() * 3);
  for (size_t a = 0; a < 3 && coords.rows() > 0; ++a) {
    const cpu::int128 low = coords.box().lo[a + 1];
    if (coords.box().hi[a + 1] - low > kMost)
      throw std::overflow_error(std::string(cpu::axis_name(static_cast<int>(a) + 1)) +
                                " spans more than 2^31 - 1 cells");
    const auto base = static_cast<int64_t>(low);
    coords.span().visit([&](const auto* c) {
      for (int64_t p = 0; p < rows.size(); ++p)
        positions[p * 3 + static_cast<int64_t>(a)] = static_cast<int32_t>(
            int64_t{c[int64_t{rows[p]} * 4 + static_cast<int64_t>(a) + 1]} - base);
    });
  }
  const int n = static_cast<int>(rows.size());
  return adopt(std::move(positions), {n, 3});
}

}  // namespace

Curve parse_curve(std::string_view name, std::string_view operation) {
  for (size_t i = 0; i < std::size(kCurves); ++i)
    if (name == kCurves[i]) return static_cast<Curve>(i);
  fail(operation,
       "order must be z, z-trans, hilbert or hilbert-trans, got '" + std::string(name) + "'");
}

const char* name(Curve curve) { return kCurves[static_cast<size_t>(curve)]; }

cpu::CurveFrame frame_of(const CoordinateSet& set, int64_t depth, std::string_view operation) {
  return named(operation, [&] {
    cpu::CurveFrame frame = cpu::curve_frame(set.box());
    if (depth == -1) return frame;
    if (depth < frame.depth || 3 * depth + frame.batch_bits > 63)
      fail(operation, "depth must be at least the " + std::to_string(frame.depth) +
                          " bits of the coordinates, and 3 depth with the " +
                          std::to_string(frame.batch_bits) + " bits of the batch at most 63, got " +
                          std::to_string(depth));
    frame.depth = static_cast<int>(depth);
    return frame;
  });
}

LayoutSpec LayoutSpec::patches(int64_t size, Curve curve, bool shrink, std::string_view operation) {
  if (size < 1 || size > kMost)
    fail(operation, "size must be in 1..2^31-1, got " + std::to_string(size));
  return {Kind::patches, curve, {size, size, size}, {0, 0, 0}, shrink, -1};
}

LayoutSpec LayoutSpec::windows(const Triple& size, const Triple& shift,
                               std::string_view operation) {
  for (size_t a = 0; a < 3; ++a) {
    if (size[a] < 0 || size[a] > kMost)
      fail(operation,
           "size must be in 0..2^31-1, where 0 is the whole axis, got " + triple_text(size));
    if (shift[a] < 0 || shift[a] >= std::max<int64_t>(size[a], 1))
      fail(operation, "shift must be at least 0 and below size " + triple_text(size) + ", got " +
                          triple_text(shift));
  }
  return {Kind::windows, Curve::z, size, shift, false, -1};
}

AttentionLayout::AttentionLayout(LayoutSpec spec, mx::array offsets, mx::array positions,
                                 RowMap::Ptr to_slots, RowMap::Ptr to_rows, int64_t length)
    : spec_(spec),
      offsets_(std::move(offsets)),
      positions_(std::move(positions)),
      to_slots_(std::move(to_slots)),
      to_rows_(std::move(to_rows)),
      length_(length) {}

AttentionLayout::Ptr AttentionLayout::make(const CoordinateSet& coords, const LayoutSpec& spec,
                                           std::string_view operation) {
  return named(operation, [&] {
    const bool patches = spec.kind == LayoutSpec::Kind::patches;
    Made made = patches ? make_patches(coords, spec, operation) : make_windows(coords, spec);
    mx::array positions = slot_positions(coords, made.slots.rows);
    const int64_t n = coords.rows(), slots = made.slots.rows.size();
    RowMap::Parts there{n, slots, adopt(std::move(made.slots.rows)), {}, {}};
    RowMap::Parts back{slots, n, adopt(std::move(made.slots.slots)), {}, {}};
    return Ptr(new AttentionLayout(spec, adopt(std::move(made.slots.offsets)), std::move(positions),
                                   RowMap::make(std::move(there)), RowMap::make(std::move(back)),
                                   made.length));
  });
}

size_t AttentionLayout::nbytes() const {
  return rows().nbytes() + slots().nbytes() + offsets_.nbytes() + positions_.nbytes();
}

std::string AttentionLayout::text() const {
  const bool patches = spec_.kind == LayoutSpec::Kind::patches;
  return "AttentionLayout(" + std::to_string(n_rows()) + " rows, " + std::to_string(n_slots()) +
         " slots, " + std::to_string(n_segments()) +
         (patches ? " patches of " + std::to_string(length_) + " along " + name(spec_.curve)
                  : " windows of size " + triple_text(spec_.size)) +
         ")";
}

namespace {

// Blocks by batch, x, y and z: the windows of a lattice, whose segments are sorted so.
cpu::Blocks cell_blocks(const cpu::CoordSpan& coords, int64_t stride) {
  const cpu::Slots cells = cpu::window_slots(coords, {stride, stride, stride}, {0, 0, 0});
  const int64_t n = cells.offsets.size() - 1;
  cpu::Blocks made{cpu::Buffer<int32_t>(coords.rows), cpu::Buffer<int32_t>(n), 0};
  for (int64_t b = 0; b < n; ++b) {
    made.first[b] = cells.rows[cells.offsets[b]];
    for (int64_t p = cells.offsets[b]; p < cells.offsets[b + 1]; ++p)
      made.block_of[cells.rows[p]] = static_cast<int32_t>(b);
  }
  return made;
}

}  // namespace

PoolingSpec PoolingSpec::make(int64_t stride, std::optional<Curve> curve, int64_t depth,
                              std::string_view operation) {
  const bool power = (stride & (stride - 1)) == 0;
  if (stride < 1 || stride > 1024 || (curve && !power))
    fail(operation, std::string("stride must be ") + (curve ? "a power of two " : "") +
                        "in 1..1024, got " + std::to_string(stride) +
                        (curve && stride > 0 ? "; order lexicographic takes any stride" : ""));
  return {stride, curve, depth};
}

int64_t GridPooling::nbytes() const { return clusters->n_rows() * 4; }

PooledCoords pool_coords(const CoordinateSet& fine, const PoolingSpec& spec,
                         std::string_view operation) {
  return named(operation, [&]() -> PooledCoords {
    const int log2 = std::countr_zero(static_cast<uint64_t>(spec.stride));
    cpu::Blocks blocks = spec.curve ? cpu::curve_blocks(fine.span(), *spec.curve, log2,
                                                        frame_of(fine, spec.depth, operation))
                                    : cell_blocks(fine.span(), spec.stride);
    const int64_t n = blocks.first.size(),
                  stride = spec.curve ? int64_t{1} << blocks.log2 : spec.stride;
    const int64_t item = fine.span().is64 ? 8 : 4;
    cpu::Buffer<std::byte> taken(n * 4 * item), coords(n * 4 * item);
    cpu::take_rows(fine.span(), blocks.first.span(), taken.data());
    cpu::floor_coords({taken.data(), n, fine.span().is64}, {stride, stride, stride}, coords.data());
    return {
        CoordinateSet(adopt(std::move(coords), {static_cast<int>(n), 4}, fine.dtype()), operation),
        RowGroups::create(std::move(blocks.block_of), n), stride};
  });
}

}  // namespace lattice

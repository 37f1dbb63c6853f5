#include "lattice/kernels/cpu/geometry/layouts.h"

#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lattice/kernels/portable/hilbert.h"
#include "lattice/kernels/portable/morton.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;
constexpr int kLeastOffsetBits = 10;

int width(int128 v) { return static_cast<int>(std::bit_width(static_cast<uint64_t>(v))); }

// The position on the curve of one cell.
uint64_t position(Curve curve, uint64_t x, uint64_t y, uint64_t z, int depth) {
  if (curve == Curve::z_trans || curve == Curve::hilbert_trans) std::swap(x, y);
  if (curve == Curve::z || curve == Curve::z_trans || depth == 0) return portable::morton3(z, y, x);
  portable::Hilbert3<uint32_t> p{static_cast<uint32_t>(x), static_cast<uint32_t>(y),
                                 static_cast<uint32_t>(z)};
  for (uint32_t bit = uint32_t{1} << (depth - 1); bit > 1; bit >>= 1)
    p = portable::hilbert_unrotate(p, bit);
  p = portable::hilbert_gray(p);
  return portable::morton3(p.z, p.y, p.x);
}

}  // namespace

CurveFrame curve_frame(const Box& box) {
  CurveFrame frame;
  if (box.empty()) return frame;
  int128 low = 0, high = 0;
  for (size_t a = 1; a < 4; ++a) {
    low = std::min(low, box.lo[a]);
    high = std::max(high, box.hi[a]);
  }
  const bool narrow = low > -(int128{1} << 40) && high < int128{1} << 40;
  if (narrow && low < 0) frame.offset = int64_t{1} << std::max(width(-low - 1), kLeastOffsetBits);
  frame.depth = narrow ? width(high + frame.offset) : 64;
  frame.batch_bits = box.hi[0] > 0 ? width(box.hi[0]) : 0;
  if (3 * frame.depth + frame.batch_bits > 63)
    throw std::overflow_error("coordinates from " + to_string(low) + " to " + to_string(high) +
                              " need " + (narrow ? std::to_string(frame.depth) : "more than 40") +
                              " bits per axis and the batch " + std::to_string(frame.batch_bits) +
                              " more, expected at most 63 in all; move the clouds nearer to 0");
  return frame;
}

Buffer<int64_t> curve_codes(const CoordSpan& coords, Curve curve, const CurveFrame& frame) {
  Buffer<int64_t> codes(coords.rows);
  coords.visit([&](const auto* c) {
    parallel_range(coords.rows, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        const auto cell = [&](int64_t a) {
          return static_cast<uint64_t>(int64_t{c[r * 4 + a]} + frame.offset);
        };
        codes[r] = static_cast<int64_t>(static_cast<uint64_t>(c[r * 4]) << (3 * frame.depth) |
                                        position(curve, cell(1), cell(2), cell(3), frame.depth));
      }
    });
  });
  return codes;
}

CurveOrder curve_order(const CoordSpan& coords, Curve curve, const CurveFrame& frame) {
  const Buffer<int64_t> codes = curve_codes(coords, curve, frame);
  CurveOrder order{Buffer<uint64_t>(coords.rows), Buffer<int32_t>(coords.rows)};
  sort_keys(
      coords.rows, 3 * frame.depth + frame.batch_bits,
      [&](int64_t r) { return static_cast<uint64_t>(codes[r]); }, order.codes, order.rows);
  return order;
}

Slots patch_slots(std::span<const int32_t> order, std::span<const int64_t> clouds, int64_t size) {
  int64_t n_slots = 0, n_segments = 0;
  const auto patches = [&](int64_t n) { return (n + size - 1) / size; };
  for (const int64_t n : clouds) {
    n_slots += n > size ? patches(n) * size : n;
    n_segments += patches(n);
  }
  if (n_slots > INT32_MAX)
    throw std::length_error("patches of " + std::to_string(size) + " rows need " +
                            std::to_string(n_slots) + " slots, expected fewer than 2^31");
  Slots made{Buffer<int32_t>(n_slots), Buffer<int32_t>(static_cast<int64_t>(order.size())),
             Buffer<int32_t>(n_segments + 1)};
  int64_t first = 0, slot = 0, segment = 0;
  made.offsets[0] = 0;
  for (const int64_t n : clouds) {
    const int64_t count = n > size ? patches(n) * size : n;
    for (int64_t p = 0; p < count; ++p) {
      const int32_t row = order[static_cast<size_t>(first + (p < n ? p : p - size))];
      made.rows[slot + p] = row;
      if (p < n) made.slots[row] = static_cast<int32_t>(slot + p);
    }
    for (int64_t end = 0; end < count;) {
      end = std::min(end + size, count);
      made.offsets[++segment] = static_cast<int32_t>(slot + end);
    }
    first += n;
    slot += count;
  }
  return made;
}

Slots window_slots(const CoordSpan& coords, const Triple& size, const Triple& shift) {
  Buffer<int64_t> windows(coords.rows * 4);
  const FloorDivider by[] = {FloorDivider(std::max<int64_t>(size[0], 1)),
                             FloorDivider(std::max<int64_t>(size[1], 1)),
                             FloorDivider(std::max<int64_t>(size[2], 1))};
  coords.visit([&](const auto* c) {
    parallel_range(coords.rows, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t r = begin; r < end; ++r) {
        windows[r * 4] = c[r * 4];
        for (size_t a = 0; a < 3; ++a) {
          const int64_t at = r * 4 + static_cast<int64_t>(a) + 1;
          windows[at] = size[a] == 0 ? 0 : by[a](int64_t{c[at]} + shift[a]);
        }
      }
    });
  });
  const CoordIndex index = index_coords({windows.data(), coords.rows, true});
  const Buffer<int32_t>& order = index.order();
  Slots made{Buffer<int32_t>(coords.rows), Buffer<int32_t>(coords.rows),
             Buffer<int32_t>(coords.rows + 1)};
  int64_t segments = 0;
  made.offsets[0] = 0;
  for (int64_t p = 0; p < coords.rows; ++p) {
    const int32_t row = order[p];
    made.rows[p] = row;
    made.slots[row] = static_cast<int32_t>(p);
    const int64_t* mine = windows.data() + int64_t{row} * 4;
    const int64_t* before = p == 0 ? mine : windows.data() + int64_t{order[p - 1]} * 4;
    if (!std::equal(mine, mine + 4, before)) made.offsets[++segments] = static_cast<int32_t>(p);
  }
  if (coords.rows > 0) made.offsets[++segments] = static_cast<int32_t>(coords.rows);
  made.offsets.shrink(segments + 1);
  return made;
}

Blocks curve_blocks(const CoordSpan& coords, Curve curve, int log2, const CurveFrame& frame) {
  Blocks made{Buffer<int32_t>(coords.rows), Buffer<int32_t>(coords.rows),
              log2 > frame.depth ? 0 : log2};
  const CurveOrder order = curve_order(coords, curve, frame);
  int64_t blocks = 0;
  uint64_t last = 0;
  for (int64_t p = 0; p < coords.rows; ++p) {
    const uint64_t block = order.codes[p] >> (3 * made.log2);
    if (p == 0 || block != last) made.first[blocks++] = order.rows[p];
    made.block_of[order.rows[p]] = static_cast<int32_t>(blocks - 1);
    last = block;
  }
  made.first.shrink(blocks);
  return made;
}

}  // namespace lattice::cpu

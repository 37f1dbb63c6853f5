// Coordinates as sortable keys.
//
// A coordinate (batch, x, y, z) becomes one 64-bit integer, key = b << s0 | x - x0 << s1 | y - y0
// << s2 | z - z0, when its bounding box (with room for the offsets that will be added) needs at
// most 63 bits; otherwise four 128-bit integers. Both compare lexicographically, so sorted orders
// agree, and a key is never truncated or hashed.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>

#include "lattice/kernels/cpu/base/choices.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/sort.h"

namespace lattice::cpu {

// (N, 4) coordinates, int32 or int64, row-contiguous.
struct CoordSpan {
  const void* data = nullptr;
  int64_t rows = 0;
  bool is64 = false;

  int64_t at(int64_t row, int axis) const {
    return is64 ? static_cast<const int64_t*>(data)[row * 4 + axis]
                : static_cast<const int32_t*>(data)[row * 4 + axis];
  }
  std::array<int64_t, 4> row(int64_t r) const { return {at(r, 0), at(r, 1), at(r, 2), at(r, 3)}; }
  // Calls f(pointer of the true type).
  template <typename F>
  decltype(auto) visit(F&& f) const {
    return is64 ? f(static_cast<const int64_t*>(data)) : f(static_cast<const int32_t*>(data));
  }
};

using Wide4 = std::array<int128, 4>;

inline const char* axis_name(int axis) {
  static constexpr const char* kNames[] = {"batch", "x", "y", "z"};
  return kNames[axis];
}
std::string to_string(int128 value);
std::string to_string(const std::array<int64_t, 4>& coordinate);

// Smallest box around rows; lo > hi on every axis when there are none.
struct Box {
  Wide4 lo{1, 1, 1, 1};
  Wide4 hi{0, 0, 0, 0};
  bool empty() const { return lo[0] > hi[0]; }
  // This box moved by every offset in [from, to] (x, y, z only).
  Box reach(const Triple& from, const Triple& to) const;
  Box scaled(const Triple& factor) const;    // c * factor
  Box divided(const Triple& divisor) const;  // floor(c / divisor)
  Box joined(const Box& other) const;
  bool holds(const Box& other) const;
};
Box bounding_box(const CoordSpan& coords);

// b > 0.
template <typename T>
T floor_div(T a, T b) {
  return a / b - (a % b < 0);
}

// floor(v / divisor), divisor > 0; a power of two shifts, which is a tenth of the time of a
// division.
class FloorDivider {
 public:
  explicit FloorDivider(int64_t divisor)
      : divisor_(divisor),
        shift_((divisor & (divisor - 1)) ? -1 : std::countr_zero(static_cast<uint64_t>(divisor))) {}
  int64_t operator()(int64_t v) const { return shift_ >= 0 ? v >> shift_ : floor_div(v, divisor_); }

 private:
  int64_t divisor_;
  int shift_;
};

// ---- the two kinds of key ----
struct WideKey {
  Wide4 c;
  bool operator==(const WideKey&) const = default;
  auto operator<=>(const WideKey&) const = default;
};

// Fields of a packed key. Arithmetic is modulo 2^64: bases may lie outside int64 by the room that
// was asked for.
struct PackedSpace {
  using Key = uint64_t;
  Box box;  // what the fields can hold
  std::array<uint64_t, 4> base{};
  std::array<int, 4> shift{};
  std::array<int, 4> width{};
  int bits = 0;

  static std::optional<PackedSpace> plan(const Box& box);
  static Key last() { return ~Key{0}; }
  Key make(int64_t b, int64_t x, int64_t y, int64_t z) const {
    return ((static_cast<uint64_t>(b) - base[0]) << shift[0]) +
           ((static_cast<uint64_t>(x) - base[1]) << shift[1]) +
           ((static_cast<uint64_t>(y) - base[2]) << shift[2]) +
           (static_cast<uint64_t>(z) - base[3]);
  }
  int64_t axis(Key key, int a) const {
    return static_cast<int64_t>(((key >> shift[a]) & ((uint64_t{1} << width[a]) - 1)) + base[a]);
  }
  // What to add to a key to move it by (x, y, z).
  Key step(int64_t x, int64_t y, int64_t z) const {
    return (static_cast<uint64_t>(x) << shift[1]) + (static_cast<uint64_t>(y) << shift[2]) +
           static_cast<uint64_t>(z);
  }
  static Key add(Key key, Key step) { return key + step; }
  // z distance from `from` to `to` >= from; huge when they differ elsewhere.
  static uint64_t ahead(Key from, Key to) { return to - from; }
};

struct WideSpace {
  using Key = WideKey;
  Box box;

  static WideSpace plan(const Box& box) { return {box}; }
  static Key last() {
    Key key{};
    key.c[0] = int128{1} << 126;
    return key;
  }
  Key make(int64_t b, int64_t x, int64_t y, int64_t z) const { return {{b, x, y, z}}; }
  int64_t axis(const Key& key, int a) const {
    return static_cast<int64_t>(key.c[static_cast<size_t>(a)]);
  }
  Key step(int64_t x, int64_t y, int64_t z) const { return {{0, x, y, z}}; }
  static Key add(const Key& key, const Key& step) {
    return {{key.c[0], key.c[1] + step.c[1], key.c[2] + step.c[2], key.c[3] + step.c[3]}};
  }
  static uint64_t ahead(const Key& from, const Key& to) {
    if (from.c[0] != to.c[0] || from.c[1] != to.c[1] || from.c[2] != to.c[2]) return ~uint64_t{0};
    const int128 d = to.c[3] - from.c[3];
    return d > int128{INT64_MAX} ? ~uint64_t{0} : static_cast<uint64_t>(d);
  }
};

// Rows of a coordinate set in ascending key order. Key keys[p] belongs to row order[p]. Equal keys
// come by ascending row. The kPad keys `last()` follow, so a merge may look a little past the
// end.
inline constexpr int64_t kPad = 4;
template <typename Space>
struct Sorted {
  Space space;
  int64_t n = 0;
  Buffer<typename Space::Key> keys;
  Buffer<int32_t> order;
};

// A sorted coordinate set, packed when its box allows. Immutable.
struct CoordIndex {
  Box box;
  std::variant<Sorted<PackedSpace>, Sorted<WideSpace>> sorted;
  int64_t duplicate = -1;  // smallest sorted position p with keys[p] == keys[p + 1], or -1

  int64_t rows() const;
  const Buffer<int32_t>& order() const;
  size_t nbytes() const;
};

// Sorts the rows. `box` is their bounding box, for callers that know it.
CoordIndex index_coords(const CoordSpan& coords, const Box& box);
CoordIndex index_coords(const CoordSpan& coords);

// The same set with keys of another space, which must hold every row.
template <typename Space>
Buffer<typename Space::Key> rekey(const CoordIndex& index, const Space& space);

}  // namespace lattice::cpu

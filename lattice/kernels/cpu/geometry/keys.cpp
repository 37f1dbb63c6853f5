#include "lattice/kernels/cpu/geometry/keys.h"

#include <limits>
#include <numeric>

namespace lattice::cpu {
namespace {

// Room kept around x, y and z, so kernels of ordinary size need no new keys.
constexpr int64_t kRoom = 4;
constexpr int64_t kGrain = 1 << 14;

template <typename Space>
Sorted<Space> sort_rows(const CoordSpan& coords, const Space& space) {
  const int64_t n = coords.rows;
  Sorted<Space> out{space, n, Buffer<typename Space::Key>(n + kPad), Buffer<int32_t>(n)};
  coords.visit([&](const auto* c) {
    const auto key_of = [&](int64_t i) {
      return space.make(c[i * 4], c[i * 4 + 1], c[i * 4 + 2], c[i * 4 + 3]);
    };
    if constexpr (std::is_same_v<Space, PackedSpace>) {
      sort_keys(n, space.bits, key_of, out.keys, out.order);
    } else {
      std::iota(out.order.begin(), out.order.end(), 0);
      std::sort(out.order.begin(), out.order.end(), [&](int32_t a, int32_t b) {
        const auto cmp = key_of(a) <=> key_of(b);
        return cmp != 0 ? cmp < 0 : a < b;
      });
      for (int64_t p = 0; p < n; ++p) out.keys[p] = key_of(out.order[p]);
    }
  });
  std::fill(out.keys.begin() + n, out.keys.end(), Space::last());
  return out;
}

template <typename Space>
int64_t first_duplicate(const Sorted<Space>& sorted) {
  for (int64_t p = 0; p + 1 < sorted.n; ++p)
    if (sorted.keys[p] == sorted.keys[p + 1]) return p;
  return -1;
}

}  // namespace

std::string to_string(int128 value) {
  if (value == 0) return "0";
  const bool negative = value < 0;
  uint128 rest = negative ? uint128{0} - static_cast<uint128>(value) : static_cast<uint128>(value);
  std::string digits;
  for (; rest > 0; rest /= 10)
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(rest % 10)));
  return negative ? "-" + digits : digits;
}

std::string to_string(const std::array<int64_t, 4>& c) {
  std::string text = "(";
  for (size_t a = 0; a < 4; ++a) text.append(a ? ", " : "").append(std::to_string(c[a]));
  return text.append(")");
}

Box Box::reach(const Triple& from, const Triple& to) const {
  Box out = *this;
  if (empty()) return out;
  for (size_t a = 0; a < 3; ++a) out.lo[a + 1] += from[a], out.hi[a + 1] += to[a];
  return out;
}

Box Box::scaled(const Triple& factor) const {
  Box out = *this;
  if (empty()) return out;
  for (size_t a = 0; a < 3; ++a) out.lo[a + 1] *= factor[a], out.hi[a + 1] *= factor[a];
  return out;
}

Box Box::divided(const Triple& divisor) const {
  Box out = *this;
  if (empty()) return out;
  for (size_t a = 0; a < 3; ++a) {
    out.lo[a + 1] = floor_div(lo[a + 1], int128{divisor[a]});
    out.hi[a + 1] = floor_div(hi[a + 1], int128{divisor[a]});
  }
  return out;
}

Box Box::joined(const Box& other) const {
  if (empty()) return other;
  if (other.empty()) return *this;
  Box out;
  for (size_t a = 0; a < 4; ++a) {
    out.lo[a] = std::min(lo[a], other.lo[a]);
    out.hi[a] = std::max(hi[a], other.hi[a]);
  }
  return out;
}

bool Box::holds(const Box& other) const {
  if (other.empty()) return true;
  if (empty()) return false;
  for (size_t a = 0; a < 4; ++a)
    if (other.lo[a] < lo[a] || other.hi[a] > hi[a]) return false;
  return true;
}

Box bounding_box(const CoordSpan& coords) {
  if (coords.rows == 0) return {};
  return coords.visit([&]<typename T>(const T* c) {
    const int64_t pieces = (coords.rows + kGrain - 1) / kGrain;
    std::vector<std::array<T, 8>> parts(static_cast<size_t>(pieces));
    parallel_for(pieces, [&](int64_t piece) {
      std::array<T, 4> lo, hi;
      lo.fill(std::numeric_limits<T>::max());
      hi.fill(std::numeric_limits<T>::min());
      const int64_t end = std::min(coords.rows, (piece + 1) * kGrain);
      for (int64_t i = piece * kGrain; i < end; ++i)
        for (size_t a = 0; a < 4; ++a) {
          const T v = c[i * 4 + static_cast<int64_t>(a)];
          lo[a] = std::min(lo[a], v);
          hi[a] = std::max(hi[a], v);
        }
      parts[static_cast<size_t>(piece)] = {lo[0], lo[1], lo[2], lo[3], hi[0], hi[1], hi[2], hi[3]};
    });
    Box box;
    for (const auto& part : parts) {
      Box one;
      for (size_t a = 0; a < 4; ++a) one.lo[a] = part[a], one.hi[a] = part[a + 4];
      box = box.joined(one);
    }
    return box;
  });
}

std::optional<PackedSpace> PackedSpace::plan(const Box& box) {
  PackedSpace space;
  space.box = box;
  if (box.empty()) return space;
  for (int a = 3; a >= 0; --a) {
    const size_t i = static_cast<size_t>(a);
    const uint128 range = static_cast<uint128>(box.hi[i] - box.lo[i]);
    if (range >> 63) return std::nullopt;
    space.width[i] = std::bit_width(static_cast<uint64_t>(range));
    space.shift[i] = space.bits;
    space.base[i] = static_cast<uint64_t>(static_cast<uint128>(box.lo[i]));
    space.bits += space.width[i];
    if (space.bits > 63) return std::nullopt;
    space.box.hi[i] = box.lo[i] + (int128{1} << space.width[i]) - 1;
  }
  return space;
}

int64_t CoordIndex::rows() const {
  return std::visit([](const auto& s) { return s.n; }, sorted);
}

const Buffer<int32_t>& CoordIndex::order() const {
  return std::visit([](const auto& s) -> const Buffer<int32_t>& { return s.order; }, sorted);
}

size_t CoordIndex::nbytes() const {
  return std::visit([](const auto& s) { return s.keys.nbytes() + s.order.nbytes(); }, sorted);
}

CoordIndex index_coords(const CoordSpan& coords) {
  return index_coords(coords, bounding_box(coords));
}

CoordIndex index_coords(const CoordSpan& coords, const Box& box) {
  CoordIndex index;
  index.box = box;
  const Box wanted = box.reach({-kRoom, -kRoom, -kRoom}, {kRoom, kRoom, kRoom});
  if (const auto space = PackedSpace::plan(wanted))
    index.sorted = sort_rows(coords, *space);
  else
    index.sorted = sort_rows(coords, WideSpace::plan(wanted));
  index.duplicate = std::visit([](const auto& s) { return first_duplicate(s); }, index.sorted);
  return index;
}

template <typename Space>
Buffer<typename Space::Key> rekey(const CoordIndex& index, const Space& space) {
  return std::visit(
      [&](const auto& s) {
        Buffer<typename Space::Key> keys(s.n + kPad);
        parallel_range(s.n, kGrain, [&](int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p)
            keys[p] = space.make(s.space.axis(s.keys[p], 0), s.space.axis(s.keys[p], 1),
                                 s.space.axis(s.keys[p], 2), s.space.axis(s.keys[p], 3));
        });
        std::fill(keys.begin() + s.n, keys.end(), Space::last());
        return keys;
      },
      index.sorted);
}

template Buffer<uint64_t> rekey(const CoordIndex&, const PackedSpace&);
template Buffer<WideKey> rekey(const CoordIndex&, const WideSpace&);

}  // namespace lattice::cpu

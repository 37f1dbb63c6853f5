#include "lattice/kernels/cpu/geometry/child_masks.h"

#include <atomic>
#include <limits>
#include <stdexcept>

#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kGrain = 1 << 14;

// Says what is wrong with entry i, which is known to be bad.
[[noreturn]] void throw_bad_child(const CoordSpan& parents, int64_t i, int64_t row, int64_t index) {
  const std::string at = " at entry " + std::to_string(i);
  if (index < 0 || index > 7)
    throw std::invalid_argument("indices found " + std::to_string(index) + at + ", expected 0..7");
  if (row < 0 || row >= parents.rows)
    throw std::invalid_argument("parent_rows found " + std::to_string(row) + at + ", expected 0.." +
                                std::to_string(parents.rows - 1));
  const int128 limit = parents.is64 ? int128{INT64_MAX} : int128{INT32_MAX};
  int axis = 1;
  int128 value = 0;
  for (; axis < 4; ++axis) {
    value = int128{parents.at(row, axis)} * 2 + (index >> (axis - 1) & 1);
    if (value > limit || value < -limit - 1) break;
  }
  throw std::overflow_error(std::string(axis_name(axis)) + " found " + to_string(value) + at +
                            ", expected " + to_string(-limit - 1) + ".." + to_string(limit));
}

// Smallest of several threads' entries.
void lower(std::atomic<int64_t>& smallest, int64_t value) {
  int64_t seen = smallest.load(std::memory_order_relaxed);
  while (value < seen && !smallest.compare_exchange_weak(seen, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

Occupancy occupancy_downsample(const CoordSpan& coords) {
  const int64_t row_bytes = coords.is64 ? 32 : 16;
  Buffer<std::byte> halves(coords.rows * row_bytes);
  floor_coords(coords, {2, 2, 2}, halves.data());
  const CoordSpan all{halves.data(), coords.rows, coords.is64};
  Distinct distinct = distinct_rows(index_coords(all));
  const int64_t n = distinct.first.size();
  Occupancy out{Buffer<std::byte>(n * row_bytes), Buffer<uint8_t>(n), std::move(distinct.inverse)};
  take_rows(all, distinct.first.span(), out.parents.data());
  std::fill(out.masks.begin(), out.masks.end(), uint8_t{0});
  coords.visit([&](const auto* c) {
    for (int64_t i = 0; i < coords.rows; ++i) {
      const int index =
          static_cast<int>((c[i * 4 + 1] & 1) + 2 * (c[i * 4 + 2] & 1) + 4 * (c[i * 4 + 3] & 1));
      out.masks[out.parent_rows[i]] |= static_cast<uint8_t>(1 << index);
    }
  });
  return out;
}

Children occupancy_expand(std::span<const uint8_t> masks) {
  const int64_t n = static_cast<int64_t>(masks.size());
  const int64_t pieces = (n + kGrain - 1) / kGrain;
  std::vector<int64_t> starts(static_cast<size_t>(pieces) + 1);
  const auto each_row = [&](int64_t piece, const auto& f) {
    for (int64_t row = piece * kGrain; row < std::min(n, (piece + 1) * kGrain); ++row)
      f(row, masks[static_cast<size_t>(row)]);
  };
  parallel_for(pieces, [&](int64_t piece) {
    int64_t count = 0;
    each_row(piece, [&](int64_t, uint8_t mask) { count += std::popcount(mask); });
    starts[static_cast<size_t>(piece) + 1] = count;
  });
  for (size_t i = 1; i < starts.size(); ++i) starts[i] += starts[i - 1];
  if (starts.back() > std::numeric_limits<int32_t>::max())
    throw std::length_error("occupancy has " + std::to_string(starts.back()) +
                            " children, at most 2^31 - 1 are possible");
  Children out{Buffer<int32_t>(starts.back()), Buffer<int32_t>(starts.back())};
  parallel_for(pieces, [&](int64_t piece) {
    int64_t at = starts[static_cast<size_t>(piece)];
    each_row(piece, [&](int64_t row, uint8_t mask) {
      for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        out.parent_rows[at] = static_cast<int32_t>(row);
        out.indices[at++] = std::countr_zero(rest);
      }
    });
  });
  return out;
}

void child_coords(const CoordSpan& parents, std::span<const int32_t> parent_rows,
                  std::span<const int32_t> indices, void* out) {
  if (parent_rows.size() != indices.size())
    throw std::invalid_argument("indices found " + std::to_string(indices.size()) +
                                " entries, expected " + std::to_string(parent_rows.size()) +
                                ", one for each of parent_rows");
  const int64_t n = static_cast<int64_t>(indices.size());
  std::atomic<int64_t> bad{n};
  parents.visit([&]<typename T>(const T* c) {
    constexpr T kLow = std::numeric_limits<T>::min() / 2, kHigh = std::numeric_limits<T>::max() / 2;
    parallel_range(n, kGrain, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int32_t row = parent_rows[static_cast<size_t>(i)],
                      index = indices[static_cast<size_t>(i)];
        if (row < 0 || row >= parents.rows || index < 0 || index > 7) return lower(bad, i);
        const T* p = c + int64_t{row} * 4;
        T* to = static_cast<T*>(out) + i * 4;
        to[0] = p[0];
        for (int a = 0; a < 3; ++a) {
          if (p[a + 1] < kLow || p[a + 1] > kHigh) return lower(bad, i);
          to[a + 1] = static_cast<T>(p[a + 1] * 2 + (index >> a & 1));
        }
      }
    });
  });
  if (const int64_t i = bad.load(); i < n)
    throw_bad_child(parents, i, parent_rows[static_cast<size_t>(i)],
                    indices[static_cast<size_t>(i)]);
}

}  // namespace lattice::cpu

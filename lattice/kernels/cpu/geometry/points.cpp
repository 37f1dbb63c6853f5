#include "lattice/kernels/cpu/geometry/points.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "lattice/kernels/cpu/base/chunks.h"
#include "lattice/kernels/cpu/base/hwy_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/geometry/points.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Points [begin, end); the first bad row, or `end`.
int64_t quantize_piece(const float* points, int64_t begin, int64_t end, const int32_t* batch,
                       const VoxelFrame& frame, int32_t* coords) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  constexpr int64_t kMax = hn::MaxLanes(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto lowest = hn::Set(d, -0x1p31f), above = hn::Set(d, 0x1p31f),
             shift = hn::Set(d, static_cast<float>(frame.shift));
  // Lanes of one axis; false where the voxel leaves int32, NaN included.
  const auto axis = [&](auto p, size_t a, auto& good) HWY_ATTR {
    const auto q = hn::Div(hn::Sub(p, hn::Set(d, static_cast<float>(frame.origin[a]))),
                           hn::Set(d, static_cast<float>(frame.size[a])));
    const auto v = hn::Floor(hn::Add(q, shift));
    good = hn::And(good, hn::And(hn::Ge(v, lowest), hn::Lt(v, above)));
    return v;
  };
  for (int64_t i = begin; i < end; i += lanes) {
    const int64_t n = std::min(lanes, end - i);
    HWY_ALIGN float part[3 * kMax] = {};
    HWY_ALIGN int32_t packed[4 * kMax];
    HWY_ALIGN int32_t batches[kMax] = {};
    const float* from = points + i * 3;
    if (n < lanes) std::copy(from, from + n * 3, part), from = part;
    if (batch) std::copy(batch + i, batch + i + n, batches);
    hn::Vec<decltype(d)> x, y, z;
    hn::LoadInterleaved3(d, from, x, y, z);
    auto good = hn::FirstN(d, static_cast<size_t>(n));
    const auto vx = axis(x, 0, good), vy = axis(y, 1, good), vz = axis(z, 2, good);
    if (static_cast<int64_t>(hn::CountTrue(d, good)) != n) {
      const intptr_t bad = hn::FindFirstTrue(d, hn::Not(good));
      return i + static_cast<int64_t>(bad);
    }
    int32_t* to = n < lanes ? packed : coords + i * 4;
    hn::StoreInterleaved4(hn::Load(di, batches), hn::ConvertTo(di, vx), hn::ConvertTo(di, vy),
                          hn::ConvertTo(di, vz), di, to);
    if (n < lanes) std::copy(packed, packed + n * 4, coords + i * 4);
  }
  return end;
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(quantize_piece);

namespace {

// The same in double, for positions on a map: the compiler's own vectors are fast enough.
int64_t quantize_piece(const double* points, int64_t begin, int64_t end, const int32_t* batch,
                       const VoxelFrame& frame, int32_t* coords) {
  for (int64_t i = begin; i < end; ++i) {
    coords[i * 4] = batch ? batch[i] : 0;
    for (int64_t a = 0; a < 3; ++a) {
      const auto axis = static_cast<size_t>(a);
      const double v =
          std::floor((points[i * 3 + a] - frame.origin[axis]) / frame.size[axis] + frame.shift);
      if (!(v >= -0x1p31 && v < 0x1p31)) return i;
      coords[i * 4 + 1 + a] = static_cast<int32_t>(v);
    }
  }
  return end;
}

// The first bad row of all pieces, or -1; piece(begin, end) gives its own or `end`.
template <typename F>
int64_t first_bad_row(int64_t n, const F& quantize) {
  std::vector<int64_t> bad(static_cast<size_t>(piece_count(n)), -1);
  each_piece(n, [&](size_t piece, int64_t begin, int64_t end) {
    const int64_t stop = quantize(begin, end);
    if (stop < end) bad[piece] = stop;
  });
  const auto first = std::find_if(bad.begin(), bad.end(), [](int64_t row) { return row >= 0; });
  return first == bad.end() ? -1 : *first;
}

}  // namespace

int64_t quantize_points(const float* points, int64_t n, const int32_t* batch,
                        const VoxelFrame& frame, int32_t* coords) {
  return first_bad_row(n, [&](int64_t begin, int64_t end) {
    return HWY_DYNAMIC_DISPATCH(quantize_piece)(points, begin, end, batch, frame, coords);
  });
}

int64_t quantize_points(const double* points, int64_t n, const int32_t* batch,
                        const VoxelFrame& frame, int32_t* coords) {
  return first_bad_row(n, [&](int64_t begin, int64_t end) {
    return quantize_piece(points, begin, end, batch, frame, coords);
  });
}

Groups group_rows(const CoordIndex& index, const Distinct& distinct) {
  return std::visit(
      [&](const auto& s) {
        const auto is_head = [&](int64_t p) { return p == 0 || !(s.keys[p] == s.keys[p - 1]); };
        std::vector<int64_t> runs(static_cast<size_t>(piece_count(s.n)));
        each_piece(s.n, [&](size_t piece, int64_t begin, int64_t end) {
          for (int64_t p = begin; p < end; ++p) runs[piece] += is_head(p);
        });
        const int64_t n = exclusive_sum(runs);
        Buffer<int32_t> starts(n + 1);  // sorted position at which each run begins
        starts[n] = static_cast<int32_t>(s.n);
        each_piece(s.n, [&](size_t piece, int64_t begin, int64_t end) {
          int64_t at = runs[piece];
          for (int64_t p = begin; p < end; ++p)
            if (is_head(p)) starts[at++] = static_cast<int32_t>(p);
        });
        // The distinct row of the run that begins at starts[r].
        const auto of_run = [&](int64_t r) { return distinct.inverse[s.order[starts[r]]]; };
        Groups out{Buffer<int32_t>(n + 1), Buffer<int32_t>(s.n)};
        each_piece(n, [&](size_t, int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r) out.offsets[of_run(r)] = starts[r + 1] - starts[r];
        });
        int32_t total = 0;
        for (int64_t g = 0; g < n; ++g) total += std::exchange(out.offsets[g], total);
        out.offsets[n] = total;
        each_piece(n, [&](size_t, int64_t begin, int64_t end) {
          for (int64_t r = begin; r < end; ++r)
            std::copy(s.order.begin() + starts[r], s.order.begin() + starts[r + 1],
                      out.rows.begin() + out.offsets[of_run(r)]);
        });
        return out;
      },
      index.sorted);
}

Groups group_entries(std::span<const int32_t> group, int64_t n_groups) {
  const int64_t n = static_cast<int64_t>(group.size());
  const auto key = [&](int64_t e) {
    const int32_t g = group[static_cast<size_t>(e)];
    return static_cast<uint64_t>(g < 0 ? n_groups : g);
  };
  Buffer<uint64_t> keys(n);
  Groups out{Buffer<int32_t>(n_groups + 1), Buffer<int32_t>(n)};
  sort_keys(n, std::bit_width(static_cast<uint64_t>(n_groups)), key, keys, out.rows);
  // Position p begins the groups (keys[p - 1], keys[p]].
  each_piece(n + 1, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      const int64_t from = p == 0 ? 0 : static_cast<int64_t>(keys[p - 1]) + 1;
      const int64_t to = p == n ? n_groups : static_cast<int64_t>(keys[p]);
      for (int64_t g = from; g <= to; ++g) out.offsets[g] = static_cast<int32_t>(p);
    }
  });
  out.rows.shrink(out.offsets[n_groups]);
  return out;
}

template <typename T>
void linear_weights(const T* points, int64_t n, const VoxelFrame& frame, const int32_t* coords,
                    const int32_t* cell_of, const int32_t* table, int32_t* rows, float* weights) {
  each_piece(n, [&](size_t, int64_t begin, int64_t end) {
    for (int64_t p = begin; p < end; ++p) {
      float w[3][2];
      for (size_t a = 0; a < 3; ++a) {
        const T q = (points[p * 3 + static_cast<int64_t>(a)] - static_cast<T>(frame.origin[a])) /
                    static_cast<T>(frame.size[a]);
        const int32_t cell = coords[p * 4 + 1 + static_cast<int64_t>(a)];
        w[a][1] = static_cast<float>(q - static_cast<T>(cell));
        w[a][0] = 1.0f - w[a][1];
      }
      const int32_t* corners = table + int64_t{cell_of[p]} * 8;
      for (int slot = 0; slot < 8; ++slot) {
        const int x = slot & 1, y = slot >> 1 & 1, z = slot >> 2;
        const int32_t row = corners[(x * 2 + y) * 2 + z];
        rows[p * 8 + slot] = row;
        weights[p * 8 + slot] = row < 0 ? 0.0f : (w[0][x] * w[1][y]) * w[2][z];
      }
    }
  });
}
template void linear_weights(const float*, int64_t, const VoxelFrame&, const int32_t*,
                             const int32_t*, const int32_t*, int32_t*, float*);
template void linear_weights(const double*, int64_t, const VoxelFrame&, const int32_t*,
                             const int32_t*, const int32_t*, int32_t*, float*);

}  // namespace lattice::cpu
#endif

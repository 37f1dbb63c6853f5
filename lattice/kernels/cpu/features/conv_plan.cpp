#include "lattice/kernels/cpu/features/conv_plan.h"

#include <algorithm>

namespace lattice::cpu {

bool is_depthwise(int64_t c_in, int64_t c_out, int64_t groups) {
  return c_in == groups && c_out == groups && groups > 1;
}

// A bucket costs c_in additions per edge and saves c_in * c_out multiplications for each edge but
// its first. Measured on dense scans: from 1.25 edges per bucket on with 64 channels, 2 with 32;
// with 16 not at 4.4 (0.9 times as fast).
bool conv_buckets_pay(const RelationLists& lists, int64_t c_in, int64_t c_out, int64_t groups) {
  if (is_depthwise(c_in, c_out, groups) || lists.n_buckets == 0) return false;
  const int64_t columns = c_out / groups;
  return lists.n_edges * 4 >= lists.n_buckets * (columns >= 64 ? 5 : columns >= 32 ? 8 : 20);
}

int64_t conv_tile(const RelationLists& lists) {
  constexpr int64_t kTile = 256;
  // The bounds of many offsets should not outweigh the lists.
  const int64_t tiles = std::max<int64_t>(1, lists.n_edges / std::max<int64_t>(1, lists.n_k()));
  return std::clamp<int64_t>((lists.n_out + tiles - 1) / tiles, kTile, 8 * kTile);
}

std::vector<Panel> cut_panels(int64_t c_in, int64_t c_out, int64_t groups, int64_t lanes,
                              int64_t most) {
  const bool depthwise = is_depthwise(c_in, c_out, groups);
  const int64_t n_groups = depthwise ? 1 : groups, columns = c_out / n_groups;
  const int64_t vectors = (columns + lanes - 1) / lanes, n = (vectors + most - 1) / most;
  std::vector<Panel> panels;
  panels.reserve(static_cast<size_t>(n_groups * n));
  for (int64_t g = 0; g < n_groups; ++g)
    for (int64_t p = 0; p < n; ++p) {
      const int64_t begin = vectors * p / n, end = vectors * (p + 1) / n;
      const int64_t column = g * columns + begin * lanes;
      panels.push_back({.column = column,
                        .columns = std::min(end * lanes, columns) - begin * lanes,
                        .vectors = end - begin,
                        .x_column = depthwise ? column : g * (c_in / groups)});
    }
  return panels;
}

Window input_window(const RelationLists& lists, const int32_t* from, const int32_t* to, int64_t k0,
                    int64_t k1) {
  int32_t lo = INT32_MAX, last = -1;
  for (int64_t k = k0; k < k1; ++k) {
    if (from[k] == to[k]) continue;
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    if (lists.monotone || !list.in) {
      lo = std::min(lo, list.in_at(from[k]));
      last = std::max(last, list.in_at(to[k] - 1));
    } else {
      for (int32_t e = from[k]; e < to[k]; ++e) {
        lo = std::min(lo, list.in[e]);
        last = std::max(last, list.in[e]);
      }
    }
  }
  if (last < 0) return {};
  return {lo, int64_t{last} + 1};
}

}  // namespace lattice::cpu

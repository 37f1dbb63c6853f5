#include "lattice/kernels/cpu/features/conv_plan.h"

#include <algorithm>
#include <stdexcept>
#include <string>

namespace lattice::cpu {

void check_call(const char* operation, const RelationLists& lists, const TileBounds& bounds,
                const ConvShape& shape) {
  const int64_t c_in = shape.c_in, c_out = shape.c_out, groups = shape.groups;
  if (groups < 1 || c_in < 1 || c_out < 1 || c_in % groups != 0 || c_out % groups != 0) {
    throw std::invalid_argument("[" + std::string(operation) +
                                "] channels must be positive multiples of groups: found c_in " +
                                std::to_string(c_in) + ", c_out " + std::to_string(c_out) +
                                ", groups " + std::to_string(groups));
  }
  if (bounds.tile < 1 || bounds.n_tiles != (lists.n_out + bounds.tile - 1) / bounds.tile ||
      bounds.bounds.size() != (bounds.n_tiles + 1) * lists.n_k()) {
    throw std::invalid_argument(
        "[" + std::string(operation) + "] bounds must be tile bounds of the lists: found " +
        std::to_string(bounds.n_tiles) + " tiles of " + std::to_string(bounds.tile) + " for " +
        std::to_string(lists.n_out) + " rows");
  }
}

// A bucket costs c_in additions per edge and saves c_in * c_out multiplications for each edge but
// its first. Measured on dense scans: from 1.25 edges per bucket on with 64 channels, 2 with 32;
// with 16 not at 4.4 (0.9 times as fast).
bool conv_buckets_pay(const RelationLists& lists, const ConvShape& shape) {
  if (shape.is_depthwise() || lists.n_buckets == 0) return false;
  for (const SharedFrom& from : kConvShared)
    if (shape.out_group() >= from.columns)
      return static_cast<double>(lists.n_edges) >=
             static_cast<double>(lists.n_buckets) * from.edges;
  return false;
}

int64_t conv_tile(const RelationLists& lists) {
  constexpr int64_t kTile = 256;
  // The bounds of many offsets should not outweigh the lists.
  const int64_t tiles = std::max<int64_t>(1, lists.n_edges / std::max<int64_t>(1, lists.n_k()));
  return std::clamp<int64_t>((lists.n_out + tiles - 1) / tiles, kTile, 8 * kTile);
}

std::vector<Panel> cut_panels(const ConvShape& shape, int64_t lanes, int64_t most) {
  const bool depthwise = shape.is_depthwise();
  const int64_t n_groups = depthwise ? 1 : shape.groups, columns = shape.c_out / n_groups;
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
                        .x_column = depthwise ? column : g * shape.in_group()});
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

#include "lattice/kernels/cpu/geometry/generate.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

#include "lattice/kernels/cpu/geometry/keys.h"

namespace lattice::cpu {
namespace {

int32_t checked(int64_t v) {
  if (v < std::numeric_limits<int32_t>::min() || v > std::numeric_limits<int32_t>::max())
    throw std::overflow_error("a target lies more than 2^31 cells from the origin");
  return static_cast<int32_t>(v);
}

}  // namespace

Generated generate_targets(const PointSpan& points, float cell, int32_t scale,
                           const int32_t* stencil, int64_t n_k) {
  if (points.n * n_k > std::numeric_limits<int32_t>::max())
    throw std::length_error("there are " + std::to_string(points.n * n_k) +
                            " edges; the limit is 2^31 - 1");
  PointCells from = point_cells(points, cell);
  const int64_t n_cells = from.first.size() - 1;
  // Candidates of the distinct voxels, not of the points; rows (sample, z, y, x), so their
  // order is that of the targets.
  Buffer<int32_t> rows(n_cells * n_k * 4);
  for (int64_t c = 0; c < n_cells; ++c)
    for (int64_t k = 0; k < n_k; ++k) {
      int32_t* to = rows.data() + (c * n_k + k) * 4;
      to[0] = from.cells[c * 4];
      for (int a = 0; a < 3; ++a)
        to[3 - a] = checked(int64_t{from.cells[c * 4 + 1 + a]} * scale + stencil[k * 3 + a]);
    }
  const CoordIndex sorted = index_coords({rows.data(), n_cells * n_k, false});
  Buffer<int32_t> target(n_cells * n_k);  // of each candidate
  std::vector<int32_t> first;             // the candidate that a target was first seen at
  const auto row = [&](int64_t r) { return rows.data() + r * 4; };
  for (int64_t p = 0; p < n_cells * n_k; ++p) {
    const int32_t r = sorted.order()[p];
    if (first.empty() || !std::equal(row(r), row(r) + 4, row(first.back()))) first.push_back(r);
    target[r] = static_cast<int32_t>(first.size()) - 1;
  }
  Generated out;
  const int64_t n_targets = static_cast<int64_t>(first.size());
  out.cells = Buffer<int32_t>(n_targets * 4);
  for (int64_t t = 0; t < n_targets; ++t) {
    const int32_t* at = row(first[static_cast<size_t>(t)]);
    const int32_t cells[4] = {at[0], at[3], at[2], at[1]};
    std::copy_n(cells, 4, out.cells.begin() + t * 4);
  }
  // One offset moves all voxels by the same amount, so with points ordered by voxel every list
  // ascends at both ends.
  auto in = std::make_shared<Buffer<int32_t>>(points.n),
       ends = std::make_shared<Buffer<int32_t>>(points.n * n_k);
  std::iota(in->begin(), in->end(), 0);
  for (int64_t c = 0; c < n_cells; ++c)
    for (int32_t p = from.first[c]; p < from.first[c + 1]; ++p)
      for (int64_t k = 0; k < n_k; ++k) (*ends)[k * points.n + p] = target[c * n_k + k];
  RelationLists& lists = out.lists;
  lists.n_in = points.n;
  lists.n_out = n_targets;
  lists.n_edges = points.n * n_k;
  lists.in_order = std::make_shared<Buffer<int32_t>>(std::move(from.order));
  for (int64_t k = 0; k < n_k; ++k)
    lists.lists.push_back({in->data(), ends->data() + k * points.n, points.n});
  lists.count_buckets();
  lists.storage = {std::move(in), std::move(ends)};
  return out;
}

}  // namespace lattice::cpu

#include "lattice/kernels/cpu/geometry/full_cover.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

namespace lattice::cpu {
namespace {

// Some rows of a set of points as a set of their own; rows ascend by cloud.
struct Subset {
  std::vector<float> xyz;
  std::vector<int32_t> offsets;
  Subset(const PointSpan& points, const std::vector<int32_t>& rows) {
    int64_t sample = 0;
    offsets.push_back(0);
    for (size_t i = 0; i < rows.size(); ++i) {
      for (; rows[i] >= points.offsets[sample + 1]; ++sample)
        offsets.push_back(static_cast<int32_t>(i));
      xyz.insert(xyz.end(), points.xyz + int64_t{rows[i]} * 3,
                 points.xyz + int64_t{rows[i]} * 3 + 3);
    }
    offsets.resize(static_cast<size_t>(points.n_samples) + 1, static_cast<int32_t>(rows.size()));
  }
  PointSpan span() const {
    return {xyz.data(), static_cast<int64_t>(xyz.size() / 3), offsets.data(),
            static_cast<int64_t>(offsets.size()) - 1};
  }
};

float distance(const PointSpan& points, int32_t a, int32_t b) {
  const float *p = points.xyz + int64_t{a} * 3, *q = points.xyz + int64_t{b} * 3;
  const float dx = p[0] - q[0], dy = p[1] - q[1], dz = p[2] - q[2];
  return std::sqrt(dx * dx + dy * dy + dz * dz);
}

// The rows that have none of `others` within the radius.
std::vector<int32_t> left_out(const PointSpan& points, const std::vector<int32_t>& rows,
                              const std::vector<int32_t>& others, float radius) {
  const Subset a(points, others), b(points, rows);
  const NearPoints near = near_points(a.span(), b.span(), {radius, false});
  std::vector<int32_t> out;
  for (size_t i = 0; i < rows.size(); ++i)
    if (near.offsets[static_cast<int64_t>(i)] == near.offsets[static_cast<int64_t>(i) + 1])
      out.push_back(rows[i]);
  return out;
}

// The rows of the net, in the order in which they are taken. away[i]: distance of rows[i] from its
// representative.
std::vector<int32_t> net(const PointSpan& points, const std::vector<int32_t>& rows,
                         const std::vector<float>& away, float radius) {
  const Subset set(points, rows);
  const NearPoints near = near_points(set.span(), set.span(), {radius, false});
  const auto count = [&](int32_t i) { return near.offsets[i + 1] - near.offsets[i]; };
  std::vector<int32_t> order(rows.size()), taken;
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    if (count(a) != count(b)) return count(a) > count(b);
    const float da = away[static_cast<size_t>(a)], db = away[static_cast<size_t>(b)];
    return da != db ? da > db : a < b;
  });
  std::vector<uint8_t> covered(rows.size());
  for (const int32_t i : order) {
    if (covered[static_cast<size_t>(i)]) continue;
    taken.push_back(rows[static_cast<size_t>(i)]);
    for (int32_t e = near.offsets[i]; e < near.offsets[i + 1]; ++e)
      covered[static_cast<size_t>(near.rows[e])] = 1;
  }
  return taken;
}

}  // namespace

Cover cover_points(const PointSpan& points, const int32_t* chosen, int64_t n_chosen,
                   const int32_t* cell_of, float radius) {
  std::vector<int32_t> representatives(chosen, chosen + n_chosen), far;
  std::sort(representatives.begin(), representatives.end());
  // Most points lie near the representative of their own cell, which needs no search.
  for (int32_t r = 0; r < points.n; ++r)
    if (!(distance(points, r, chosen[cell_of[r]]) <= radius)) far.push_back(r);
  far = left_out(points, far, representatives, radius);
  std::vector<float> away;
  away.reserve(far.size());
  for (const int32_t r : far) away.push_back(distance(points, r, chosen[cell_of[r]]));
  std::vector<int32_t> added = net(points, far, away, radius);
  std::sort(added.begin(), added.end());

  Cover out;
  out.n_added = static_cast<int64_t>(added.size());
  out.rows = Buffer<int32_t>(n_chosen + out.n_added);
  out.offsets = Buffer<int32_t>(points.n_samples + 1);
  size_t c = 0, a = 0;
  for (int64_t s = 0; s < points.n_samples; ++s) {
    out.offsets[s] = static_cast<int32_t>(c + a);
    const int32_t end = points.offsets[s + 1];
    for (; c < representatives.size() && representatives[c] < end; ++c)
      out.rows[static_cast<int64_t>(c + a)] = representatives[c];
    for (; a < added.size() && added[a] < end; ++a)
      out.rows[static_cast<int64_t>(c + a)] = added[a];
  }
  out.offsets[points.n_samples] = static_cast<int32_t>(c + a);
  return out;
}

}  // namespace lattice::cpu

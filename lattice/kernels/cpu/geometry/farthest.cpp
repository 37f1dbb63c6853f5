#include "lattice/kernels/cpu/geometry/farthest.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "lattice/kernels/cpu/geometry/kdtree.h"

namespace lattice::cpu {
namespace {

constexpr float kFar = std::numeric_limits<float>::infinity();

// Leaves as columns: points of leaf l at [l * kLeaf, (l + 1) * kLeaf), boxes one per leaf.
struct Leaves {
  int64_t count;
  LeafPoints<float> points;
  Buffer<float> d2;      // per point; -1 after the last row
  Buffer<float> box[6];  // low x, y, z, high x, y, z
  Buffer<int32_t> most;  // bits of the largest d2 of a leaf: integers compare as floats >= 0 do
  Buffer<int32_t> row;   // the lowest row that has it
};

Leaves make(const Places& places, const KdForest& forest) {
  Leaves out;
  out.count = forest.leaves();
  out.points = leaf_points<float>(places, forest, {0, 0, 0});
  out.d2 = Buffer<float>(out.count * kLeaf);
  for (auto& side : out.box) side = Buffer<float>(out.count);
  out.most = Buffer<int32_t>(out.count);
  out.row = Buffer<int32_t>(out.count);
  for (int64_t l = 0; l < out.count; ++l) {
    for (int64_t i = l * kLeaf; i < (l + 1) * kLeaf; ++i)
      out.d2[i] = forest.rows[i] < 0 ? -1.0f : kFar;
    for (size_t a = 0; a < 3; ++a) {
      const float* axis = out.points.axis[a].data() + l * kLeaf;
      out.box[a][l] = *std::min_element(axis, axis + kLeaf);
      out.box[3 + a][l] = *std::max_element(axis, axis + kLeaf);
    }
    out.most[l] = std::bit_cast<int32_t>(kFar);
    const int32_t* rows = forest.rows.data() + l * kLeaf;  // a leaf holds one row or more
    out.row[l] = *std::min_element(rows, std::find(rows, rows + kLeaf, -1));
  }
  return out;
}

// Lowers the d2 of a leaf by a new sample and finds its largest again.
void lower(Leaves& leaves, const int32_t* rows, int64_t l, float x, float y, float z) {
  const float* px = leaves.points.axis[0].data() + l * kLeaf;
  const float* py = leaves.points.axis[1].data() + l * kLeaf;
  const float* pz = leaves.points.axis[2].data() + l * kLeaf;
  float* d2 = leaves.d2.data() + l * kLeaf;
  int32_t keys[kLeaf];
  for (int64_t i = 0; i < kLeaf; ++i) {
    const float dx = px[i] - x, dy = py[i] - y, dz = pz[i] - z;
    const float now = (dx * dx + dy * dy) + dz * dz;
    d2[i] = now < d2[i] ? now : d2[i];
    keys[i] = std::bit_cast<int32_t>(d2[i]);  // -1 has the sign bit: below all others
  }
  int32_t most = std::numeric_limits<int32_t>::min();
  for (int64_t i = 0; i < kLeaf; ++i) most = std::max(most, keys[i]);
  int32_t row = std::numeric_limits<int32_t>::max();
  for (int64_t i = 0; i < kLeaf; ++i)
    row = std::min(row, keys[i] == most ? rows[l * kLeaf + i] : row);
  leaves.most[l] = most;
  leaves.row[l] = row;
}

void add_sample(Leaves& leaves, const int32_t* rows, float x, float y, float z) {
  constexpr int64_t kBlock = 64;
  const float *lx = leaves.box[0].data(), *ly = leaves.box[1].data(), *lz = leaves.box[2].data(),
              *hx = leaves.box[3].data(), *hy = leaves.box[4].data(), *hz = leaves.box[5].data();
  for (int64_t begin = 0; begin < leaves.count; begin += kBlock) {
    const int64_t n = std::min(kBlock, leaves.count - begin);
    int32_t bound[kBlock];
    for (int64_t i = 0; i < n; ++i) {
      const int64_t l = begin + i;
      const float ax = lx[l] - x, bx = x - hx[l], ay = ly[l] - y, by = y - hy[l], az = lz[l] - z,
                  bz = z - hz[l];
      const float mx = ax > bx ? ax : bx, my = ay > by ? ay : by, mz = az > bz ? az : bz;
      const float dx = mx > 0 ? mx : 0, dy = my > 0 ? my : 0, dz = mz > 0 ? mz : 0;
      bound[i] = std::bit_cast<int32_t>((dx * dx + dy * dy) + dz * dz);
    }
    int32_t wanted = 0;
    for (int64_t i = 0; i < n; ++i) wanted |= bound[i] < leaves.most[begin + i] ? 1 : 0;
    if (!wanted) continue;
    for (int64_t i = 0; i < n; ++i)
      if (bound[i] < leaves.most[begin + i]) lower(leaves, rows, begin + i, x, y, z);
  }
}

}  // namespace

void farthest_points(const float* points, int64_t n, int64_t first, int64_t count, int32_t* rows,
                     float* distances) {
  Places places;
  places.n = n;
  places.points = points;
  const KdForest forest = build_forest(places);
  Leaves leaves = make(places, forest);
  rows[0] = static_cast<int32_t>(first);
  distances[0] = kFar;
  for (int64_t s = 1; s < count; ++s) {
    const float* p = points + int64_t{rows[s - 1]} * 3;
    add_sample(leaves, forest.rows.data(), p[0], p[1], p[2]);
    int32_t most = 0;
    for (int64_t l = 0; l < leaves.count; ++l) most = std::max(most, leaves.most[l]);
    int32_t row = std::numeric_limits<int32_t>::max();
    for (int64_t l = 0; l < leaves.count; ++l)
      row = std::min(row, leaves.most[l] == most ? leaves.row[l] : row);
    rows[s] = row;
    distances[s] = std::bit_cast<float>(most);
  }
}

}  // namespace lattice::cpu

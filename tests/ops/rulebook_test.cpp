// Geometry of points: against loops over all pairs; taps, cells, ragged batches, far points; the
// voxel convolution as a special case.
#include "lattice/ops/rulebook.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>
#include <map>
#include <set>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/conv.h"
#include "lattice/ops/triplets.h"
#include "lattice/selftest/selftest.h"

namespace lattice {
namespace {

mx::array ints(const std::vector<int32_t>& v) {
  return mx::array(v.data(), {static_cast<int>(v.size())}, mx::int32);
}

PointSet cloud(uint64_t seed, const std::vector<int32_t>& lengths, float grid, float extent,
               float shift = 0) {
  Random random{seed};
  std::vector<float> xyz;
  int n = 0;
  for (const int32_t length : lengths) n += length;
  for (int i = 0; i < 3 * n; ++i) xyz.push_back(shift + extent * random.real());
  return PointSet(mx::array(xyz.data(), {n, 3}), ints(lengths), grid);
}

int batch_of(const PointSet& p, int row) {
  int b = 0;
  while (row >= p.offsets()[static_cast<size_t>(b) + 1]) ++b;
  return b;
}

const float* at(const PointSet& p, int row) { return p.positions().data<float>() + 3 * row; }

TEST(Rulebook, RadiusSearchFindsAllPairs) {
  for (const float shift : {0.0f, -70.0f, 1e6f})
    for (const KernelShape shape : {KernelShape::ball, KernelShape::cube})
      for (const float radius : {0.3f, 1.5f}) {
        const PointSet points = cloud(1, {0, 150, 1, 90, 0}, 1, 2, shift),
                       queries = cloud(2, {3, 60, 0, 40, 0}, 1, 2, shift);
        const Neighbors found = radius_search(points, queries, radius, shape);
        int64_t e = 0;
        for (int q = 0; q < queries.size(); ++q) {
          int count = 0;
          for (int p = 0; p < points.size(); ++p) {
            if (batch_of(points, p) != batch_of(queries, q)) continue;
            const float dx = at(points, p)[0] - at(queries, q)[0],
                        dy = at(points, p)[1] - at(queries, q)[1],
                        dz = at(points, p)[2] - at(queries, q)[2];
            const float d = shape == KernelShape::ball
                                ? std::sqrt(dx * dx + dy * dy + dz * dz)
                                : std::max(std::fabs(dx), std::max(std::fabs(dy), std::fabs(dz)));
            if (!(d <= radius)) continue;
            ASSERT_LT(e, found.rows.size());
            ASSERT_EQ(found.rows.data<int32_t>()[e], p);
            ASSERT_EQ(found.distances.data<float>()[e], d);
            ++e, ++count;
          }
          ASSERT_EQ(found.counts.data<int32_t>()[q], count);
        }
        EXPECT_EQ(e, static_cast<int64_t>(found.rows.size()));
      }
  // Exactly at the radius is inside; a self-query finds itself.
  const PointSet line(mx::array({0.f, 0.f, 0.f, 0.25f, 0.f, 0.f, 0.5f, 0.f, 0.f}, {3, 3}),
                      std::nullopt, 1);
  EXPECT_EQ(radius_search(line, line, 0.25f).rows.size(), 7u);
}

TEST(Rulebook, TapsRoundHalfToEvenAndClamp) {
  const mx::array d =
      mx::array({0.09f, 0.f, 0.f, 0.5f, -0.5f, 1.5f, -9.f, 9.f, 2.5f, 0.f, 0.f, 0.f}, {4, 3});
  // 0.09 / 0.02 is 4.5 in float32 by true division and rounds to 4.
  EXPECT_EQ(voxel_tap(mx::slice(d, {0, 0}, {1, 3}), 0.02f, 11).data<int32_t>()[0],
            (std::min(10, static_cast<int>(std::nearbyint(0.09f / 0.02f)) + 5) * 11 + 5) * 11 + 5);
  const mx::array taps = voxel_tap(d, 1, 3);
  EXPECT_EQ(taps.data<int32_t>()[1], (1 * 3 + 1) * 3 + 2);
  EXPECT_EQ(taps.data<int32_t>()[2], (0 * 3 + 2) * 3 + 2);
  EXPECT_EQ(taps.data<int32_t>()[3], 13);
  EXPECT_EQ(voxel_tap(d, 1, 2).data<int32_t>()[3], 7);  // even sizes: d = 0 is the second cell
  EXPECT_NEAR(radius_scaler(3), 1.8610f, 1e-4f);
  EXPECT_NEAR(radius_scaler(5), 3.1017f, 1e-4f);
  EXPECT_EQ(radius_scaler(3, 8, KernelShape::cube), 3.0f);
}

TEST(Rulebook, EdgesAreTheNeighborsWithTheirTaps) {
  const PointSet src = cloud(3, {200, 0, 120}, 0.4f, 1), dst = cloud(4, {50, 0, 70}, 0.4f, 1);
  for (const int64_t ks : {2, 3, 5}) {
    const Rulebook r = build_rulebook(src, dst, ks, 1, KernelShape::ball, std::nullopt, true);
    const Neighbors near = radius_search(src, dst, r.radius);
    std::multiset<std::array<int32_t, 3>> expected;
    int64_t e = 0;
    for (int q = 0; q < dst.size(); ++q)
      for (int c = 0; c < near.counts.data<int32_t>()[q]; ++c, ++e) {
        const int32_t p = near.rows.data<int32_t>()[e];
        float d[3];
        for (int a = 0; a < 3; ++a) d[a] = at(src, p)[a] - at(dst, q)[a];
        expected.insert({voxel_tap(mx::array(d, {1, 3}), 0.4f, ks).data<int32_t>()[0], q, p});
      }
    const std::vector<mx::array> t = r.triplets();
    std::vector<std::array<int32_t, 3>> found;
    for (size_t i = 0; i < t[0].size(); ++i)
      found.push_back({t[2].data<int32_t>()[i], t[0].data<int32_t>()[i], t[1].data<int32_t>()[i]});
    EXPECT_TRUE(std::is_sorted(found.begin(), found.end()));
    EXPECT_TRUE(std::equal(found.begin(), found.end(), expected.begin(), expected.end()));
    std::set<std::array<int32_t, 2>> buckets;
    for (const auto& f : found) buckets.insert({f[0], f[1]});
    EXPECT_EQ(r.n_buckets(), static_cast<int64_t>(buckets.size()));
  }
  EXPECT_THROW(build_rulebook(src, cloud(5, {1, 1, 1}, 0.4f, 50), 3), std::invalid_argument);
  EXPECT_THROW(build_rulebook(src, cloud(5, {1, 1}, 0.4f, 1), 3), std::invalid_argument);
}

// Points at voxel centers: the submanifold convolution, forward and backward.
TEST(Rulebook, PointsAtVoxelCentersAreTheSubmanifoldConvolution) {
  Random random{8};
  const CoordinateSet voxels = random_coords(random, 300, 5);
  std::vector<std::array<int32_t, 4>> rows(300);
  std::copy_n(voxels.array().data<int32_t>(), 1200, rows[0].data());
  std::stable_sort(rows.begin(), rows.end(),
                   [](const auto& a, const auto& b) { return a[0] < b[0]; });
  std::vector<float> xyz;
  std::vector<int32_t> lengths(2);
  for (const auto& r : rows) {
    for (int a = 1; a < 4; ++a)
      xyz.push_back((static_cast<float>(r[static_cast<size_t>(a)]) + 0.5f) * 0.25f);
    ++lengths[static_cast<size_t>(r[0])];
  }
  const PointSet points(mx::array(xyz.data(), {300, 3}), ints(lengths), 0.25f);
  const Rulebook r = build_rulebook(points, points, 3);
  mx::random::seed(1);
  const mx::array x = mx::random::normal({300, 12}), bias = mx::random::normal({8});
  const mx::array w = mx::random::normal({27, 2, 6, 4});
  const SparseTensor tensor(mx::array(rows[0].data(), {300, 4}, mx::int32), x, Triple{1, 1, 1});
  const mx::array kernel = mx::reshape(mx::transpose(w, {0, 2, 1, 3}), {27, 6, 8});
  ConvOptions options;
  options.groups = 2;
  const mx::array expected = subm_conv3d(tensor, kernel, bias, options).feats();
  EXPECT_TRUE(mx::allclose(point_conv(x, w, r.relation, bias), expected, 1e-4, 1e-4).item<bool>());
  const auto points_loss = [&](const mx::array& v) {
    return mx::sum(mx::square(point_conv(v, w, r.relation, bias)));
  };
  const auto voxel_loss = [&](const mx::array& v) {
    return mx::sum(mx::square(subm_conv3d(tensor.with_feats(v), kernel, bias, options).feats()));
  };
  EXPECT_TRUE(
      mx::allclose(mx::grad(points_loss)(x), mx::grad(voxel_loss)(x), 1e-3, 1e-3).item<bool>());
}

// A dense cloud has several points per cell: buckets are summed before the product.
TEST(Rulebook, ConvolutionOfADenseCloudMatchesItsTriplets) {
  const PointSet src = cloud(9, {400, 300}, 0.8f, 1), dst = grid_downsample(src, 1.2f).points;
  const Rulebook r = build_rulebook(src, dst, 3);
  ASSERT_GT(r.relation->edge_count(), 2 * r.n_buckets());
  const std::vector<mx::array> t = r.triplets();
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int c : {1, 17, 48}) {
      mx::random::seed(1);
      const mx::array x = mx::astype(mx::random::normal({700, c}), dtype),
                      w = mx::astype(mx::random::normal({27, 1, c, 40}), dtype);
      const mx::array y = point_conv(x, w, r.relation);
      const mx::array expected =
          mvmr(mx::astype(w, mx::float32), t[2],
               mx::reshape(mx::astype(x, mx::float32), {700, 1, c}), t[1], t[0], dst.size());
      const mx::array flat = mx::reshape(expected, {static_cast<int>(dst.size()), 40});
      const float scale = mx::max(mx::abs(flat)).item<float>();
      const float unit = dtype == mx::float32 ? 1e-5f : dtype == mx::float16 ? 1e-3f : 8e-3f;
      EXPECT_LE(mx::max(mx::abs(mx::subtract(mx::astype(y, mx::float32), flat))).item<float>(),
                unit * scale)
          << c;
      // The gradient runs on the reversed relation.
      const auto f = [&](const std::vector<mx::array>& in) {
        return std::vector<mx::array>{point_conv(in[0], in[1], r.relation)};
      };
      if (dtype != mx::float32) continue;
      const mx::array g = mx::random::normal(y.shape());
      const auto [value, grads] = mx::vjp(f, {x, w}, {g});
      const mx::array g3 = mx::reshape(g, {static_cast<int>(dst.size()), 1, 40}),
                      x3 = mx::reshape(x, {700, 1, c});
      const mx::array gx =
          mx::reshape(mvmr(w, t[2], g3, t[0], t[1], 700, MatrixLayout::gmc), {700, c});
      EXPECT_TRUE(mx::allclose(grads[0], gx, 1e-3, 1e-3).item<bool>());
      EXPECT_TRUE(
          mx::allclose(grads[1], vvor(x3, t[1], g3, t[0], t[2], 27), 1e-3, 1e-3).item<bool>());
    }
}

TEST(Rulebook, DownsamplingPicksOnePointACell) {
  for (const float shift : {0.0f, -3.3f}) {
    const PointSet src = cloud(10, {0, 300, 0, 1, 90}, 0.5f, 1, shift);
    const Downsampled d = grid_downsample(src, 0.5f);
    std::map<std::array<float, 4>, std::vector<int>> cells;  // sample, z, y, x
    for (int p = 0; p < src.size(); ++p)
      cells[{static_cast<float>(batch_of(src, p)), std::floor(at(src, p)[2] / 0.5f),
             std::floor(at(src, p)[1] / 0.5f), std::floor(at(src, p)[0] / 0.5f)}]
          .push_back(p);
    ASSERT_EQ(d.points.size(), static_cast<int64_t>(cells.size()));
    EXPECT_EQ(d.points.batch_size(), 5);
    EXPECT_EQ(d.points.grid(), 0.5f);
    int row = 0;
    for (const auto& [cell, members] : cells) {
      int best = -1;
      float least = INFINITY;
      for (const int p : members) {
        float d2 = 0;
        for (int a = 0; a < 3; ++a) {
          const float center = (cell[static_cast<size_t>(3 - a)] + 0.5f) * 0.5f;
          d2 += (at(src, p)[a] - center) * (at(src, p)[a] - center);
        }
        if (d2 < least) least = d2, best = p;
        EXPECT_EQ(d.cell_of.data<int32_t>()[p], row);
      }
      EXPECT_EQ(d.indices.data<int32_t>()[row], best);
      EXPECT_EQ(at(d.points, row)[0], at(src, best)[0]);
      ++row;
    }
    EXPECT_EQ(grid_downsample(src, 0.5f, GridPick::first).points.size(), d.points.size());
    EXPECT_EQ(grid_downsample(src, 0.5f, GridPick::mean).points.size(), d.points.size());
    // The targets of a strided convolution are sources, so that each finds itself.
    EXPECT_EQ(build_rulebook(src, d.points, 3).relation->n_out(), d.points.size());
  }
  EXPECT_EQ(grid_downsample(cloud(1, {0, 0}, 1, 1), 1).points.batch_size(), 2);
}

TEST(Rulebook, PartitionsCoverEveryPointOnce) {
  const PointSet src = cloud(11, {100, 0, 50}, 0.25f, 1);
  const Partition p = build_partition_rulebook(src, 2, 2);
  const std::vector<mx::array> t = p.rulebook.triplets();
  EXPECT_EQ(t[0].size(), 150u);
  std::set<int32_t> sources(t[1].data<int32_t>(), t[1].data<int32_t>() + 150);
  EXPECT_EQ(sources.size(), 150u);
  EXPECT_EQ(p.targets.batch_size(), 3);
  EXPECT_EQ(p.rulebook.relation->coverage().empty_outputs, 0);
  for (size_t e = 0; e < 150; ++e) {  // the part of the cell that the point lies in
    const float* s = at(src, t[1].data<int32_t>()[e]);
    const float* c = at(p.targets, t[0].data<int32_t>()[e]);
    const int32_t k = ((s[0] >= c[0]) * 2 + (s[1] >= c[1])) * 2 + (s[2] >= c[2]);
    EXPECT_EQ(t[2].data<int32_t>()[e], k);
  }
  EXPECT_THROW(build_partition_rulebook(src, 1, 2), std::invalid_argument);
}

float distance(const float* p, const float* q) {
  const float dx = p[0] - q[0], dy = p[1] - q[1], dz = p[2] - q[2];
  return std::sqrt(dx * dx + dy * dy + dz * dz);
}

TEST(Rulebook, FullCoverLeavesNoPointOut) {
  int64_t added = 0;
  for (const float shift : {0.0f, -7.7f}) {
    const PointSet src = cloud(13, {0, 500, 1, 0, 260}, 0.2f, 3, shift);
    const FullCover c = build_full_cover_rulebook(src, 2, 5);
    const int64_t n_first = grid_downsample(src, 0.4f).points.size();
    ASSERT_EQ(c.targets.size(), n_first + c.n_added);
    ASSERT_EQ(c.targets.batch_size(), 5);
    EXPECT_EQ(c.rulebook.relation->coverage().unused_inputs, 0);
    EXPECT_EQ(c.rulebook.relation->coverage().empty_outputs, 0);
    const std::vector<mx::array> t = c.rulebook.triplets();
    for (size_t e = 0; e < t[0].size(); ++e) {
      const float *p = at(src, t[1].data<int32_t>()[e]),
                  *q = at(c.targets, t[0].data<int32_t>()[e]);
      ASSERT_LE(distance(p, q), c.rulebook.radius);
      int32_t k = 0;
      for (int a = 0; a < 3; ++a) {
        const int32_t d = static_cast<int32_t>(std::nearbyint((p[a] - q[a]) / src.grid()));
        ASSERT_LE(std::abs(d), 2);  // never clamped
        k = k * 5 + d + 2;
      }
      ASSERT_EQ(t[2].data<int32_t>()[e], k);
    }
    // Added targets are farther than the radius from all others.
    std::set<int32_t> first;
    const Downsampled down = grid_downsample(src, 0.4f);
    first.insert(down.indices.data<int32_t>(), down.indices.data<int32_t>() + n_first);
    for (int i = 0; i < c.targets.size(); ++i) {
      EXPECT_EQ(at(c.targets, i)[1], at(src, c.indices.data<int32_t>()[i])[1]);
      if (first.count(c.indices.data<int32_t>()[i])) continue;
      ++added;
      for (int j = 0; j < c.targets.size(); ++j) {
        if (i == j || batch_of(c.targets, i) != batch_of(c.targets, j)) continue;
        EXPECT_GT(distance(at(c.targets, i), at(c.targets, j)), c.rulebook.radius);
      }
    }
    // Turned round, an edge has the opposite offset.
    const std::vector<mx::array> back = c.rulebook.transposed(true).triplets();
    std::set<std::array<int32_t, 3>> edges;
    for (size_t e = 0; e < t[0].size(); ++e)
      edges.insert(
          {t[0].data<int32_t>()[e], t[1].data<int32_t>()[e], 124 - t[2].data<int32_t>()[e]});
    ASSERT_EQ(back[0].size(), t[0].size());
    for (size_t e = 0; e < t[0].size(); ++e)
      ASSERT_TRUE(edges.count(
          {back[1].data<int32_t>()[e], back[0].data<int32_t>()[e], back[2].data<int32_t>()[e]}));
  }
  EXPECT_GT(added, 0);
  EXPECT_THROW(build_full_cover_rulebook(cloud(1, {4}, 1, 1), 2, 4), std::invalid_argument);
  EXPECT_THROW(build_full_cover_rulebook(cloud(1, {4}, 1, 1), 8, 14), std::invalid_argument);
  EXPECT_EQ(build_full_cover_rulebook(cloud(1, {0, 0}, 1, 1), 8, 15).targets.batch_size(), 2);
}

TEST(Rulebook, GeneratedTargetsAreTheVoxelsOfTheStencil) {
  const PointSet src = cloud(14, {0, 60, 1, 30}, 0.5f, 2, -1);
  const Generated g = build_generative_rulebook(src, 3, 2);
  const std::vector<mx::array> t = g.rulebook.triplets();
  ASSERT_EQ(t[0].size(), 91u * 27);
  std::map<std::array<int, 4>, int> targets;  // sample, z, y, x -> row
  for (int p = 0; p < src.size(); ++p)
    for (int k = 0; k < 27; ++k) {
      const auto cell = [&](int a, int l) {
        return static_cast<int>(std::floor(at(src, p)[a] / 0.25f)) + l - 1;
      };
      targets[{batch_of(src, p), cell(2, k % 3), cell(1, k / 3 % 3), cell(0, k / 9)}] = 0;
    }
  ASSERT_EQ(g.targets.size(), static_cast<int64_t>(targets.size()));
  EXPECT_EQ(g.targets.batch_size(), 4);
  int row = 0;
  for (auto& [cell, at_row] : targets) {
    at_row = row;
    for (int a = 0; a < 3; ++a)
      EXPECT_EQ(at(g.targets, row)[a],
                (static_cast<float>(cell[static_cast<size_t>(3 - a)]) + 0.5f) * 0.25f);
    ++row;
  }
  for (size_t e = 0; e < t[0].size(); ++e) {
    const int p = t[1].data<int32_t>()[e], k = t[2].data<int32_t>()[e];
    const auto cell = [&](int a, int l) {
      return static_cast<int>(std::floor(at(src, p)[a] / 0.25f)) + l - 1;
    };
    EXPECT_EQ(t[0].data<int32_t>()[e],
              (targets.at({batch_of(src, p), cell(2, k % 3), cell(1, k / 3 % 3), cell(0, k / 9)})));
  }
  // Parts of voxels that no two points share have one edge each.
  const PointSet apart = grid_downsample(src, 0.5f, GridPick::center).points;
  const Generated parts = build_subdivision_rulebook(apart, 2);
  EXPECT_EQ(parts.targets.size(), 8 * apart.size());
  EXPECT_TRUE(parts.rulebook.exact_cover_out());
  EXPECT_FALSE(g.rulebook.exact_cover_out());
  EXPECT_THROW(build_generative_rulebook(src, 3, 0), std::invalid_argument);
  EXPECT_THROW(build_subdivision_rulebook(PointSet(mx::full({1, 3}, 1e9f), std::nullopt, 1), 8),
               std::overflow_error);
}

TEST(Rulebook, SameForAnyThreadsAndTransposes) {
  const PointSet src = cloud(12, {3000, 2500}, 0.1f, 1), dst = grid_downsample(src, 0.2f).points;
  const int before = cpu::thread_count();
  std::vector<std::vector<mx::array>> all;
  for (const int threads : {1, 2}) {
    cpu::set_thread_count(threads);
    all.push_back(build_rulebook(src, dst, 3).triplets());
    for (const Rulebook& r : {build_full_cover_rulebook(src, 2, 5).rulebook,
                              build_generative_rulebook(src, 2).rulebook})
      for (const mx::array& a : r.triplets()) all.back().push_back(a);
  }
  cpu::set_thread_count(before);
  for (size_t i = 0; i < 12; ++i) EXPECT_TRUE(mx::array_equal(all[0][i], all[1][i]).item<bool>());
  const Rulebook r = build_rulebook(src, dst, 3), up = r.transposed();
  EXPECT_EQ(up.relation->n_in(), dst.size());
  EXPECT_EQ(up.relation->n_out(), src.size());
  EXPECT_EQ(up.relation->edge_count(), r.relation->edge_count());
}

TEST(Rulebook, Errors) {
  const mx::array p = mx::zeros({2, 3});
  EXPECT_THROW(PointSet(mx::zeros({2, 2}), std::nullopt, 1), std::invalid_argument);
  EXPECT_THROW(PointSet(p, ints({1}), 1), std::invalid_argument);
  EXPECT_THROW(PointSet(p, std::nullopt, 0), std::invalid_argument);
  EXPECT_THROW(PointSet(mx::array({NAN, 0.f, 0.f}, {1, 3}), std::nullopt, 1),
               std::invalid_argument);
  const PointSet points(p, std::nullopt, 1);
  EXPECT_THROW(radius_search(points, points, 0), std::invalid_argument);
  EXPECT_THROW(grid_downsample(points, -1), std::invalid_argument);
  EXPECT_THROW(grid_downsample(PointSet(mx::full({1, 3}, 1e30f), std::nullopt, 1), 1e-3f),
               std::overflow_error);
  EXPECT_THROW(build_rulebook(points, points, 0), std::invalid_argument);
  EXPECT_THROW(voxel_tap(mx::zeros({2, 2}), 1, 3), std::invalid_argument);
  EXPECT_THROW(parse_pick("random", "test"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice

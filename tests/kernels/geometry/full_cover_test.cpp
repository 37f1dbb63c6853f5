// Targets that cover points, and targets that are made from them: against loops, with empty clouds,
// any number of threads.
#include "lattice/kernels/cpu/geometry/full_cover.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <map>
#include <set>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/generate.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

struct Cloud {
  std::vector<float> xyz;
  std::vector<int32_t> offsets{0};
  Cloud(const std::vector<int32_t>& lengths, float extent) {
    support::Random random(5);
    for (const int32_t n : lengths) {
      for (int32_t i = 0; i < 3 * n; ++i)
        xyz.push_back(extent * (static_cast<float>(random.below(2000)) * 1e-3f - 1.0f));
      offsets.push_back(offsets.back() + n);
    }
  }
  PointSpan span() const {
    return {xyz.data(), static_cast<int64_t>(xyz.size() / 3), offsets.data(),
            static_cast<int64_t>(offsets.size()) - 1};
  }
  float distance(int32_t a, int32_t b) const {
    float d[3];
    for (size_t i = 0; i < 3; ++i)
      d[i] = xyz[static_cast<size_t>(a) * 3 + i] - xyz[static_cast<size_t>(b) * 3 + i];
    return std::sqrt(d[0] * d[0] + d[1] * d[1] + d[2] * d[2]);
  }
};

// One cell per cloud, whose representative is its first point, so most points are left out.
TEST(Cover, IsAMaximalNet) {
  const Cloud cloud({0, 300, 1, 200, 0}, 3);
  const std::vector<int32_t> chosen{0, 300, 301};
  std::vector<int32_t> cell_of(501, 0);
  for (size_t i = 300; i < 501; ++i) cell_of[i] = i == 300 ? 1 : 2;
  const int before = thread_count();
  std::vector<std::vector<int32_t>> all;
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    const Cover cover = cover_points(cloud.span(), chosen.data(), 3, cell_of.data(), 1.0f);
    EXPECT_EQ(cover.rows.size(), 3 + cover.n_added);
    EXPECT_GT(cover.n_added, 40);
    for (int64_t s = 0; s < 5; ++s)
      for (int32_t i = cover.offsets[s]; i < cover.offsets[s + 1]; ++i) {
        EXPECT_TRUE(cover.rows[i] >= cloud.offsets[static_cast<size_t>(s)] &&
                    cover.rows[i] < cloud.offsets[static_cast<size_t>(s) + 1]);
        if (i > cover.offsets[s] + 1) {  // behind the representative
          EXPECT_LT(cover.rows[i - 1], cover.rows[i]);
        }
        for (int32_t j = cover.offsets[s]; j < i; ++j)
          EXPECT_GT(cloud.distance(cover.rows[i], cover.rows[j]), 1.0f);
      }
    for (int64_t s = 0; s < 5; ++s)
      for (int32_t p = cloud.offsets[static_cast<size_t>(s)];
           p < cloud.offsets[static_cast<size_t>(s) + 1]; ++p) {
        bool seen = false;
        for (int32_t i = cover.offsets[s]; i < cover.offsets[s + 1]; ++i)
          seen = seen || cloud.distance(p, cover.rows[i]) <= 1.0f;
        EXPECT_TRUE(seen) << p;
      }
    all.emplace_back(cover.rows.begin(), cover.rows.end());
  }
  set_thread_count(before);
  EXPECT_EQ(all[0], all[1]);
  const Cloud none({0, 0}, 1);
  EXPECT_EQ(cover_points(none.span(), nullptr, 0, nullptr, 1).rows.size(), 0);
}

TEST(Generate, EveryPointReachesItsStencil) {
  const Cloud cloud({0, 70, 1, 40}, 2);
  const std::vector<int32_t> stencil{0, 0, 0, 1, -2, 0,
                                     0, 0, 3, 0, 0,  0};  // the last is the first again
  for (const int32_t scale : {1, 3}) {
    const Generated made = generate_targets(cloud.span(), 0.5f, scale, stencil.data(), 4);
    std::map<std::array<int32_t, 4>, int32_t> targets;  // sample, z, y, x
    const auto target = [&](int32_t p, size_t k) {
      int32_t sample = 0;
      while (p >= cloud.offsets[static_cast<size_t>(sample) + 1]) ++sample;
      const auto at = [&](size_t a) {
        return scale * static_cast<int32_t>(
                           std::floor(cloud.xyz[static_cast<size_t>(p) * 3 + a] / 0.5f)) +
               stencil[k * 3 + a];
      };
      return std::array<int32_t, 4>{sample, at(2), at(1), at(0)};
    };
    for (int32_t p = 0; p < 111; ++p)
      for (size_t k = 0; k < 4; ++k) targets[target(p, k)] = 0;
    int32_t row = 0;
    for (auto& [cell, at] : targets) {
      at = row;
      const int32_t* found = made.cells.begin() + row++ * 4;
      EXPECT_EQ((std::array<int32_t, 4>{found[0], found[3], found[2], found[1]}), cell);
    }
    EXPECT_EQ(made.lists.n_out, row);
    EXPECT_EQ(made.lists.n_edges, 4 * 111);
    for (size_t k = 0; k < 4; ++k) {
      std::set<int32_t> points;
      const OffsetList& list = made.lists.lists[k];
      for (int64_t e = 0; e < list.size; ++e) {
        const int32_t p = (*made.lists.in_order)[list.in[e]];
        points.insert(p);
        EXPECT_EQ(list.out[e], targets.at(target(p, k)));
        if (e) {
          EXPECT_LE(list.out[e - 1], list.out[e]);
        }
      }
      EXPECT_EQ(points.size(), 111u);
    }
  }
  EXPECT_EQ(generate_targets(Cloud({0, 0}, 1).span(), 1, 1, stencil.data(), 4).lists.n_out, 0);
  const Cloud far({3}, 1e9f);
  EXPECT_THROW(generate_targets(far.span(), 1, 8, stencil.data(), 4), std::overflow_error);
}

}  // namespace
}  // namespace lattice::cpu

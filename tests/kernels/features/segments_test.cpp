// Reductions over groups of rows against float64 loops. Cases: every instruction set, storage type
// and mode, odd channel counts, empty and huge segments, weights. Also permuted rows and outputs,
// ties and NaN, any number of threads.
#include "lattice/kernels/cpu/features/segments.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/values.h"

namespace lattice::cpu {
namespace {

using support::float_type_of;
using support::on_each_target;

struct Case {
  std::vector<int32_t> offsets, rows, out_rows;
  std::vector<float> weights;
  int64_t n_x = 0;
  Segments segments() const {
    const auto data = [](const auto& v) { return v.empty() ? nullptr : v.data(); };
    return {static_cast<int64_t>(offsets.size()) - 1, offsets.data(), data(rows), data(out_rows),
            data(weights)};
  }
  int64_t row(int64_t e) const { return rows.empty() ? e : rows[static_cast<size_t>(e)]; }
  int64_t out(int64_t s) const { return out_rows.empty() ? s : out_rows[static_cast<size_t>(s)]; }
  double weight(int64_t e) const {
    return weights.empty() ? 1.0 : double{weights[static_cast<size_t>(e)]};
  }
};

// Segments of the given sizes; `listed`: rows at random out of n_x, outputs permuted.
Case make_case(const std::vector<int64_t>& sizes, bool listed, bool weighted, uint64_t seed) {
  support::Random random(seed);
  Case c;
  c.offsets = {0};
  for (const int64_t n : sizes) c.offsets.push_back(c.offsets.back() + static_cast<int32_t>(n));
  const int64_t entries = c.offsets.back();
  c.n_x = entries;
  if (listed) {
    c.n_x = entries / 2 + 1;
    for (int64_t e = 0; e < entries; ++e)
      c.rows.push_back(static_cast<int32_t>(random.below(c.n_x)));
    c.out_rows.resize(sizes.size());
    std::iota(c.out_rows.begin(), c.out_rows.end(), 0);
    random.shuffle_rows(c.out_rows, 1);
  }
  if (weighted)
    for (int64_t e = 0; e < entries; ++e)
      c.weights.push_back(0.25f + static_cast<float>(random.unit()));
  return c;
}

template <typename T>
constexpr double unit() {
  return std::is_same_v<T, float> ? 0x1p-24 : std::is_same_v<T, half_t> ? 0x1p-11 : 0x1p-8;
}

// Multiples of 1/8 in [-1, 1]: ties are common.
template <typename T>
std::vector<T> values(int64_t n, uint64_t seed) {
  support::Random random(seed);
  std::vector<T> out(static_cast<size_t>(n));
  for (T& v : out) v = narrow<T>(static_cast<float>(random.below(17) - 8) / 8);
  return out;
}

template <typename T>
void check(const Case& c, int64_t channels, Reduction reduction) {
  SCOPED_TRACE("channels " + std::to_string(channels) + " mode " +
               std::to_string(static_cast<int>(reduction)));
  const auto x = values<T>(c.n_x * channels, 3);
  const Segments s = c.segments();
  std::vector<T> y(static_cast<size_t>(s.n * channels), narrow<T>(99.0f));
  reduce_segments(s, {float_type_of<T>(), x.data(), c.n_x, channels}, reduction, y.data());
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t k = 0; k < channels; ++k) {
      double sum = 0, magnitude = 0, weight = 0, most = -INFINITY;
      for (int64_t e = s.offsets[i]; e < s.offsets[i + 1]; ++e) {
        const double v = double{widen(x[static_cast<size_t>(c.row(e) * channels + k)])};
        sum += c.weight(e) * v;
        magnitude += c.weight(e) * std::fabs(v);
        weight += c.weight(e);
        most = std::max(most, v);
      }
      const bool empty = s.offsets[i] == s.offsets[i + 1];
      double expected = reduction == Reduction::max ? most : sum;
      if (reduction == Reduction::mean && !empty) expected /= weight, magnitude /= weight;
      if (empty) expected = 0;
      const double found = double{widen(y[static_cast<size_t>(c.out(i) * channels + k)])};
      const double slack = reduction == Reduction::max
                               ? 0
                               : 1.01 * unit<T>() * std::fabs(expected) + 0x1p-16 * magnitude;
      ASSERT_LE(std::fabs(found - expected), slack)
          << "segment " << i << " of " << s.offsets[i + 1] - s.offsets[i];
    }
}

template <typename T>
void check_all(const Case& c) {
  for (const int64_t channels : {1, 3, 16, 17, 64, 70})
    for (const Reduction reduction : {Reduction::sum, Reduction::mean, Reduction::max})
      if (c.weights.empty() || reduction != Reduction::max) check<T>(c, channels, reduction);
}

std::vector<int64_t> mixed_sizes() {
  std::vector<int64_t> sizes;
  support::Random random(5);
  for (int i = 0; i < 60; ++i) sizes.push_back(random.below(7));
  sizes.push_back(300);
  sizes.push_back(0);
  return sizes;
}

TEST(Segments, EveryTargetStorageAndMode) {
  on_each_target([] {
    for (const bool listed : {false, true})
      for (const bool weighted : {false, true}) {
        const Case c = make_case(mixed_sizes(), listed, weighted, 1);
        check_all<float>(c);
        check_all<half_t>(c);
        check_all<bfloat_t>(c);
      }
  });
}

TEST(Segments, OneHugeSegmentAmongEmptyOnes) {
  for (const bool weighted : {false, true})
    for (const int64_t n : {kLongSegment, kLongSegment + 1, int64_t{40000}}) {
      const Case c = make_case({0, 2, n, 0, 1}, weighted, weighted, 2);
      for (const Reduction r : {Reduction::sum, Reduction::mean, Reduction::max})
        if (!weighted || r != Reduction::max) check<float>(c, 5, r), check<bfloat_t>(c, 5, r);
    }
}

TEST(Segments, Nothing) {
  check_all<float>(make_case({}, false, false, 1));
  check_all<half_t>(make_case({0, 0, 0}, false, false, 1));
  int32_t none[] = {0};
  reduce_segments({0, none}, {FloatType::f32, nullptr, 0, 4}, Reduction::max, nullptr);
  float out[1] = {7};
  int32_t two[] = {0, 0};
  reduce_segments({1, two}, {FloatType::f32, nullptr, 0, 0}, Reduction::sum, out);
  EXPECT_EQ(out[0], 7);
}

TEST(Segments, NanWins) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const std::vector<float>& x : {std::vector<float>{1, nan, 2}, {nan, 1, 2}, {1, 2, nan}}) {
    float y = 0;
    const int32_t offsets[] = {0, 3};
    reduce_segments({1, offsets}, {FloatType::f32, x.data(), 3, 1}, Reduction::max, &y);
    EXPECT_TRUE(std::isnan(y));
  }
  const std::vector<float> low = {-INFINITY, -INFINITY};
  float y = 0;
  const int32_t offsets[] = {0, 2};
  reduce_segments({1, offsets}, {FloatType::f32, low.data(), 2, 1}, Reduction::max, &y);
  EXPECT_EQ(y, -INFINITY);
}

template <typename T>
void check_match(const Case& c, int64_t channels) {
  const Segments s = c.segments();
  const auto x = values<T>(c.n_x * channels, 4), b = values<T>(c.n_x * channels, 5);
  std::vector<T> a(static_cast<size_t>(s.n * channels)), y = a;
  std::vector<T> shared(a.size());
  const auto g = values<T>(s.n * channels, 6);
  std::vector<int32_t> best(a.size(), 99);
  const RowArray rows{float_type_of<T>(), b.data(), c.n_x, channels};
  reduce_segments(s, rows, Reduction::max, a.data());
  max_match_segments(s, a.data(), b.data(), {float_type_of<T>(), x.data(), c.n_x, channels},
                     y.data());
  tie_share_segments(s, a.data(), rows, g.data(), shared.data());
  argmax_segments(s, rows, best.data());
  for (int64_t i = 0; i < s.n; ++i)
    for (int64_t k = 0; k < channels; ++k) {
      const auto at = static_cast<size_t>(c.out(i) * channels + k);
      double sum = 0, count = 0;
      int64_t smallest = -1;
      for (int64_t e = s.offsets[i]; e < s.offsets[i + 1]; ++e) {
        const auto from = static_cast<size_t>(c.row(e) * channels + k);
        if (widen(b[from]) != widen(a[at])) continue;
        sum += double{widen(x[from])};
        ++count;
        smallest = smallest < 0 ? c.row(e) : std::min(smallest, c.row(e));
      }
      ASSERT_LE(std::fabs(double{widen(y[at])} - sum),
                1.01 * unit<T>() * std::fabs(sum));  // eighths: exact in float32
      const double share = count > 0 ? double{widen(g[at])} / count : 0;
      ASSERT_LE(std::fabs(double{widen(shared[at])} - share), 1.01 * unit<T>() * std::fabs(share));
      ASSERT_EQ(best[at], smallest);
    }
}

TEST(Segments, MatchAndArgmax) {
  on_each_target([] {
    for (const bool listed : {false, true})
      for (const int64_t channels : {1, 5, 33}) {
        const Case c = make_case(mixed_sizes(), listed, false, 7);
        check_match<float>(c, channels);
        check_match<half_t>(c, channels);
        check_match<bfloat_t>(c, channels);
      }
  });
}

TEST(Segments, GatherRows) {
  const std::vector<int32_t> rows = {3, -1, 0, 3, 2, -7};
  const auto x = values<half_t>(4 * 5, 1);
  std::vector<half_t> y(6 * 5);
  gather_rows({FloatType::f16, x.data(), 4, 5}, rows.data(), 6, 2.5f, y.data());
  for (size_t j = 0; j < rows.size(); ++j)
    for (size_t c = 0; c < 5; ++c)
      EXPECT_EQ(widen(y[j * 5 + c]),
                rows[j] < 0 ? 2.5f : widen(x[static_cast<size_t>(rows[j]) * 5 + c]));
}

TEST(Segments, SameBitsForAnyNumberOfThreads) {
  std::vector<int64_t> sizes(4000);
  support::Random random(3);
  for (int64_t& n : sizes) n = random.below(9);
  sizes[77] = 30000;
  const Case c = make_case(sizes, true, true, 4);
  std::vector<float> x(static_cast<size_t>(c.n_x * 24));
  for (float& v : x) v = static_cast<float>(random.uniform(-1, 1));
  const int before = thread_count();
  std::vector<std::vector<float>> results;
  for (const int threads : {1, 2, 5}) {
    set_thread_count(threads);
    results.emplace_back(sizes.size() * 24);
    reduce_segments(c.segments(), {FloatType::f32, x.data(), c.n_x, 24}, Reduction::mean,
                    results.back().data());
  }
  set_thread_count(before);
  EXPECT_EQ(results[0], results[1]);
  EXPECT_EQ(results[0], results[2]);
}

}  // namespace
}  // namespace lattice::cpu

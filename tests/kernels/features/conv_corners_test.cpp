// Corners of conv and outer that shapes alone do not reach. Cases: every bit pattern of the 16-bit
// types, weights that are not kept, transposed weights with groups, infinities. Also long relations
// whose window moves, many offsets, bad arguments.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/outer.h"
#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/relation_lists.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::on_each_target;

std::vector<float> values(int64_t n, uint64_t seed) {
  support::Random random(seed);
  std::vector<float> out(static_cast<size_t>(n));
  for (float& v : out) v = static_cast<float>(random.uniform(-1, 1));
  return out;
}

// W (n_k, c_in / groups, c_out) as it lies in memory.
DenseWeight forward_weight(const float* w, int64_t c_in, int64_t c_out, int64_t groups) {
  return {{c_in, c_out, groups}, w};
}

using Values = std::vector<double>;
int64_t row(const std::shared_ptr<const Buffer<int32_t>>& order, int32_t p) {
  return order ? (*order)[p] : p;
}

// Calls f(k, input row, output row) for each edge.
template <typename F>
void each_edge(const RelationLists& lists, const F& f) {
  for (int64_t k = 0; k < lists.n_k(); ++k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    for (int64_t e = 0; e < list.size; ++e)
      f(k, row(lists.in_order, list.in_at(e)), row(lists.out_order, list.out_at(e)));
  }
}

Values oracle_conv(const RelationLists& lists, const std::vector<float>& x,
                   const std::vector<float>& w, int64_t c_in, int64_t c_out, int64_t groups) {
  Values y(static_cast<size_t>(lists.n_out * c_out));
  const int64_t ci = c_in / groups, co = c_out / groups;
  each_edge(lists, [&](int64_t k, int64_t i, int64_t o) {
    for (int64_t m = 0; m < c_out; ++m)
      for (int64_t c = 0; c < ci; ++c)
        y[static_cast<size_t>(o * c_out + m)] +=
            double{x[static_cast<size_t>(i * c_in + m / co * ci + c)]} *
            double{w[static_cast<size_t>((k * ci + c) * c_out + m)]};
  });
  return y;
}

void expect_near(const std::vector<float>& found, const Values& expected, double most) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i)
    ASSERT_NEAR(double{found[i]}, expected[i], most) << "element " << i;
}

// x through a 1x1 convolution with weight 1 is read and written once: every 16-bit pattern must
// come back, NaN as NaN.
template <typename T>
void check_round_trip(FloatType storage) {
  const int64_t n = 65536;
  std::vector<T> x(static_cast<size_t>(n)), y(x.size());
  for (int64_t i = 0; i < n; ++i) x[static_cast<size_t>(i)].bits = static_cast<uint16_t>(i);
  const RelationLists lists = identity(n / 16);
  // Depthwise: no product with 0 meets an infinity.
  const std::vector<float> ones(16, 1.0f);
  const DenseWeight weight = forward_weight(ones.data(), 16, 16, 16);
  conv(lists, tile_bounds(lists, 256),
       {{16, 16, 16, storage}, x.data(), &weight, nullptr, y.data()});
  for (size_t i = 0; i < x.size(); ++i) {
    const float a = widen(x[i]), b = widen(y[i]);
    if (std::isnan(a)) {
      ASSERT_TRUE(std::isnan(b)) << i;
    } else {
      ASSERT_EQ(a, b) << i;
    }
  }
}

TEST(Rows, EveryPatternOfTheSmallTypes) {
  on_each_target([] {
    check_round_trip<half_t>(FloatType::f16);
    check_round_trip<bfloat_t>(FloatType::bf16);
  });
}

// float32 values around every boundary of rounding, written as 16 bits by the vector code, must be
// what `narrow` says.
template <typename T>
void check_rounding(FloatType storage) {
  std::vector<float> values;
  for (uint32_t bits = 0; bits < 0x7f900000u; bits += 0x00003fffu / 3) {
    for (uint32_t sign : {0u, 0x80000000u}) values.push_back(std::bit_cast<float>(bits | sign));
  }
  for (uint32_t exponent = 0x30; exponent < 0xff; ++exponent) {
    for (uint32_t tail : {0x0fffu, 0x1000u, 0x1001u, 0x2fffu, 0x3000u, 0x3001u, 0x7fffu, 0x8000u,
                          0x8001u, 0x18000u, 0x7fffffu})
      values.push_back(std::bit_cast<float>(exponent << 23 | tail));
  }
  values.resize(values.size() / 64 * 64);
  // The bias is widened from T, so the values come in as weights, which have a storage of their
  // own.
  const int64_t n = static_cast<int64_t>(values.size());
  const RelationLists lists = identity(1);
  DenseWeight weight = forward_weight(values.data(), 1, n, 1);
  std::vector<T> one(1, narrow<T>(1.0f)), y(values.size());
  conv(lists, tile_bounds(lists, 256),
       {{1, n, 1, storage}, one.data(), &weight, nullptr, y.data()});
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(widen(y[i]))) << i;
    } else {
      // The sum starts at +0, so a negative zero becomes positive.
      ASSERT_EQ(widen(y[i]), widen(narrow<T>(values[i]))) << "value " << values[i];
    }
  }
}

TEST(Rows, RoundsToNearestEven) {
  EXPECT_EQ(narrow<half_t>(65519.0f).bits, 0x7bff);
  EXPECT_EQ(narrow<half_t>(65520.0f).bits, 0x7c00);
  EXPECT_EQ(narrow<half_t>(0x1p-25f).bits, 0);
  EXPECT_EQ(narrow<half_t>(0x1.8p-24f).bits, 2);
  EXPECT_EQ(narrow<half_t>(1.0f + 0x1p-11f).bits, 0x3c00);
  EXPECT_EQ(narrow<half_t>(1.0f + 0x1.8p-10f).bits, 0x3c02);
  EXPECT_EQ(narrow<bfloat_t>(1.0f + 0x1p-8f).bits, 0x3f80);
  EXPECT_EQ(narrow<bfloat_t>(std::numeric_limits<float>::max()).bits, 0x7f80);
  on_each_target([] {
    check_rounding<half_t>(FloatType::f16);
    check_rounding<bfloat_t>(FloatType::bf16);
  });
}

// Weights that must not be kept, and weights too large to keep, give the bits of those that are.
TEST(Conv, WeightsMadeAsTheyAreUsed) {
  struct Source final : WeightSource {
    explicit Source(const DenseWeight& dense) : dense(dense) {}
    DenseWeight dense;
    void fill(int64_t k, int64_t column, int64_t columns, int64_t width,
              float* dst) const override {
      dense.fill(k, column, columns, width, dst);
    }
    bool keep_all() const override { return false; }
  };
  const RelationLists lists = submanifold(support::random_set(3000, 10, 1));
  const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
  for (const int64_t c : {16, 33, 100}) {
    const auto x = values(lists.n_in * c, 1), w = values(27 * c * c, 2);
    const Source source(forward_weight(w.data(), c, c, 1));
    std::vector<float> kept(static_cast<size_t>(lists.n_out * c)), made(kept.size());
    conv(lists, bounds, {{c, c, 1}, x.data(), &source.dense, nullptr, kept.data()});
    conv(lists, bounds, {{c, c, 1}, x.data(), &source, nullptr, made.data()});
    EXPECT_EQ(kept, made) << c;
  }
  const RelationLists few = submanifold(support::random_set(40, 3, 1));
  const int64_t c = 300;  // 27 * 300 * 300 * 4 bytes > 7 MiB
  const auto x = values(few.n_in * c, 1), w = values(27 * c * c, 2);
  const DenseWeight weight = forward_weight(w.data(), c, c, 1);
  std::vector<float> y(static_cast<size_t>(few.n_out * c));
  conv(few, tile_bounds(few, 256), {{c, c, 1}, x.data(), &weight, nullptr, y.data()});
  expect_near(y, oracle_conv(few, x, w, c, c, 1), 1e-3);
}

// The input gradient with groups: the forward's array read with exchanged strides.
TEST(Conv, TransposedWeightsWithGroups) {
  const RelationLists lists = submanifold(support::random_set(250, 4, 1)), back = reversed(lists);
  for (const auto& [c_in, c_out, groups] :
       {std::tuple{12, 20, 1}, {12, 20, 2}, {12, 20, 4}, {8, 8, 8}, {6, 12, 6}, {64, 32, 1}}) {
    const int64_t ci = c_in / groups, co = c_out / groups;
    const auto g = values(lists.n_out * c_out, 1), w = values(27 * ci * c_out, 2);
    DenseWeight weight = forward_weight(w.data(), c_in, c_out, groups);
    weight.shape = weight.shape.reversed();
    std::swap(weight.stride_in, weight.stride_out);
    std::vector<float> dx(static_cast<size_t>(lists.n_in * c_in));
    conv(back, tile_bounds(back, 256),
         {{c_out, c_in, groups}, g.data(), &weight, nullptr, dx.data()});
    Values expected(dx.size());
    each_edge(lists,
              [&, ci = ci, co = co, c_in = c_in, c_out = c_out](int64_t k, int64_t i, int64_t o) {
                for (int64_t m = 0; m < c_out; ++m)
                  for (int64_t c = 0; c < ci; ++c)
                    expected[static_cast<size_t>(i * c_in + m / co * ci + c)] +=
                        double{g[static_cast<size_t>(o * c_out + m)]} *
                        double{w[static_cast<size_t>((k * ci + c) * c_out + m)]};
              });
    expect_near(dx, expected, 1e-4);
  }
}

// An infinity stays in its own row, and in the columns of its own group; padding never meets it.
TEST(Conv, InfinitiesStayWhereTheyBelong) {
  const RelationLists lists = identity(40);
  on_each_target([&] {
    for (const int64_t groups : {1, 3}) {
      const int64_t c = 15;
      auto x = values(40 * c, 1);
      x[7 * c + 14] = std::numeric_limits<float>::infinity();
      const auto w = values(c / groups * c, 2);
      const DenseWeight weight = forward_weight(w.data(), c, c, groups);
      std::vector<float> y(static_cast<size_t>(40 * c));
      conv(lists, tile_bounds(lists, 256), {{c, c, groups}, x.data(), &weight, nullptr, y.data()});
      for (int64_t i = 0; i < 40 * c; ++i)
        ASSERT_EQ(std::isfinite(y[static_cast<size_t>(i)]),
                  i / c != 7 || (groups == 3 && i % c < 10))
            << i;
    }
  });
}

// Thousands of rows: the window moves on, the ring wraps, tasks split.
TEST(Conv, WindowsThatMove) {
  for (const int64_t tile : {64, 256, 2048}) {
    const RelationLists lists = submanifold(support::random_set(30000, 40, 1));
    const TileBounds bounds = tile_bounds(lists, tile);
    const int64_t c_in = 5, c_out = 3;
    const auto x = values(lists.n_in * c_in, 1), w = values(27 * c_in * c_out, 2),
               g = values(lists.n_out * c_out, 3);
    const DenseWeight weight = forward_weight(w.data(), c_in, c_out, 1);
    std::vector<float> y(static_cast<size_t>(lists.n_out * c_out)), u(w.size());
    conv(lists, bounds, {{c_in, c_out, 1}, x.data(), &weight, nullptr, y.data()});
    expect_near(y, oracle_conv(lists, x, w, c_in, c_out, 1), 1e-4);
    outer(lists, bounds, {{c_in, c_out, 1}, x.data(), g.data(), u.data()});
    Values expected(u.size());
    each_edge(lists, [&](int64_t k, int64_t i, int64_t o) {
      for (int64_t c = 0; c < c_in; ++c)
        for (int64_t m = 0; m < c_out; ++m)
          expected[static_cast<size_t>((k * c_in + c) * c_out + m)] +=
              double{x[static_cast<size_t>(i * c_in + c)]} *
              double{g[static_cast<size_t>(o * c_out + m)]};
    });
    expect_near(u, expected, 1e-2);
  }
}

TEST(Conv, ManyOffsets) {
  support::Random random(3);
  const int64_t n = 50, n_k = 3000, n_edges = 4000;
  std::vector<int32_t> in, out, k;
  for (int64_t e = 0; e < n_edges; ++e) {
    in.push_back(static_cast<int32_t>(random.below(n)));
    out.push_back(static_cast<int32_t>(random.below(n)));
    k.push_back(static_cast<int32_t>(random.below(n_k)));
  }
  const RelationLists lists = lists_of_edges(in.data(), out.data(), k.data(), n_edges, n, n, n_k);
  const auto x = values(n * 4, 1), w = values(n_k * 4 * 6, 2);
  const DenseWeight weight = forward_weight(w.data(), 4, 6, 1);
  std::vector<float> y(static_cast<size_t>(n * 6));
  conv(lists, tile_bounds(lists, conv_tile(lists)),
       {{4, 6, 1}, x.data(), &weight, nullptr, y.data()});
  expect_near(y, oracle_conv(lists, x, w, 4, 6, 1), 1e-3);
}

TEST(Conv, TileGrowsWithFewEdgesAnOffset) {
  RelationLists lists;
  lists.n_out = 100000;
  lists.lists.resize(27);
  lists.n_edges = 800000;
  EXPECT_EQ(conv_tile(lists), 256);
  lists.lists.resize(4000);
  EXPECT_EQ(conv_tile(lists), 500);
  lists.n_edges = 0;
  EXPECT_EQ(conv_tile(lists), 2048);
}

TEST(Conv, BadArguments) {
  const RelationLists lists = identity(4), other = identity(5000);
  const std::vector<float> x(64), w(64);
  std::vector<float> y(64);
  const DenseWeight weight = forward_weight(w.data(), 4, 4, 1);
  const auto call = [&](const TileBounds& bounds, int64_t c_in, int64_t c_out, int64_t groups) {
    conv(lists, bounds, {{c_in, c_out, groups}, x.data(), &weight, nullptr, y.data()});
  };
  const auto call_outer = [&](const TileBounds& bounds, int64_t c_in, int64_t c_out,
                              int64_t groups) {
    outer(lists, bounds, {{c_in, c_out, groups}, x.data(), x.data(), y.data()});
  };
  const TileBounds bounds = tile_bounds(lists, 256), wrong = tile_bounds(other, 256);
  EXPECT_NO_THROW(call(bounds, 4, 4, 1));
  EXPECT_THROW(call(bounds, 0, 4, 1), std::invalid_argument);
  EXPECT_THROW(call(bounds, 4, -1, 1), std::invalid_argument);
  EXPECT_THROW(call(bounds, 4, 4, 0), std::invalid_argument);
  EXPECT_THROW(call(bounds, 4, 4, 3), std::invalid_argument);
  EXPECT_THROW(call({}, 4, 4, 1), std::invalid_argument);
  EXPECT_THROW(call(wrong, 4, 4, 1), std::invalid_argument);
  EXPECT_NO_THROW(call_outer(bounds, 4, 4, 1));
  EXPECT_THROW(call_outer(bounds, 0, 4, 1), std::invalid_argument);
  EXPECT_THROW(call_outer(bounds, 4, 6, 4), std::invalid_argument);
  EXPECT_THROW(call_outer({}, 4, 4, 1), std::invalid_argument);
}

}  // namespace
}  // namespace lattice::cpu

// Reductions over segments: against float64 loops, ties, empty segments, derivatives, errors.
// Routes are in routes_test.cpp.
#include "lattice/ops/segments.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>
#include <numeric>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

mx::array ints(const std::vector<int32_t>& v) {
  return mx::array(v.empty() ? nullptr : v.data(), {static_cast<int>(v.size())}, mx::int32);
}
mx::array column(const std::vector<float>& v) {
  return mx::array(v.data(), {static_cast<int>(v.size())});
}
bool same(const mx::array& a, const mx::array& b) {
  return mx::array_equal(a, b, true).item<bool>();
}
SegmentOptions options(const char* operation, const char* ties = "split") {
  return segment_options(operation, ties, std::nullopt, "test");
}

TEST(Segments, EmptySegmentsAndEmptyValue) {
  const mx::array x = column({1, 5, -2}), lengths = ints({0, 2, 0, 1, 0});
  EXPECT_TRUE(same(segment_reduce(x, lengths, options("sum")), column({0, 6, 0, -2, 0})));
  EXPECT_TRUE(same(segment_reduce(x, lengths, options("mean")), column({0, 3, 0, -2, 0})));
  EXPECT_TRUE(
      same(segment_reduce(x, lengths, options("max")), column({-kInf, 5, -kInf, -2, -kInf})));
  EXPECT_TRUE(same(segment_reduce(x, lengths, options("min")), column({kInf, 1, kInf, -2, kInf})));
  const SegmentOptions seven = segment_options("max", "split", 7.0f, "test");
  EXPECT_TRUE(same(segment_reduce(x, lengths, seven), column({7, 5, 7, -2, 7})));
  EXPECT_TRUE(
      same(segment_reduce_offsets(x, ints({0, 0, 2, 2, 3, 3}), seven), column({7, 5, 7, -2, 7})));
  EXPECT_TRUE(same(scatter_reduce(x, ints({3, 1, 3}), 5, seven), column({7, 5, 7, 1, 7})));
  EXPECT_TRUE(same(indexed_segment_reduce(x, ints({2, 2, 0}), ints({0, 2, 1}), options("sum")),
                   column({0, -4, 1})));
  EXPECT_EQ(segment_reduce(x, ints({3})).shape(), (mx::Shape{1}));
  EXPECT_EQ(segment_reduce(mx::zeros({0, 2, 3}), ints({0, 0})).shape(), (mx::Shape{2, 2, 3}));
  EXPECT_EQ(segment_reduce(mx::zeros({0, 4}), ints({})).shape(), (mx::Shape{0, 4}));
}

TEST(Segments, TiesGetTheGradientAsAsked) {
  const mx::array x = column({1, 4, 4, 4, 2}), lengths = ints({4, 1});
  const auto grad = [&](const char* operation, const char* ties) {
    return mx::grad([&](const mx::array& a) {
      return mx::sum(
          mx::multiply(segment_reduce(a, lengths, options(operation, ties)), column({6, 5})));
    })(x);
  };
  EXPECT_TRUE(same(grad("max", "split"), column({0, 2, 2, 2, 5})));
  EXPECT_TRUE(same(grad("max", "all"), column({0, 6, 6, 6, 5})));
  EXPECT_TRUE(same(grad("max", "first"), column({0, 6, 0, 0, 5})));
  EXPECT_TRUE(same(grad("min", "split"), column({6, 0, 0, 0, 5})));
  // Row 1 is listed twice; the empty segment gives nothing.
  const auto indexed = [&](const char* ties) {
    return mx::grad([&](const mx::array& a) {
      const mx::array y =
          indexed_segment_reduce(a, ints({3, 1, 1, 0}), ints({4, 0}), options("max", ties));
      return mx::multiply(mx::take(y, 0), mx::array(6.0f));
    })(x);
  };
  EXPECT_TRUE(same(indexed("split"), column({0, 4, 0, 2, 0})));
  EXPECT_TRUE(same(indexed("all"), column({0, 12, 0, 6, 0})));
  EXPECT_TRUE(same(indexed("first"), column({0, 6, 0, 0, 0})));
}

TEST(Segments, DerivativesAreAdjointAndOfAnyOrder) {
  const mx::array x = mx::random::normal({40, 3}, mx::float32, mx::random::key(1)),
                  v = mx::random::normal({40, 3});
  const mx::array ids =
      mx::random::randint(mx::array(0), mx::array(6), {40}, mx::int32, mx::random::key(2));
  const mx::array g = mx::random::normal({6, 3}, mx::float32, mx::random::key(3)),
                  lengths = ints({0, 9, 1, 20, 0, 10});
  for (const char* operation : {"sum", "mean", "max", "min"}) {
    const std::vector<std::function<mx::array(const mx::array&)>> functions = {
        [&](const mx::array& a) {
          return segment_reduce(a, lengths, segment_options(operation, "split", 0.0f, "test"));
        },
        [&](const mx::array& a) {
          return indexed_segment_reduce(a, ids, lengths,
                                        segment_options(operation, "split", 0.0f, "test"));
        },
        [&](const mx::array& a) { return scatter_reduce(a, ids, 6, options(operation)); }};
    for (const auto& f : functions) {
      const auto many = [&](const std::vector<mx::array>& in) {
        return std::vector<mx::array>{f(in[0])};
      };
      const auto [y, grads] = mx::vjp(many, {x}, {g});
      const auto [y2, tangents] = mx::jvp(many, {x}, {v});
      EXPECT_NEAR(product(grads[0], v), product(g, tangents[0]), 1e-4) << operation;
      const auto loss = [&](const mx::array& a) { return mx::sum(mx::square(f(a))); };
      const auto slope = [&](const mx::array& a) {
        return mx::sum(mx::multiply(mx::grad(loss)(a), v));
      };
      EXPECT_NEAR(product(mx::grad(slope)(x), v), 2 * product(tangents[0], tangents[0]), 1e-2)
          << operation;
    }
  }
}

TEST(Segments, ExpandIsTheAdjointOfSumAndSoftmaxSumsToOne) {
  mx::random::seed(1);
  const mx::array lengths = ints({2, 0, 3}), y = mx::random::normal({3, 2}),
                  x = mx::random::normal({5, 2});
  EXPECT_NEAR(product(segment_expand(y, lengths), x), product(y, segment_reduce(x, lengths)), 1e-5);
  const mx::array sums = segment_reduce(segment_softmax(x, lengths), lengths);
  EXPECT_TRUE(mx::allclose(sums, mx::array({1.f, 1.f, 0.f, 0.f, 1.f, 1.f}, {3, 2})).item<bool>());
}

TEST(Segments, OneHugeSegmentHasTheSameBitsForAnyThreads) {
  mx::random::seed(1);
  const mx::array x = mx::random::normal({50000, 5}), lengths = ints({49000, 0, 1000});
  const mx::array order = mx::random::randint(mx::array(0), mx::array(50000), {50000}, mx::int32);
  const int before = cpu::thread_count();
  std::vector<mx::array> results;
  for (const int threads : {1, 2}) {
    cpu::set_thread_count(threads);
    for (const char* operation : {"sum", "min"}) {
      results.push_back(segment_reduce(x, lengths, options(operation)));
      results.push_back(indexed_segment_reduce(x, order, lengths, options(operation)));
      for (mx::array& r : results) r.eval();
    }
  }
  cpu::set_thread_count(before);
  for (size_t i = 0; i < 4; ++i) EXPECT_TRUE(same(results[i], results[i + 4]));
}

TEST(Segments, Errors) {
  const mx::array x = mx::zeros({3, 2});
  EXPECT_THROW(segment_reduce(x, ints({2})), std::invalid_argument);
  EXPECT_THROW(segment_reduce(x, ints({4, -1})), std::invalid_argument);
  EXPECT_THROW(segment_reduce(x, mx::array({3.0f}, {1})), std::invalid_argument);
  EXPECT_THROW(segment_reduce(mx::astype(x, mx::int32), ints({3})), std::invalid_argument);
  EXPECT_THROW(segment_reduce_offsets(x, ints({0, 2, 1, 3})), std::invalid_argument);
  EXPECT_THROW(segment_reduce_offsets(x, ints({})), std::invalid_argument);
  EXPECT_THROW(scatter_reduce(x, ints({0, 1, 2}), 2), std::invalid_argument);
  EXPECT_THROW(scatter_reduce(x, ints({0, 1}), 2), std::invalid_argument);
  EXPECT_THROW(indexed_segment_reduce(x, ints({0, 3}), ints({2})), std::invalid_argument);
  EXPECT_THROW(segment_options("median", "split", std::nullopt, "test"), std::invalid_argument);
  EXPECT_THROW(segment_options("sum", "last", std::nullopt, "test"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice

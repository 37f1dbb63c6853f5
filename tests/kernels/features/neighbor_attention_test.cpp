// Attention along edges against a float64 version of the formulas, values and all gradients. Cases:
// with and without queries and bias, storages, queries without edges, -infinity, NaN, threads.
#include "lattice/kernels/cpu/features/neighbor_attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using Doubles = std::vector<double>;
using Integers = std::vector<int32_t>;

struct Shape {
  int64_t queries, sources, heads, size;
  bool products = true, bias = true;
};

template <typename T>
struct Problem {
  Shape o;
  Integers offsets{0}, rows, back_offsets, back_edges, edge_queries;
  std::vector<T> q, k, v, g, out, dq, dk, dv;
  std::vector<float> bias, lse, dbias;

  Problem(const Shape& shape, uint64_t seed) : o(shape) {
    support::Random random(seed);
    std::vector<Integers> edges_of(static_cast<size_t>(o.sources));
    for (int64_t i = 0; i < o.queries; ++i) {
      for (int64_t n = i % 7 ? random.below(9) : 0; n > 0; --n) {  // some queries have no edge
        rows.push_back(static_cast<int32_t>(random.below(o.sources)));
        edge_queries.push_back(static_cast<int32_t>(i));
      }
      offsets.push_back(static_cast<int32_t>(rows.size()));
    }
    for (size_t e = 0; e < rows.size(); ++e)
      edges_of[static_cast<size_t>(rows[e])].push_back(static_cast<int32_t>(e));
    for (const Integers& edges : edges_of) {
      back_offsets.push_back(static_cast<int32_t>(back_edges.size()));
      back_edges.insert(back_edges.end(), edges.begin(), edges.end());
    }
    back_offsets.push_back(static_cast<int32_t>(back_edges.size()));
    const auto fill = [&](std::vector<T>& x, int64_t n) {
      for (int64_t i = 0; i < n; ++i)
        x.push_back(narrow<T>(static_cast<float>(random.uniform(-2, 2))));
    };
    const int64_t row = o.heads * o.size;
    fill(q, o.queries * row), fill(g, o.queries * row);
    fill(k, o.sources * row), fill(v, o.sources * row);
    out.resize(q.size()), dq = out, dk.resize(k.size()), dv = dk;
    lse.resize(static_cast<size_t>(o.queries * o.heads));
    for (size_t i = 0; i < rows.size() * static_cast<size_t>(o.heads); ++i)
      bias.push_back(static_cast<float>(random.uniform(-2, 2)));
    dbias.resize(bias.size());
  }
  NeighborAttention problem(FloatType storage) const {
    return {.storage = storage,
            .queries = o.queries,
            .sources = o.sources,
            .offsets = offsets.data(),
            .rows = rows.data(),
            .heads = o.heads,
            .size = o.size,
            .scale = 0.4f,
            .q = o.products ? q.data() : nullptr,
            .k = o.products ? k.data() : nullptr,
            .v = v.data(),
            .bias = o.bias ? bias.data() : nullptr};
  }
  void run(FloatType storage) {
    neighbor_attention(problem(storage), out.data(), lse.data());
    neighbor_attention_gradients(
        problem(storage),
        {out.data(), lse.data(), g.data(), back_offsets.data(), back_edges.data(),
         edge_queries.data(), o.products ? dq.data() : nullptr, o.products ? dk.data() : nullptr,
         dv.data(), o.bias ? dbias.data() : nullptr});
  }
};

struct Expected {
  Doubles out, dq, dk, dv, dbias;
};

template <typename T>
Expected oracle(const Problem<T>& p) {
  const Shape& o = p.o;
  const auto at = [](const auto& x, int64_t i) { return double{widen(x[static_cast<size_t>(i)])}; };
  const auto add = [](Doubles& x, int64_t i, double value) { x[static_cast<size_t>(i)] += value; };
  Expected y{Doubles(p.q.size()), Doubles(p.q.size()), Doubles(p.k.size()), Doubles(p.k.size()),
             Doubles(p.bias.size())};
  for (int64_t i = 0; i < o.queries; ++i)
    for (int64_t h = 0; h < o.heads; ++h) {
      const int64_t first = p.offsets[static_cast<size_t>(i)],
                    last = p.offsets[static_cast<size_t>(i + 1)];
      const int64_t query = (i * o.heads + h) * o.size;
      const auto source = [&](int64_t e) {
        return (p.rows[static_cast<size_t>(e)] * o.heads + h) * o.size;
      };
      Doubles weight;
      double total = 0, delta = 0;
      for (int64_t e = first; e < last; ++e) {
        double l = o.bias ? at(p.bias, e * o.heads + h) : 0;
        for (int64_t c = 0; o.products && c < o.size; ++c)
          l += double{0.4f} * at(p.q, query + c) * at(p.k, source(e) + c);
        weight.push_back(std::exp(l));
        total += weight.back();
      }
      for (int64_t e = first; e < last; ++e)
        for (int64_t c = 0; c < o.size; ++c) {
          const double part =
              weight[static_cast<size_t>(e - first)] / total * at(p.v, source(e) + c);
          add(y.out, query + c, part);
          delta += part * at(p.g, query + c);
        }
      for (int64_t e = first; e < last; ++e) {
        const double w = weight[static_cast<size_t>(e - first)] / total;
        double dp = 0;
        for (int64_t c = 0; c < o.size; ++c) {
          dp += at(p.g, query + c) * at(p.v, source(e) + c);
          add(y.dv, source(e) + c, w * at(p.g, query + c));
        }
        const double ds = w * (dp - delta);
        add(y.dbias, e * o.heads + h, ds);
        for (int64_t c = 0; c < o.size; ++c) {
          add(y.dq, query + c, double{0.4f} * ds * at(p.k, source(e) + c));
          add(y.dk, source(e) + c, double{0.4f} * ds * at(p.q, query + c));
        }
      }
    }
  return y;
}

template <typename V>
void expect_near(const V& found, const Doubles& expected, double unit, const char* what) {
  double most = 0.02, error = 0;
  for (const double e : expected) most = std::max(most, std::fabs(e));
  for (size_t i = 0; i < expected.size(); ++i)
    error = std::max(error, std::fabs(double{widen(found[i])} - expected[i]));
  EXPECT_LE(error, unit * most) << what;
}

template <typename T>
void check(const Shape& shape, FloatType storage, double unit) {
  Problem<T> p(shape, static_cast<uint64_t>(shape.size + shape.queries));
  p.run(storage);
  const Expected y = oracle(p);
  expect_near(p.out, y.out, unit, "out");
  expect_near(p.dv, y.dv, unit, "dv");
  if (shape.products) {
    expect_near(p.dq, y.dq, unit, "dq");
    expect_near(p.dk, y.dk, unit, "dk");
  }
  if (shape.bias) expect_near(p.dbias, y.dbias, unit, "dbias");
}

TEST(NeighborAttention, NearFloat64) {
  support::on_each_target([] {
    for (const int64_t size : {1, 3, 15, 16, 17, 33})
      check<float>({40, 30, 3, size}, FloatType::f32, 4e-6);
    check<float>({300, 25, 2, 8, true, false}, FloatType::f32, 4e-6);
    check<float>({90, 25, 4, 6, false, true}, FloatType::f32, 4e-6);  // grouped vector attention
    check<half_t>({50, 40, 2, 18}, FloatType::f16, 6e-3);
    check<bfloat_t>({50, 40, 2, 18}, FloatType::bf16, 4e-2);
    check<float>({0, 5, 2, 4}, FloatType::f32, 0);
    check<float>({1, 1, 1, 4}, FloatType::f32, 0);  // its only query has no edge
  });
}

TEST(NeighborAttention, LogitsThatAreNotFinite) {
  support::on_each_target([] {
    const float inf = std::numeric_limits<float>::infinity();
    // Three queries with two edges each: all -infinity, one of them, one NaN.
    const Integers offsets{0, 2, 4, 6}, rows{0, 1, 0, 1, 0, 1};
    const std::vector<float> bias{-inf, -inf, -inf, 3, std::nanf(""), 0}, v{5, 7};
    float out[3], lse[3];
    neighbor_attention({.queries = 3,
                        .sources = 2,
                        .offsets = offsets.data(),
                        .rows = rows.data(),
                        .v = v.data(),
                        .bias = bias.data()},
                       out, lse);
    EXPECT_EQ(out[0], 0);
    EXPECT_EQ(lse[0], inf);
    EXPECT_EQ(out[1], 7);
    EXPECT_TRUE(std::isnan(out[2]));
  });
}

TEST(NeighborAttention, SameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  Problem<float> one({700, 500, 2, 20}, 1), many({700, 500, 2, 20}, 1);
  set_thread_count(1);
  one.run(FloatType::f32);
  set_thread_count(4);
  many.run(FloatType::f32);
  set_thread_count(before);
  EXPECT_EQ(one.out, many.out);
  EXPECT_EQ(one.dq, many.dq);
  EXPECT_EQ(one.dk, many.dk);
  EXPECT_EQ(one.dv, many.dv);
  EXPECT_EQ(one.dbias, many.dbias);
}

}  // namespace
}  // namespace lattice::cpu

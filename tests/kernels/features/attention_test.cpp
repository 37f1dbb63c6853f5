// Attention kernels against a float64 version of the formulas. Cases: lengths 0, 1 and around every
// tile edge, storages, bias, tables, masks, grouped heads; rows that see nothing, NaN and overflow.
// Also: the same bits for any number of threads, bounded memory, the errors of exp and log2.
#include "lattice/kernels/cpu/features/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "lattice/kernels/cpu/base/exp-inl.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

struct Options {
  std::vector<int> q = {}, k = {};  // lengths
  int64_t heads = 2, kv_heads = 2, size = 16;
  bool bias = false, mask = false, causal = false;
  int axes = 0;
  bool joint = false;
  int bound = 2;  // of the first axis; each further axis has one more
};

template <typename T>
struct Problem {
  Options o;
  std::vector<int32_t> q_offsets{0}, k_offsets{0}, q_positions, k_positions;
  std::vector<T> q, k, v, g, out, dq, dk, dv;
  std::vector<float> bias, table, lse, dbias, dtable;
  std::vector<uint8_t> mask;
  Attention a;

  explicit Problem(Options options, FloatType storage = FloatType::f32) : o(std::move(options)) {
    support::Random random{static_cast<uint64_t>(o.size * 7 + o.heads)};
    int64_t pairs = 0;
    for (size_t s = 0; s < o.q.size(); ++s) {
      q_offsets.push_back(q_offsets.back() + o.q[s]);
      k_offsets.push_back(k_offsets.back() + o.k[s]);
      pairs += int64_t{o.q[s]} * o.k[s];
    }
    const auto fill = [&](auto& x, int64_t n, double most) {
      x.resize(static_cast<size_t>(n));
      for (auto& e : x)
        e = narrow<std::remove_reference_t<decltype(e)>>(
            static_cast<float>(random.uniform(-most, most)));
    };
    const int64_t nq = q_offsets.back() * o.heads * o.size,
                  nk = k_offsets.back() * o.kv_heads * o.size;
    fill(q, nq, 2), fill(g, nq, 1), fill(k, nk, 2), fill(v, nk, 1);
    out.resize(q.size()), dq = out, dk.resize(k.size()), dv = dk;
    lse.resize(static_cast<size_t>(q_offsets.back() * o.heads));
    if (o.bias) fill(bias, pairs * o.heads, 2), dbias = bias;
    if (o.mask) {
      mask.resize(static_cast<size_t>(pairs));
      for (uint8_t& m : mask) m = random.uniform(0, 1) < 0.7;
    }
    a = {.storage = storage,
         .segments = static_cast<int64_t>(o.q.size()),
         .q_offsets = q_offsets.data(),
         .k_offsets = k_offsets.data(),
         .heads = o.heads,
         .kv_heads = o.kv_heads,
         .size = o.size,
         .scale = static_cast<float>(1.2 / std::sqrt(static_cast<double>(o.size))),
         .q = q.data(),
         .k = k.data(),
         .v = v.data(),
         .bias = o.bias ? bias.data() : nullptr,
         .mask = o.mask ? mask.data() : nullptr,
         .causal = o.causal};
    if (o.axes == 0) return;
    PositionTable& p = a.positions;
    p.axes = o.axes, p.joint = o.joint, p.size = o.joint ? 1 : 0;
    for (int axis = 0; axis < o.axes; ++axis) {
      p.bounds[axis] = o.bound + axis;
      const int64_t entries = 2 * p.bounds[axis] + 1;
      o.joint ? p.size *= entries : p.size += entries;
    }
    fill(table, o.heads * p.size, 2), dtable = table;
    const auto places = [&](std::vector<int32_t>& to, int64_t n) {
      to.resize(static_cast<size_t>(n * o.axes));
      for (int32_t& e : to) e = static_cast<int32_t>(random.uniform(-4, 4));
    };
    places(q_positions, q_offsets.back()), places(k_positions, k_offsets.back());
    p.table = table.data(), p.q_positions = q_positions.data(), p.k_positions = k_positions.data();
  }

  void run() {
    attention(a, out.data(), lse.data());
    attention_gradients(a, {out.data(), lse.data(), g.data(), dq.data(), dk.data(), dv.data(),
                            o.bias ? dbias.data() : nullptr, o.axes ? dtable.data() : nullptr});
  }
};

using Doubles = std::vector<double>;

struct Expected {
  Doubles out, dq, dk, dv, dbias, dtable;
};

template <typename T>
std::vector<int64_t> entries(const Problem<T>& p, int64_t i, int64_t j) {
  std::vector<int64_t> found;
  int64_t first = 0, joint = 0;
  for (int axis = 0; axis < p.o.axes; ++axis) {
    const int64_t bound = p.a.positions.bounds[axis];
    const int64_t d = int64_t{p.q_positions[static_cast<size_t>(i * p.o.axes + axis)]} -
                      p.k_positions[static_cast<size_t>(j * p.o.axes + axis)];
    const int64_t e = std::clamp(d, -bound, bound) + bound;
    joint = joint * (2 * bound + 1) + e;
    if (!p.o.joint) found.push_back(first + e);
    first += 2 * bound + 1;
  }
  if (p.o.joint) found.push_back(joint);
  return found;
}

double at(const auto& x, int64_t i) { return double{widen(x[static_cast<size_t>(i)])}; }

// A pair of rows of segment s: query i and key j of one head.
struct Pair {
  size_t s;
  int64_t h, i, j, row, key;  // row and key: where their values begin
  int64_t bias, mask;         // where the entries of the pair stand
};

template <typename T>
double logit(const Problem<T>& p, const Pair& z) {
  const Options& o = p.o;
  double l = 0;
  for (int64_t c = 0; c < o.size; ++c) l += at(p.q, z.row + c) * at(p.k, z.key + c);
  l *= double{p.a.scale};
  if (o.bias) l += at(p.bias, z.bias);
  if (o.axes)
    for (const int64_t e : entries(p, p.q_offsets[z.s] + z.i, p.k_offsets[z.s] + z.j))
      l += at(p.table, z.h * p.a.positions.size + e);
  if (o.mask && !p.mask[static_cast<size_t>(z.mask)]) return -INFINITY;
  return o.causal && z.j > z.i + o.k[z.s] - o.q[z.s] ? -INFINITY : l;
}

template <typename T>
Expected oracle(const Problem<T>& p) {
  const Options& o = p.o;
  Expected y{Doubles(p.q.size()), Doubles(p.q.size()),    Doubles(p.k.size()),
             Doubles(p.k.size()), Doubles(p.bias.size()), Doubles(p.table.size())};
  const auto add = [](Doubles& x, int64_t i, double v) { x[static_cast<size_t>(i)] += v; };
  int64_t pairs = 0;
  for (size_t s = 0; s < o.q.size(); ++s) {
    const int64_t n = o.k[s], i0 = p.q_offsets[s], j0 = p.k_offsets[s];
    for (int64_t h = 0; h < o.heads; ++h)
      for (int64_t i = 0; i < o.q[s]; ++i) {
        const int64_t g = h / (o.heads / o.kv_heads), row = ((i0 + i) * o.heads + h) * o.size;
        const auto key = [&](int64_t j) { return ((j0 + j) * o.kv_heads + g) * o.size; };
        const int64_t b0 = pairs * o.heads + (h * o.q[s] + i) * n;
        Doubles weight(static_cast<size_t>(n));
        double top = -INFINITY, total = 0;
        for (int64_t j = 0; j < n; ++j) {
          const double l = logit(p, {s, h, i, j, row, key(j), b0 + j, pairs + i * n + j});
          weight[static_cast<size_t>(j)] = l;
          top = std::max(top, l);
        }
        for (double& w : weight) total += w = top == -INFINITY ? 0 : std::exp(w - top);
        double delta = 0;
        for (int64_t j = 0; j < n && total > 0; ++j) {
          weight[static_cast<size_t>(j)] /= total;
          for (int64_t c = 0; c < o.size; ++c) {
            const double product = weight[static_cast<size_t>(j)] * at(p.v, key(j) + c);
            add(y.out, row + c, product);
            delta += product * at(p.g, row + c);
          }
        }
        for (int64_t j = 0; j < n; ++j) {
          const double w = weight[static_cast<size_t>(j)];
          double dp = 0;
          for (int64_t c = 0; c < o.size; ++c) {
            dp += at(p.g, row + c) * at(p.v, key(j) + c);
            add(y.dv, key(j) + c, w * at(p.g, row + c));
          }
          const double ds = w * (dp - delta);
          if (o.bias) add(y.dbias, b0 + j, ds);
          if (o.axes)
            for (const int64_t e : entries(p, i0 + i, j0 + j))
              add(y.dtable, h * p.a.positions.size + e, ds);
          for (int64_t c = 0; c < o.size; ++c) {
            add(y.dq, row + c, double{p.a.scale} * ds * at(p.k, key(j) + c));
            add(y.dk, key(j) + c, double{p.a.scale} * ds * at(p.q, row + c));
          }
        }
      }
    pairs += int64_t{o.q[s]} * n;
  }
  return y;
}

template <typename V>
void expect_near(const V& found, const Doubles& expected, double unit, const char* what) {
  double most = 0, error = 0;
  for (const double e : expected) most = std::max(most, std::fabs(e));
  for (size_t i = 0; i < expected.size(); ++i)
    error = std::max(error, std::fabs(double{widen(found[i])} - expected[i]));
  EXPECT_LE(error, unit * (most + 0.02)) << what;
}

template <typename T>
void check(const Options& o, FloatType storage, double unit) {
  Problem<T> p(o, storage);
  p.run();
  const Expected y = oracle(p);
  expect_near(p.out, y.out, unit, "out");
  expect_near(p.dq, y.dq, unit, "dq");
  expect_near(p.dk, y.dk, unit, "dk");
  expect_near(p.dv, y.dv, unit, "dv");
  expect_near(p.dbias, y.dbias, unit, "dbias");
  expect_near(p.dtable, y.dtable, unit, "dtable");
}

void check_all(const Options& o) {
  check<float>(o, FloatType::f32, 4e-6);
  check<half_t>(o, FloatType::f16, 4e-3);
  check<bfloat_t>(o, FloatType::bf16, 3e-2);
}

TEST(AttentionTest, LengthsAroundEveryTileEdge) {
  support::on_each_target([] {
    for (const int n : {1, 2, 5, 6, 7, 15, 16, 17, 47, 48, 49, 127, 128, 129, 260})
      check<float>({.q = {n, 0, 3}, .k = {n, 2, 0}, .size = 8}, FloatType::f32, 4e-6);
    check_all({.q = {0, 1, 129, 7}, .k = {4, 1, 49, 300}, .size = 24});
    check_all({.q = {}, .k = {}});
    check_all({.q = {0, 0}, .k = {0, 0}});
  });
}

TEST(AttentionTest, HeadSizes) {
  support::on_each_target([] {
    for (const int64_t size : {1, 2, 3, 7, 8, 9, 16, 17, 31, 32, 33, 48, 64, 65, 96, 128, 255, 256})
      check<float>({.q = {9, 50}, .k = {11, 50}, .size = size}, FloatType::f32, 4e-6);
  });
}

TEST(AttentionTest, BiasTablesMasksAndGroups) {
  support::on_each_target([] {
    const std::vector<int> q{17, 0, 1, 50, 130}, k{17, 3, 1, 131, 48};
    check_all({.q = q, .k = k, .bias = true});
    check_all({.q = q, .k = k, .mask = true});
    check_all({.q = q, .k = k, .causal = true});
    check_all({.q = q, .k = k, .heads = 6, .kv_heads = 2, .size = 10});
    for (const int axes : {1, 2, 3})
      for (const bool joint : {false, true})
        check_all({.q = q, .k = k, .size = 5, .axes = axes, .joint = joint});
    check_all({.q = q,
               .k = k,
               .heads = 4,
               .kv_heads = 1,
               .bias = true,
               .mask = true,
               .causal = true,
               .axes = 3});
  });
}

// Sums of such a segment are cut: keys first, then queries.
TEST(AttentionTest, LongSegments) {
  check<float>({.q = {100, 5900},
                .k = {2900, 20},
                .heads = 1,
                .kv_heads = 1,
                .size = 250,
                .causal = true,
                .axes = 1},
               FloatType::f32, 4e-6);
}

TEST(AttentionTest, SameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  const Options o{.q = {700, 30, 1, 0, 300}, .k = {650, 30, 2, 0, 300}, .size = 32, .axes = 2};
  Problem<float> one(o), many(o);
  set_thread_count(1);
  one.run();
  set_thread_count(4);
  many.run();
  set_thread_count(before);
  EXPECT_EQ(one.out, many.out);
  EXPECT_EQ(one.dq, many.dq);
  EXPECT_EQ(one.dk, many.dk);
  EXPECT_EQ(one.dv, many.dv);
  EXPECT_EQ(one.dtable, many.dtable);
}

// A table so large that a kv head has one task, and one of several tasks per kv head.
TEST(AttentionTest, LargeTables) {
  for (const int bound : {40, 9})
    check<float>({.q = {60, 5, 90},
                  .k = {60, 7, 130},
                  .heads = 4,
                  .kv_heads = 2,
                  .size = 64,
                  .axes = 3,
                  .joint = true,
                  .bound = bound},
                 FloatType::f32, 4e-6);
}

// Forward and backward with n threads take at most n * 16 MiB, whatever the lengths. The pool keeps
// what tasks give back, so its size is the largest use.
TEST(AttentionTest, ScratchIsBelow16MiBPerThread) {
#if defined(__SANITIZE_ADDRESS__)
  constexpr int kRows = 4000;  // AddressSanitizer is a hundred times slower
#else
  constexpr int kRows = 40000;
#endif
  const int before = thread_count();
  const auto used = [](const Options& o) {
    Problem<float> p(o);
    pool_trim();
    p.run();
    return pool_bytes();
  };
  const Options few{.q = {48}, .k = {kRows}, .heads = 1, .kv_heads = 1, .size = 256};
  const Options many{.q = {kRows}, .k = {48}, .heads = 1, .kv_heads = 1, .size = 256};
  const Options both{.q = {1500, 10}, .k = {1500, 30}, .size = 5, .axes = 1};
  const Options tables{.q = std::vector<int>(64, 40),
                       .k = std::vector<int>(64, 40),
                       .heads = 4,
                       .kv_heads = 4,
                       .size = 48,
                       .axes = 3,
                       .joint = true,
                       .bound = 31};
  for (const int threads : {1, 3}) {
    set_thread_count(threads);
    for (const Options& o : {few, many, both, tables}) {
      const size_t bytes = used(o);
      EXPECT_GT(bytes, size_t{1} << 16);
      EXPECT_LE(bytes, static_cast<size_t>(threads) << 24) << o.q[0] << " queries";
    }
  }
  set_thread_count(before);
  pool_trim();
}

TEST(AttentionTest, RowsThatSeeNothingAreZero) {
  support::on_each_target([] {
    Problem<float> p({.q = {3}, .k = {200}, .heads = 1, .kv_heads = 1, .bias = true});
    std::fill_n(p.bias.begin() + 200, 200, -kInf);  // the second query
    p.run();
    for (int64_t c = 0; c < 16; ++c) {
      EXPECT_EQ(p.out[static_cast<size_t>(16 + c)], 0.0f);
      EXPECT_EQ(p.dq[static_cast<size_t>(16 + c)], 0.0f);
      EXPECT_NE(p.out[static_cast<size_t>(c)], 0.0f);
    }
    for (const auto* x : {&p.dk, &p.dv, &p.dbias})
      for (const float e : *x) EXPECT_TRUE(std::isfinite(e));
  });
}

TEST(AttentionTest, LargeLogitsDoNotOverflowAndNanStaysInItsRow) {
  support::on_each_target([] {
    Problem<float> p({.q = {4}, .k = {150}, .heads = 1, .kv_heads = 1});
    for (float& e : p.q) e *= 1e4f;
    p.q[16] = NAN;  // the second query
    p.run();
    for (size_t i = 0; i < p.out.size(); ++i) EXPECT_EQ(std::isnan(p.out[i]), i / 16 == 1) << i;
  });
}

// f of one value, through a vector.
template <class F>
HWY_ATTR float lane(const F& f, float x) {
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::ScalableTag<float> d;
  std::vector<float> values(hn::Lanes(d), x);
  hn::StoreU(f(d, hn::LoadU(d, values.data())), d, values.data());
  return values[0];
}
float exp_of(float x) {
  return lane([](auto d, auto v) HWY_ATTR { return HWY_NAMESPACE::exp_vector(d, v); }, x);
}
float exp2_of(float x) {
  return lane([](auto d, auto v) HWY_ATTR { return HWY_NAMESPACE::exp2_vector(d, v); }, x);
}
float log2_of(float x) {
  return lane([](auto d, auto v) HWY_ATTR { return HWY_NAMESPACE::log2_vector(d, v); }, x);
}
const float kLoudNan = std::bit_cast<float>(0x7fffffffu);  // all bits that a shift may move are set

TEST(ExpTest, ErrorIsBelowOneUnit) {
  double worst = 0;
  for (double x = -87.33; x < 88; x += 0x1p-12 * 1.1) {
    const float v = static_cast<float>(x);
    worst = std::max(worst, std::fabs(double{exp_of(v)} / std::exp(double{v}) - 1));
  }
  EXPECT_LT(worst, 1.2e-7);
  EXPECT_EQ(exp_of(0.0f), 1.0f);
  EXPECT_EQ(exp_of(-kInf), 0.0f);
  EXPECT_EQ(exp_of(-1e30f), 0.0f);
  for (const float nan : {NAN, kLoudNan}) EXPECT_TRUE(std::isnan(exp_of(nan)));
}

TEST(ExpTest, PowersOfTwo) {
  double worst = 0;
  for (double x = -126; x < 127; x += 0x1p-11 * 1.1) {
    const float v = static_cast<float>(x);
    worst = std::max(worst, std::fabs(double{exp2_of(v)} / std::exp2(double{v}) - 1));
  }
  EXPECT_LT(worst, 2e-7);  // 1.7e-7 with a fused multiply-add
  for (const float n : {0.0f, -1.0f, -126.0f, 100.0f}) EXPECT_EQ(exp2_of(n), std::exp2(n));
  for (const float n : {-126.001f, -126.5f, -127.0f, -150.0f, -1e30f, -kInf})
    EXPECT_EQ(exp2_of(n), 0.0f);
  for (const float nan : {NAN, kLoudNan}) EXPECT_TRUE(std::isnan(exp2_of(nan)));
}

TEST(ExpTest, Log2) {
  double worst = 0;
  for (double x = 1; x < 0x1p30; x *= 1.0001) {
    const float v = static_cast<float>(x);
    const double expected = std::log2(double{v});
    worst = std::max(worst, std::fabs(double{log2_of(v)} - expected) / std::max(1.0, expected));
  }
  EXPECT_LT(worst, 1.5e-7);
  for (const float n : {0.0f, 1.0f, -5.0f, 31.0f}) EXPECT_EQ(log2_of(std::exp2(n)), n);
  for (const float nan : {NAN, kLoudNan}) EXPECT_TRUE(std::isnan(log2_of(nan)));
}

}  // namespace
}  // namespace lattice::cpu

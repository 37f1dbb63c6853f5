// Curve orders against sorting by spelled-out bits. The Hilbert curve on a full
// cube: every step goes to a face neighbor, and every aligned sub-cube is visited in one run.
#include "lattice/kernels/cpu/geometry/curves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lattice/kernels/portable/hilbert.h"
#include "lattice/kernels/portable/morton.h"
#include "tests/support/cases.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Coordinate;
using support::Random;
using Digits = std::array<uint64_t, 4>;  // batch, then bits from high to low

// Appends one bit to the 192 that follow the batch.
struct BitString {
  Digits digits{};
  int used = 0;
  void push(uint64_t bit) {
    digits[static_cast<size_t>(1 + used / 64)] |= bit << (63 - used % 64);
    ++used;
  }
};

Digits morton_digits(const Coordinate& c) {
  BitString s;
  s.digits[0] = static_cast<uint64_t>(c[0]);
  for (int b = 63; b >= 0; --b)
    for (size_t a : {3u, 2u, 1u})
      s.push(((static_cast<uint64_t>(c[a]) ^ (uint64_t{1} << 63)) >> b) & 1);
  return s.digits;
}

portable::Hilbert3<uint64_t> hilbert_transposed(const std::array<uint64_t, 3>& u, int bits) {
  portable::Hilbert3<uint64_t> p{u[0], u[1], u[2]};
  for (uint64_t bit = bits == 0 ? 0 : uint64_t{1} << (bits - 1); bit > 1; bit >>= 1)
    p = portable::hilbert_unrotate(p, bit);
  return portable::hilbert_gray(p);
}

// Skilling's inverse transform, with his branches: from the transposed index to the coordinates.
std::array<uint64_t, 3> hilbert_axes(std::array<uint64_t, 3> x, int bits) {
  uint64_t t = x[2] >> 1;
  for (size_t i : {2u, 1u}) x[i] ^= x[i - 1];
  x[0] ^= t;
  for (int b = 1; b < bits; ++b) {
    const uint64_t q = uint64_t{1} << b, p = q - 1;
    for (size_t i : {2u, 1u, 0u}) {
      if (x[i] & q) {
        x[0] ^= p;
      } else {
        t = (x[0] ^ x[i]) & p;
        x[0] ^= t;
        x[i] ^= t;
      }
    }
  }
  return x;
}

template <typename T>
Buffer<int32_t> order_of(const std::vector<Coordinate>& rows,
                         Buffer<int32_t> (*order)(const CoordSpan&)) {
  const std::vector<T> flat = support::flat<T>(rows);
  return order({flat.data(), static_cast<int64_t>(rows.size()), sizeof(T) == 8});
}

std::vector<int32_t> expected_order(const std::vector<Digits>& digits) {
  std::vector<int32_t> order(digits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return digits[static_cast<size_t>(a)] < digits[static_cast<size_t>(b)];
  });
  return order;
}

std::vector<int32_t> expected_morton(const std::vector<Coordinate>& rows) {
  std::vector<Digits> digits;
  for (const Coordinate& c : rows) digits.push_back(morton_digits(c));
  return expected_order(digits);
}

std::vector<int32_t> expected_hilbert(const std::vector<Coordinate>& rows) {
  std::array<uint64_t, 3> low{};
  uint64_t widest = 0;
  for (size_t a = 0; a < 3; ++a) {
    const auto [lo, hi] = std::minmax_element(
        rows.begin(), rows.end(), [&](auto& p, auto& q) { return p[a + 1] < q[a + 1]; });
    low[a] = static_cast<uint64_t>((*lo)[a + 1]);
    widest |= static_cast<uint64_t>((*hi)[a + 1]) - low[a];
  }
  const int bits = static_cast<int>(std::bit_width(widest));
  std::vector<Digits> digits;
  for (const Coordinate& c : rows) {
    std::array<uint64_t, 3> u;
    for (size_t a = 0; a < 3; ++a) u[a] = static_cast<uint64_t>(c[a + 1]) - low[a];
    const auto h = hilbert_transposed(u, bits);
    BitString s;
    s.digits[0] = static_cast<uint64_t>(c[0]);
    for (int b = 63; b >= 0; --b)
      for (uint64_t v : {h.x, h.y, h.z}) s.push(v >> b & 1);
    digits.push_back(s.digits);
  }
  return expected_order(digits);
}

std::vector<int32_t> list(const Buffer<int32_t>& b) { return {b.begin(), b.end()}; }

// Case inputs, some rows twice.
std::vector<Coordinate> case_rows(const support::Case& c) {
  std::vector<Coordinate> rows = c.in;
  for (size_t i = 0; i < c.in.size(); i += 5) rows.push_back(c.in[i]);
  return rows;
}

TEST(Curves, MortonOrderIsTheOrderOfInterleavedBits) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const support::Case c = support::random_case(seed);
    const auto rows = case_rows(c);
    const auto expected = expected_morton(rows);
    EXPECT_EQ(list(order_of<int64_t>(rows, morton_order)), expected) << c.text();
    if (c.is64) continue;
    EXPECT_EQ(list(order_of<int32_t>(rows, morton_order)), expected) << c.text();
  }
}

TEST(Curves, HilbertOrderIsTheOrderOfTheIndex) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    const support::Case c = support::random_case(seed);
    const auto rows = case_rows(c);
    if (rows.empty()) {
      EXPECT_EQ(order_of<int64_t>(rows, hilbert_order).size(), 0);
      continue;
    }
    const auto expected = expected_hilbert(rows);
    EXPECT_EQ(list(order_of<int64_t>(rows, hilbert_order)), expected) << c.text();
    if (c.is64) continue;
    EXPECT_EQ(list(order_of<int32_t>(rows, hilbert_order)), expected) << c.text();
  }
}

TEST(Curves, HilbertStepsToFaceNeighbors) {
  for (int bits = 1; bits <= 5; ++bits) {
    const int64_t side = int64_t{1} << bits;
    for (const Coordinate& corner :
         {Coordinate{0, 0, 0, 0}, Coordinate{0, -3, INT32_MIN, INT32_MAX - side + 1}}) {
      std::vector<Coordinate> rows;
      for (int64_t i = 0; i < side * side * side; ++i)
        rows.push_back(
            {0, corner[1] + i / side / side, corner[2] + i / side % side, corner[3] + i % side});
      const auto order = order_of<int32_t>(rows, hilbert_order);
      const auto at = [&](int64_t p) { return rows[static_cast<size_t>(order[p])]; };
      EXPECT_EQ(at(0), rows[0]);
      for (int64_t p = 1; p < order.size(); ++p) {
        int64_t distance = 0;
        for (size_t a = 1; a < 4; ++a) distance += std::abs(at(p)[a] - at(p - 1)[a]);
        ASSERT_EQ(distance, 1) << bits << " bits, position " << p;
        if (p % 8 == 0) continue;  // 8 positions of one aligned 2 x 2 x 2 cube
        for (size_t a = 1; a < 4; ++a)
          ASSERT_EQ((at(p)[a] - corner[a]) / 2, (at(p - 1)[a] - corner[a]) / 2);
      }
    }
  }
}

TEST(Curves, HilbertIsInvertibleForEveryWidth) {
  Random random(7);
  for (int bits = 1; bits <= 64; ++bits)
    for (int i = 0; i < 50; ++i) {
      std::array<uint64_t, 3> u{random.bits() >> (64 - bits), random.bits() >> (64 - bits),
                                random.bits() >> (64 - bits)};
      const auto h = hilbert_transposed(u, bits);
      EXPECT_EQ((h.x | h.y | h.z) >> (bits - 1) >> 1, 0u);
      EXPECT_EQ(hilbert_axes({h.x, h.y, h.z}, bits), u) << bits;
    }
}

TEST(Curves, SameOrderForAnyNumberOfThreads) {
  const int threads = thread_count();
  for (const auto& scene : {support::scene("lidar"), support::scene("random")})
    for (auto order : {morton_order, hilbert_order}) {
      const CoordSpan span{scene.coords.data(), scene.rows(), false};
      set_thread_count(1);
      const auto one = list(order(span));
      set_thread_count(3);
      EXPECT_EQ(list(order(span)), one);
      set_thread_count(threads);
      EXPECT_EQ(one, order == morton_order
                         ? expected_morton(support::rows(scene.coords.data(), scene.rows()))
                         : expected_hilbert(support::rows(scene.coords.data(), scene.rows())));
    }
}

TEST(Curves, Codes) {
  const int64_t top = (1 << 20) - 1;
  const std::vector<int64_t> coords{0, 1, 0, 0, 0, 0, 1, 0,   0,   0,
                                    0, 1, 3, 2, 0, 0, 7, top, top, top};
  std::vector<int64_t> codes(5);
  morton_codes({coords.data(), 5, true}, codes);
  EXPECT_EQ(codes, (std::vector<int64_t>{1, 2, 4, (int64_t{3} << 60) + 8, INT64_MAX}));
  const std::vector<int32_t> narrow(coords.begin(), coords.end());
  std::vector<int64_t> again(5);
  morton_codes({narrow.data(), 5, false}, again);
  EXPECT_EQ(again, codes);
  morton_codes({nullptr, 0, false}, {});
}

TEST(Curves, CodesOutOfRange) {
  const auto message = [](std::vector<int32_t> coords) -> std::string {
    std::vector<int64_t> codes(coords.size() / 4);
    try {
      morton_codes({coords.data(), static_cast<int64_t>(codes.size()), false}, codes);
    } catch (const std::overflow_error& e) {
      return e.what();
    }
    return "";
  };
  EXPECT_EQ(message({0, 0, 0, 0, 0, 5, -1, 0, 0, -4, 0, 0}),
            "[morton_codes] y found -1 at row 1, expected 0..1048575");
  EXPECT_EQ(message({0, 0, 0, 1 << 20}),
            "[morton_codes] z found 1048576 at row 0, expected 0..1048575");
  EXPECT_EQ(message({8, 0, 0, 0}), "[morton_codes] batch found 8 at row 0, expected 0..7");
  EXPECT_EQ(message({-1, 0, 0, 0}), "[morton_codes] batch found -1 at row 0, expected 0..7");
}

}  // namespace
}  // namespace lattice::cpu

// Codes against spelled-out bits, the hierarchy of the curves, patches and windows against loops.
#include "lattice/kernels/cpu/geometry/layouts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>

#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

constexpr Curve kCurves[] = {Curve::z, Curve::z_trans, Curve::hilbert, Curve::hilbert_trans};
using Rows = std::vector<int32_t>;  // 4 numbers per row

CoordSpan span(const Rows& c) { return {c.data(), static_cast<int64_t>(c.size()) / 4, false}; }

Rows random_rows(int64_t n, int32_t low, int32_t high, int32_t batches) {
  support::Random random{static_cast<uint64_t>(n + high)};
  Rows rows;
  for (int64_t i = 0; i < n; ++i) {
    rows.push_back(static_cast<int32_t>(random.below(batches)));
    for (int a = 0; a < 3; ++a)
      rows.push_back(low + static_cast<int32_t>(random.below(high - low)));
  }
  return rows;
}

std::vector<int64_t> codes_of(const Rows& rows, Curve curve) {
  const CoordSpan s = span(rows);
  const Buffer<int64_t> codes = curve_codes(s, curve, curve_frame(bounding_box(s)));
  return {codes.begin(), codes.end()};
}

TEST(Layouts, CodesAreTheBits) {
  const Rows rows = random_rows(200, 0, 50, 3);
  const std::vector<int64_t> z = codes_of(rows, Curve::z), trans = codes_of(rows, Curve::z_trans);
  for (size_t r = 0; r < z.size(); ++r) {
    uint64_t code = 0, swapped = 0;
    for (int b = 5; b >= 0; --b)
      for (const size_t a : {1u, 2u, 3u}) {
        code = code * 2 + (static_cast<uint64_t>(rows[r * 4 + a]) >> b & 1);
        const size_t other = a == 1 ? 2 : a == 2 ? 1 : 3;
        swapped = swapped * 2 + (static_cast<uint64_t>(rows[r * 4 + other]) >> b & 1);
      }
    const int64_t batch = int64_t{rows[r * 4]} << 18;
    EXPECT_EQ(z[r], batch | static_cast<int64_t>(code));
    EXPECT_EQ(trans[r], batch | static_cast<int64_t>(swapped));
  }
}

TEST(Layouts, HilbertStepsToFaceNeighbors) {
  Rows cube;
  for (int32_t i = 0; i < 512; ++i) cube.insert(cube.end(), {0, i / 64, i / 8 % 8, i % 8});
  for (const Curve curve : {Curve::hilbert, Curve::hilbert_trans}) {
    const CurveOrder order = curve_order(span(cube), curve, curve_frame(bounding_box(span(cube))));
    for (int64_t p = 1; p < 512; ++p) {
      int distance = 0;
      for (int64_t a = 1; a < 4; ++a)
        distance += std::abs(cube[static_cast<size_t>(order.rows[p] * 4 + a)] -
                             cube[static_cast<size_t>(order.rows[p - 1] * 4 + a)]);
      EXPECT_EQ(distance, 1);
    }
  }
}

TEST(Layouts, CurvesAreHierarchical) {
  for (const int32_t low : {0, -700}) {
    Rows rows = random_rows(300, low, 900, 2);
    rows.insert(rows.end(), {0, low, low, low, 0, 899, 899, 899});  // the frame is known
    Rows coarse = rows;
    for (size_t i = 0; i < coarse.size(); ++i)
      if (i % 4) coarse[i] = rows[i] >> 1;
    const CurveFrame fine = curve_frame(bounding_box(span(rows)));
    const CurveFrame half{fine.depth - 1, fine.offset / 2, fine.batch_bits};
    for (const Curve curve : kCurves) {
      const Buffer<int64_t> codes = curve_codes(span(rows), curve, fine),
                            shifted = curve_codes(span(coarse), curve, half);
      for (int64_t r = 0; r < codes.size(); ++r) EXPECT_EQ(codes[r] >> 3, shifted[r]);
    }
  }
}

TEST(Layouts, FramesOfEdges) {
  EXPECT_EQ(curve_frame({}).depth, 0);
  const auto frame = [](const Rows& rows) { return curve_frame(bounding_box(span(rows))); };
  EXPECT_EQ(frame({0, 0, 0, 0}).depth, 0);
  EXPECT_EQ(frame({0, 1, 0, 0}).depth, 1);
  EXPECT_EQ(frame({0, 0, 0, 8}).depth, 4);
  EXPECT_EQ(frame({0, -1, 0, 0}).offset, 1024);
  EXPECT_EQ(frame({0, -1025, 0, 0}).offset, 2048);
  EXPECT_EQ(frame({0, (1 << 21) - 1, 0, 0}).depth, 21);
  EXPECT_THROW(frame({0, 1 << 21, 0, 0}), std::overflow_error);
  EXPECT_THROW(frame({1, (1 << 21) - 1, 0, 0}), std::overflow_error);
  EXPECT_THROW(frame({0, INT32_MIN, 0, INT32_MAX}), std::overflow_error);
}

// Slot p of a cloud of n > k rows holds row p, or for p >= n row p - k.
TEST(Layouts, PatchesBorrow) {
  for (const int64_t k : {1, 2, 5, 8, 100})
    for (const std::vector<int64_t>& clouds :
         {std::vector<int64_t>{}, {0}, {7}, {8}, {9}, {16, 0, 17, 1}, {3, 100, 5}}) {
      const int64_t n = std::accumulate(clouds.begin(), clouds.end(), int64_t{0});
      std::vector<int32_t> order(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i)
        order[static_cast<size_t>(i)] = static_cast<int32_t>(n - 1 - i);
      const Slots made = patch_slots(order, clouds, k);
      std::vector<int32_t> rows, offsets{0};
      int64_t first = 0;
      for (const int64_t c : clouds) {
        const int64_t slots = c > k ? (c + k - 1) / k * k : c;
        for (int64_t p = 0; p < slots; ++p) {
          rows.push_back(order[static_cast<size_t>(first + (p < c ? p : p - k))]);
          if (p + 1 == slots || (p + 1) % k == 0)
            offsets.push_back(static_cast<int32_t>(rows.size()));
        }
        first += c;
      }
      EXPECT_EQ(rows, std::vector<int32_t>(made.rows.begin(), made.rows.end()));
      EXPECT_EQ(offsets, std::vector<int32_t>(made.offsets.begin(), made.offsets.end()));
      for (int64_t r = 0; r < n; ++r) {  // the own slot of a row holds it, and is the first to
        const auto found = std::find(rows.begin(), rows.end(), static_cast<int32_t>(r));
        EXPECT_EQ(made.slots[r], found - rows.begin());
      }
    }
}

TEST(Layouts, WindowsHoldWhatLiesInThem) {
  const Rows rows = random_rows(400, -9, 12, 3);
  struct Case {
    Triple size, shift;
  };
  for (const Case& c : {Case{{4, 4, 4}, {0, 0, 0}},
                        {{4, 3, 5}, {2, 1, 4}},
                        {{0, 1, 0}, {0, 0, 0}},
                        {{0, 0, 0}, {0, 0, 0}},
                        {{1, 1, 1}, {0, 0, 0}}}) {
    std::map<std::array<int64_t, 4>, std::vector<int32_t>> expected;
    for (int32_t r = 0; r < 400; ++r) {
      std::array<int64_t, 4> window{rows[static_cast<size_t>(r) * 4], 0, 0, 0};
      for (size_t a = 0; a < 3; ++a) {
        const int64_t v = rows[static_cast<size_t>(r) * 4 + a + 1] + c.shift[a];
        if (c.size[a]) window[a + 1] = floor_div(v, c.size[a]);
      }
      expected[window].push_back(r);
    }
    const Slots made = window_slots(span(rows), c.size, c.shift);
    ASSERT_EQ(made.offsets.size(), static_cast<int64_t>(expected.size()) + 1);
    int64_t s = 0;
    for (const auto& [window, members] : expected) {
      EXPECT_EQ(members, std::vector<int32_t>(made.rows.begin() + made.offsets[s],
                                              made.rows.begin() + made.offsets[s + 1]));
      ++s;
    }
    for (int64_t r = 0; r < 400; ++r) EXPECT_EQ(made.rows[made.slots[r]], r);
  }
  EXPECT_EQ(window_slots(span({}), {4, 4, 4}, {0, 0, 0}).offsets.size(), 1);
}

TEST(Layouts, BlocksAreSortedAlongTheCurve) {
  for (const int32_t low : {0, -40}) {
    const Rows rows = random_rows(500, low, 60, 2);
    for (const Curve curve : kCurves)
      for (const int log2 : {0, 1, 3}) {
        const Blocks made =
            curve_blocks(span(rows), curve, log2, curve_frame(bounding_box(span(rows))));
        std::map<std::array<int32_t, 4>, int32_t> seen;
        Rows coarse;
        for (size_t r = 0; r < 500; ++r) {
          std::array<int32_t, 4> block{rows[r * 4]};
          for (size_t a = 1; a < 4; ++a) block[a] = rows[r * 4 + a] >> log2;
          const int32_t id = made.block_of[static_cast<int64_t>(r)];
          EXPECT_EQ(seen.emplace(block, id).first->second, id);
        }
        EXPECT_EQ(made.first.size(), static_cast<int64_t>(seen.size()));
        const std::vector<int64_t> codes = codes_of(rows, curve);
        for (int64_t b = 0; b < made.first.size(); ++b) {
          EXPECT_EQ(made.block_of[made.first[b]], b);
          if (b == 0) continue;
          EXPECT_LT(codes[static_cast<size_t>(made.first[b - 1])] >> (3 * log2),
                    codes[static_cast<size_t>(made.first[b])] >> (3 * log2));
        }
      }
  }
  const Rows flat = {0, 0, 0, 0, 0, 1, 1, 1};
  const CurveFrame frame = curve_frame(bounding_box(span(flat)));
  EXPECT_EQ(curve_blocks(span(flat), Curve::z, 2, frame).first.size(), 2);  // depth 1: no pooling
  EXPECT_EQ(curve_blocks(span(flat), Curve::z, 2, frame).log2, 0);
}

}  // namespace
}  // namespace lattice::cpu

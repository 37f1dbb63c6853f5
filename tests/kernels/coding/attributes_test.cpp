// Values of voxels: every bit pattern comes back; smooth values take fewer bits than they have.
#include "lattice/kernels/cpu/coding/attributes.h"

#include <gtest/gtest.h>

#include <cstring>

#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

TEST(Values, EveryKindComesBack) {
  support::Random random(1);
  for (const int64_t rows : {0, 1, 2, 40, 700})
    for (const ValueKind kind : {ValueKind{1, false}, ValueKind{2, false}, ValueKind{4, false},
                                 ValueKind{2, true}, ValueKind{4, true}})
      for (const int64_t channels : {1, 3, 5}) {
        const support::Coords coords = support::random_set(rows, 1 << 20, 3);
        std::vector<uint8_t> values(static_cast<size_t>(rows * channels * kind.width));
        for (uint8_t& v : values)
          v = static_cast<uint8_t>(random.bits());  // NaN and infinity are among them
        const std::vector<uint8_t> data = encode_values(coords, values, channels, kind);
        ASSERT_EQ(decode_values(coords, data, channels, kind, "test"), values)
            << rows << " " << kind.width;
      }
}

TEST(Values, FarApart) {
  const std::vector<int32_t> coords{0,         INT32_MIN, INT32_MIN, INT32_MIN, 0, INT32_MAX,
                                    INT32_MAX, INT32_MAX, 9,         0,         0, 0};
  const std::vector<uint8_t> values{1, 255, 7};
  EXPECT_EQ(
      decode_values(coords, encode_values(coords, values, 1, {1, false}), 1, {1, false}, "test"),
      values);
}

TEST(Values, SmoothOnesAreSmall) {
  const support::Coords line = [] {
    support::Coords c;
    for (int32_t x = 0; x < 5000; ++x) c.insert(c.end(), {0, x, 0, 0});
    return c;
  }();
  std::vector<uint8_t> color(15000);
  std::vector<uint8_t> heights(20000);
  for (size_t i = 0; i < 5000; ++i) {
    for (size_t c = 0; c < 3; ++c) color[3 * i + c] = static_cast<uint8_t>(i / 40 + 20 * c);
    const float h = static_cast<float>(i) * 0.25f;
    std::memcpy(&heights[4 * i], &h, 4);
  }
  const auto coded = encode_values(line, color, 3, {1, false});
  EXPECT_LT(coded.size(), 500u);
  EXPECT_LT(encode_values(line, heights, 1, {4, true}).size(), 3000u);
  EXPECT_EQ(crc32c(coded), 325085626u);  // the model is part of the format
}

TEST(Values, RefusesOtherBytes) {
  const support::Coords coords = support::random_set(100, 50);
  const std::vector<uint8_t> values(300, 7);
  const std::vector<uint8_t> data = encode_values(coords, values, 3, {1, false});
  for (size_t n = 0; n < data.size(); ++n)
    EXPECT_THROW(decode_values(coords, Bytes(data).first(n), 3, {1, false}, "test"),
                 std::invalid_argument);
  EXPECT_THROW(decode_values(coords, data, 60000, {4, false}, "test"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice::cpu

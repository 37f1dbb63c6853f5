// Entropy coding on arrays: shapes, dtypes, shared tables, errors. Streams at large:
// tests/kernels/entropy_test.cpp.
#include "lattice/ops/entropy.h"

#include "tests/support/errors.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

namespace lattice {
namespace {

bool same(const mx::array& a, const mx::array& b) { return mx::array_equal(a, b).item<bool>(); }

mx::array probabilities(int rows, int alphabet, mx::Dtype dtype) {
  return mx::astype(
      mx::softmax(mx::random::normal({rows, alphabet}, mx::float32, 0.0f, 3.0f, mx::random::key(1)),
                  -1),
      dtype);
}
mx::array symbols(int rows, int alphabet) {
  return mx::random::randint(0, alphabet, {rows}, mx::int32, mx::random::key(2));
}

TEST(Entropy, BothCodersEveryDtype) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int rows : {0, 1, 77}) {
      const mx::array p = probabilities(rows, 9, dtype), s = symbols(rows, 9);
      const mx::array cdf = normalized_cdf(p);
      EXPECT_EQ(cdf.dtype(), mx::int16);
      EXPECT_EQ(cdf.shape(), (mx::Shape{rows, 10}));
      EXPECT_TRUE(same(cdf, normalized_cdf(mx::astype(p, mx::float32))));
      const ByteString bytes = range_encode(cdf, s);
      EXPECT_EQ(bytes, range_encode_from_prob(p, s));
      EXPECT_EQ(bytes, range_encode(mx::view(cdf, mx::uint16), mx::astype(s, mx::int64)));
      EXPECT_TRUE(same(range_decode(cdf, bytes), s));
      EXPECT_TRUE(same(range_decode_from_prob(p, bytes), s));
      EXPECT_TRUE(same(rans_decode_from_prob(p, rans_encode_from_prob(p, s)), s));
      EXPECT_EQ(range_decode(cdf, bytes).dtype(), mx::int32);
    }
}

TEST(Entropy, OneTableForAllRows) {
  const mx::array p = probabilities(1, 256, mx::float32), s = symbols(10000, 256);
  const mx::array wide = mx::broadcast_to(p, {10000, 256});
  const ByteString bytes = rans_encode_from_prob(p, s);
  EXPECT_EQ(rans_encode_from_prob(wide, s), bytes);
  EXPECT_TRUE(same(rans_decode_from_prob(p, bytes), s));
  EXPECT_TRUE(same(rans_decode_from_prob(wide, bytes), s));
  EXPECT_TRUE(same(rans_decode_from_prob(mx::contiguous(mx::repeat(p, 10000, 0)), bytes),
                   s));  // tables of its own
  const mx::array cdf = normalized_cdf(wide);
  EXPECT_EQ(cdf.shape(), (mx::Shape{10000, 257}));
  EXPECT_TRUE(same(range_decode(cdf, range_encode(cdf, s)), s));
  EXPECT_THROW(rans_decode_from_prob(mx::broadcast_to(p, {9999, 256}), bytes),
               std::invalid_argument);
  EXPECT_THROW(rans_encode_from_prob(mx::broadcast_to(p, {9999, 256}), s), std::invalid_argument);
}

using support::message;

TEST(Entropy, Errors) {
  const mx::array p = probabilities(3, 4, mx::float32), s = symbols(3, 4), cdf = normalized_cdf(p);
  EXPECT_EQ(message([&] { normalized_cdf(mx::zeros({3, 1})); }),
            "[normalized_cdf] prob must have shape (R, A) with 2 <= A <= 65536, got (3, 1)");
  EXPECT_EQ(message([&] { normalized_cdf(mx::zeros({3})); }),
            "[normalized_cdf] prob must have shape (R, A) with 2 <= A <= 65536, got (3,)");
  EXPECT_EQ(message([&] { normalized_cdf(mx::zeros({3, 2}, mx::int32)); }),
            "[normalized_cdf] prob must be float32, float16 or bfloat16, got int32");
  EXPECT_EQ(message([&] { normalized_cdf(mx::array({0.5f, INFINITY}, {1, 2})); }),
            "[normalized_cdf] prob row 0 holds a NaN or an infinity, expected finite values");
  EXPECT_EQ(message([&] { range_encode(cdf, mx::array({0, 4, 1}, {3})); }),
            "[range_encode] symbols[1] = 4 is outside 0..3");
  EXPECT_EQ(message([&] { range_encode(cdf, symbols(2, 4)); }),
            "[range_encode] symbols must have shape (3,), one for each row of the table, got (2,)");
  EXPECT_EQ(message([&] { range_encode(mx::zeros({3, 5}, mx::int16), s); }),
            "[range_encode] cdf row 0 must ascend strictly from 0 to 65536, stored as 0");
  EXPECT_EQ(message([&] { range_encode(p, s); }),
            "[range_encode] cdf must be int16 or uint16, got float32");
  EXPECT_NE(message([&] { range_decode(cdf, {}); }).find("[range_decode] data is no stream"),
            std::string::npos);
  const ByteString bytes = rans_encode_from_prob(p, s);
  EXPECT_NE(message([&] { range_decode(cdf, bytes); }).find("written by coder 2"),
            std::string::npos);
}

}  // namespace
}  // namespace lattice

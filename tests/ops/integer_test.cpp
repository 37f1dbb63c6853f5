// integer_conv: what it refuses. Its bits are compared by tests/kernels/features/int_conv_test.cpp,
// its routes by the self test.
#include "lattice/ops/integer.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>

namespace lattice {
namespace {

IntegerParts parts(int8_t weight) {
  return {.weight = mx::full({1, 64, 2}, mx::array(weight, mx::int8)),
          .bias = mx::zeros({2}, mx::int32),
          .scale = mx::full({2}, 0.01f)};
}

TEST(Integer, ABrokenLaneRuleNamesTheLayer) {
  EXPECT_NO_THROW(IntegerKernel(parts(16)));
  try {
    IntegerKernel(parts(17), "encoder.stem");
    FAIL() << "the lane rule allows 8 * 16, not 8 * 17";
  } catch (const std::invalid_argument& error) {
    EXPECT_NE(std::string(error.what()).find("encoder.stem"), std::string::npos) << error.what();
  }
}

TEST(Integer, PointwiseRowsAndDtypes) {
  const IntegerKernel kernel(parts(1));
  const mx::array coords({0, 0, 0, 0, 0, 1, 0, 0}, {2, 4}, mx::int32);
  const SparseTensor x(coords, mx::full({2, 64}, mx::array(100, mx::uint8)));
  const ConvOptions point{KernelSpec({1, 1, 1}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), {}, 1};
  mx::array y = integer_conv(RelationKind::submanifold, {x}, kernel, point).feats();
  y.eval();
  EXPECT_EQ(y.dtype(), mx::uint8);
  EXPECT_EQ(y.data<uint8_t>()[0], 64);  // 64 * 100 * 0.01
  EXPECT_THROW(integer_conv(RelationKind::submanifold, {x.astype(mx::float32)}, kernel, point),
               std::invalid_argument);
  EXPECT_THROW(integer_conv(RelationKind::submanifold, {x}, kernel, point, x),
               std::invalid_argument);
}

}  // namespace
}  // namespace lattice

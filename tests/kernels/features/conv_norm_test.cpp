// conv with a norm after it: float32 results have the bits of conv and then norm_rows; smaller
// types are rounded once instead of twice.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/norm.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/relation_lists.h"
#include "tests/support/values.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::float_type_of;
using support::values;

// Up by 2 x 2 x 2: every output row has one edge.
RelationLists upward(int64_t n) {
  const support::Coords coords = support::random_set(n, 8);
  const CoordSpan span{coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
  MadeCoords made;
  return reversed(relate_downscaled(span, std::make_shared<const CoordIndex>(index_coords(span)),
                                    {.size = {2, 2, 2}, .stride = {2, 2, 2}}, &made));
}

struct Shape {
  int64_t c_in, c_out;
  bool bias, residual, relu;
};

template <typename T>
struct Problem {
  Problem(const RelationLists& given, Shape s)
      : lists(given),
        shape(s),
        x(values<T>(lists.n_in * s.c_in, 1)),
        w(values<T>(lists.n_k() * s.c_in * s.c_out, 2)),
        bias(values<T>(s.c_out, 3)),
        residual(values<T>(lists.n_out * s.c_out, 4)),
        mean(values<float>(s.c_out, 5)),
        scale(values<float>(s.c_out, 6)),
        shift(values<float>(s.c_out, 7)) {}

  std::vector<T> run(const NormAfter& norm) const {
    const ConvShape z{shape.c_in, shape.c_out, 1, kType};
    const DenseWeight weight(z, w.data());
    std::vector<T> y(static_cast<size_t>(lists.n_out * shape.c_out));
    conv(lists, tile_bounds(lists, conv_tile(lists)),
         {z, x.data(), &weight, shape.bias ? bias.data() : nullptr, y.data(), false, norm});
    return y;
  }
  std::vector<T> together() const {
    return run({mean.data(), scale.data(), shift.data(), shape.residual ? residual.data() : nullptr,
                shape.relu});
  }
  std::vector<T> apart() const {
    const std::vector<T> made = run({});
    std::vector<T> y(made.size());
    norm_rows({kType, lists.n_out, shape.c_out},
              {made.data(), mean.data(), scale.data(), shift.data(),
               shape.residual ? residual.data() : nullptr, shape.relu, y.data()});
    return y;
  }

  static constexpr FloatType kType = float_type_of<T>();
  const RelationLists& lists;
  Shape shape;
  std::vector<T> x, w, bias, residual;
  std::vector<float> mean, scale, shift;
};

const Shape kShapes[] = {{5, 3, true, true, true},     {16, 16, false, true, true},
                         {33, 40, true, false, true},  {32, 64, false, true, false},
                         {8, 96, false, false, false}, {3, 1, true, true, true}};

TEST(ConvNorm, HasTheBitsOfConvThenNorm) {
  support::on_each_target([] {
    for (const RelationLists& lists :
         {submanifold(support::random_set(700, 8)), upward(700), identity(700), identity(0)}) {
      for (const Shape& s : kShapes) {
        SCOPED_TRACE(std::to_string(s.c_in) + " -> " + std::to_string(s.c_out));
        const Problem<float> p(lists, s);
        EXPECT_EQ(p.together(), p.apart());
      }
    }
  });
}

template <typename T>
void expect_one_rounding(double unit) {
  for (const RelationLists& lists :
       {submanifold(support::random_set(300, 8)), upward(300), identity(3000)}) {
    for (const Shape& s : kShapes) {
      const Problem<T> p(lists, s);
      const std::vector<T> found = p.together(), expected = p.apart();
      for (size_t i = 0; i < found.size(); ++i) {
        const double a = double{widen(found[i])}, b = double{widen(expected[i])};
        // The product that was rounded first has values up to about 20 here.
        ASSERT_NEAR(a, b, unit * 24) << s.c_in << " -> " << s.c_out << ", element " << i;
      }
    }
  }
}
TEST(ConvNorm, SmallTypes) {
  expect_one_rounding<half_t>(0x1p-10);
  expect_one_rounding<bfloat_t>(0x1p-7);
}

TEST(ConvNorm, NanPassesTheRelu) {
  const RelationLists lists = identity(20);
  Problem<float> p(lists, {16, 16, false, true, true});
  p.residual[37] = std::nanf("");
  EXPECT_TRUE(std::isnan(p.together()[37]));
  p.residual[37] = -1e9f;
  EXPECT_EQ(p.together()[37], 0.0f);
}

TEST(ConvNorm, SameBitsForAnyNumberOfThreads) {
  const int before = thread_count();
  for (const RelationLists& lists : {submanifold(support::random_set(1500, 8)), identity(5000)}) {
    const Problem<float> p(lists, {32, 48, true, true, true});
    set_thread_count(1);
    const std::vector<float> one = p.together();
    set_thread_count(3);
    EXPECT_EQ(p.together(), one);
  }
  set_thread_count(before);
}

}  // namespace
}  // namespace lattice::cpu

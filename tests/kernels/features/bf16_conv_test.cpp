// bf16_conv against conv, which adds the same products in another order: results differ by the
// rounding of sums and of the store, and not at all between numbers of threads.
#include "lattice/kernels/cpu/features/bf16_conv.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/values.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::values;

struct Shape {
  int64_t c_in, more, c_out;
  bool bias, norm, residual, relu;
};

struct Problem {
  Problem(const RelationLists& given, Shape s)
      : lists(given),
        shape(s),
        x(values<bfloat_t>(lists.n_in * s.c_in, 1)),
        more(values<bfloat_t>(lists.n_in * s.more, 2)),
        w(values<bfloat_t>(lists.n_k() * (s.c_in + s.more) * s.c_out, 3)),
        bias(values<bfloat_t>(s.c_out, 4)),
        residual(values<bfloat_t>(lists.n_out * s.c_out, 5)),
        mean(values<float>(s.c_out, 6)),
        scale(values<float>(s.c_out, 7)),
        shift(values<float>(s.c_out, 8)),
        weight({s.c_in + s.more, s.c_out, 1, FloatType::bf16}, w.data()) {}

  std::vector<float> run(bool products) const {
    std::vector<bfloat_t> y(static_cast<size_t>(lists.n_out * shape.c_out));
    ConvArgs args{.shape = weight.shape, .x = x.data(), .weight = &weight, .y = y.data()};
    if (shape.bias) args.bias = bias.data();
    if (shape.norm) args.norm = {mean.data(), scale.data(), shift.data(), nullptr, false};
    if (shape.residual) args.norm.residual = residual.data();
    args.norm.relu = shape.relu;
    if (shape.more) args.more = more.data(), args.more_columns = shape.more;
    const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
    products ? bf16_conv(lists, bounds, args) : conv(lists, bounds, args);
    std::vector<float> wide;
    for (const bfloat_t v : y) wide.push_back(widen(v));
    return wide;
  }

  RelationLists lists;
  Shape shape;
  std::vector<bfloat_t> x, more, w, bias, residual;
  std::vector<float> mean, scale, shift;
  DenseWeight weight;
};

std::vector<RelationLists> relations() {
  const support::Coords coords = support::random_set(700, 9, 2, 3);
  const CoordSpan span{coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
  const auto index = std::make_shared<const CoordIndex>(index_coords(span));
  MadeCoords made;
  std::vector<RelationLists> all;
  all.push_back(relate_downscaled(span, index, {.size = {2, 2, 2}, .stride = {2, 2, 2}}, &made));
  all.push_back(reversed(all[0]));
  all.push_back(relate_same(index, Kernel{}));
  return all;
}

TEST(Bf16Conv, EqualsConvUpToRounding) {
  if (!has_bf16_products()) GTEST_SKIP() << "this machine has no AVX-512 BF16";
  for (const RelationLists& lists : relations())
    for (const Shape& s :
         {Shape{16, 0, 16, false, false, false, false}, Shape{20, 0, 33, true, false, false, false},
          Shape{32, 16, 64, false, true, true, true}, Shape{130, 0, 40, true, true, false, true}}) {
      SCOPED_TRACE(std::to_string(s.c_in) + " -> " + std::to_string(s.c_out));
      const Problem p(lists, s);
      const std::vector<float> expected = p.run(false), found = p.run(true);
      float most = 0;
      for (const float v : expected) most = std::max(most, std::fabs(v));
      for (size_t i = 0; i < found.size(); ++i)
        ASSERT_NEAR(found[i], expected[i], 0.0079f * std::fabs(expected[i]) + 1e-5f * most) << i;
      const int before = thread_count();
      for (const int threads : {1, 7}) {
        set_thread_count(threads);
        EXPECT_EQ(p.run(true), found) << threads << " threads";
      }
      set_thread_count(before);
    }
}

TEST(Bf16Conv, OtherRowsAreRefused) {
  const RelationLists lists = relations()[0];
  const Problem p(lists, {16, 0, 16, false, false, false, false});
  std::vector<float> y(static_cast<size_t>(lists.n_out * 16));
  const ConvArgs args{.shape = {16, 16}, .x = p.x.data(), .weight = &p.weight, .y = y.data()};
  EXPECT_THROW(bf16_conv(lists, tile_bounds(lists, conv_tile(lists)), args), std::invalid_argument);
}

}  // namespace
}  // namespace lattice::cpu

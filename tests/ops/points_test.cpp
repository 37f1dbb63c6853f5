// Derivatives of voxelize and devoxelize, adjoints, errors. Values at large are compared with NumPy
// in tests/python/test_points.py, every route of map_rows with its oracle in routes_test.cpp.
#include "lattice/ops/points.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>

#include "lattice/kernels/cpu/base/threads.h"
#include "tests/ops/arrays.h"

namespace lattice {
namespace {

PointOptions size(float edge) { return {{edge, edge, edge}, {0.1f, 0, -0.2f}, std::nullopt}; }

using Function = std::function<mx::array(const mx::array&)>;

// f is linear: <g, f(x)> = <x, f*(g)>, and its jvp is f itself.
void expect_adjoint(const Function& f, const mx::array& x) {
  const auto many = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{f(in[0])};
  };
  const mx::array g = normal(f(x).shape(), 5);
  const auto [y, grads] = mx::vjp(many, {x}, {g});
  const double left = value(dot(g, y[0]));
  EXPECT_NEAR(left, value(dot(x, grads[0])), 1e-4 * (std::fabs(left) + 1));
  const auto [y2, tangents] = mx::jvp(many, {x}, {x});
  EXPECT_TRUE(mx::allclose(tangents[0], y[0], 1e-5, 1e-6).item<bool>());
}

TEST(Points, SumsAndMeansHaveTheirAdjoints) {
  const mx::array points = normal({300, 3}, 1), feats = normal({300, 5}, 2);
  for (const Reduction reduction : {Reduction::sum, Reduction::mean})
    expect_adjoint(
        [&](const mx::array& f) { return voxelize(points, f, size(0.7f), {}, reduction).feats(); },
        feats);
}

TEST(Points, InterpolationHasItsAdjoint) {
  const mx::array points = normal({300, 3}, 1);
  const SparseTensor voxels = voxelize(points, normal({300, 5}, 2), size(0.7f));
  for (const Interpolation kind : {Interpolation::linear, Interpolation::nearest})
    expect_adjoint(
        [&](const mx::array& f) {
          return devoxelize(points, voxels.with_feats(f), size(0.7f), kind);
        },
        normal(voxels.feats().shape(), 3));
}

TEST(Points, SecondDerivativeOfTheMean) {
  const mx::array points = normal({60, 3}, 1), x = normal({60, 2}, 2), d = normal({60, 2}, 3);
  const auto loss = [&](const mx::array& f) {
    return mx::sum(mx::power(voxelize(points, f, size(1.0f)).feats(), mx::array(3.0f)));
  };
  const auto slope = [&](const mx::array& f) { return dot(mx::grad(loss)(f), d); };
  const double second = value(dot(mx::grad(slope)(x), d));
  const mx::array y = voxelize(points, x, size(1.0f)).feats(),
                  dy = voxelize(points, d, size(1.0f)).feats();
  EXPECT_NEAR(second,
              value(mx::sum(mx::multiply(mx::array(6.0f), mx::multiply(y, mx::multiply(dy, dy))))),
              1e-3);
}

TEST(Points, MaximumSharesItsDerivativeAmongTies) {
  const float xyz[] = {0, 0, 0, 0.5f, 0, 0, 0.2f, 0, 0, 3, 0, 0};
  const float values[] = {2, 1, 2, 5};
  const mx::array points(xyz, {4, 3}, mx::float32), x(values, {4, 1}, mx::float32);
  const PointOptions unit{{1, 1, 1}, {0, 0, 0}, std::nullopt};
  const auto f = [&](const std::vector<mx::array>& in) {
    return std::vector<mx::array>{voxelize(points, in[0], unit, {}, Reduction::max).feats()};
  };
  const float g[] = {8, 3};
  const auto [y, grads] = mx::vjp(f, {x}, {mx::array(g, {2, 1}, mx::float32)});
  const float most[] = {2, 5}, want[] = {4, 0, 4, 3};
  EXPECT_TRUE(mx::array_equal(y[0], mx::array(most, {2, 1}, mx::float32)).item<bool>());
  EXPECT_TRUE(mx::array_equal(grads[0], mx::array(want, {4, 1}, mx::float32)).item<bool>());
  const float t[] = {1, 100, 3, 7}, along[] = {2, 7};
  const auto [y2, tangents] = mx::jvp(f, {x}, {mx::array(t, {4, 1}, mx::float32)});
  EXPECT_TRUE(mx::array_equal(tangents[0], mx::array(along, {2, 1}, mx::float32)).item<bool>());
}

TEST(Points, OneAndTwoThreadsAgree) {
  const mx::array points = normal({70000, 3}, 1), feats = normal({70000, 3}, 2);
  const int before = cpu::thread_count();
  std::vector<mx::array> got;
  for (int threads : {1, 2}) {
    cpu::set_thread_count(threads);
    const SparseTensor voxels = voxelize(points, feats, size(0.1f));
    got.push_back(devoxelize(points, voxels, size(0.1f)));
    got.push_back(mx::astype(voxels.coords(), mx::float32));
    mx::eval(got);
  }
  cpu::set_thread_count(before);
  EXPECT_TRUE(mx::array_equal(got[0], got[2]).item<bool>());
  EXPECT_TRUE(mx::array_equal(got[1], got[3]).item<bool>());
}

TEST(Points, TemplateLendsItsIdentity) {
  const mx::array points = normal({50, 3}, 1), feats = normal({50, 2}, 2);
  const SparseQuantization quantization = sparse_quantize(points, size(0.5f));
  const SparseTensor first =
      voxelize_with_quantization(quantization, feats, Reduction::mean, {2, 2, 2});
  const SparseTensor second =
      voxelize_with_quantization(quantization, feats, Reduction::sum, {1, 1, 1}, first);
  EXPECT_TRUE(second.same_coords(first));
  EXPECT_EQ(second.stride(), (Triple{2, 2, 2}));
  const SparseTensor other = voxelize(points, feats, size(0.4f));
  EXPECT_THROW(voxelize_with_quantization(quantization, feats, Reduction::sum, {1, 1, 1}, other),
               std::invalid_argument);
}

}  // namespace
}  // namespace lattice

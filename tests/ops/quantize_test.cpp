// Packed weights: codes, layouts, derivatives, memory, errors. Values of the packed routes are in
// routes_test.cpp.
#include "lattice/ops/quantize.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <cmath>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/ops/conv.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/table.h"
#include "tests/ops/arrays.h"
#include "tests/ops/forced_route.h"

namespace lattice {
namespace {

mx::array normal(const mx::Shape& shape, uint64_t seed, mx::Dtype dtype = mx::float32) {
  return mx::astype(lattice::normal(shape, seed), dtype);
}
bool same_bits(const mx::array& a, const mx::array& b) {
  return a.shape() == b.shape() && a.dtype() == b.dtype() &&
         mx::array_equal(a, b, true).item<bool>();
}

TEST(Quantize, CodesAreThoseOfMlx) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int bits : {4, 8})
      for (const int group : {32, 64, 128})
        for (const int in : {1, 64, 150}) {
          const mx::array w = normal({3, in, 10}, 1, dtype);
          const QuantizedWeight q = quantize_weight(w, group, bits);
          const int stored = (in + group - 1) / group * group;
          EXPECT_EQ(q.storage_in_channels(), stored);
          EXPECT_EQ(q.weight().shape(), (mx::Shape{3, stored * bits / 32, 10}));
          EXPECT_EQ(q.scales().shape(), (mx::Shape{3, stored / group, 10}));
          EXPECT_EQ(q.dtype(), dtype);
          const mx::array rows =
              mx::pad(mx::transpose(w, {0, 2, 1}), {{0, 0}, {0, 0}, {0, stored - in}},
                      mx::array(0.0f, dtype));
          const auto expected = mx::quantize(mx::contiguous(rows), group, bits, "affine");
          EXPECT_TRUE(same_bits(mx::transpose(q.weight(), {0, 2, 1}), expected[0]));
          EXPECT_TRUE(same_bits(mx::transpose(q.scales(), {0, 2, 1}), expected[1]));
          EXPECT_TRUE(same_bits(mx::transpose(q.biases(), {0, 2, 1}), expected[2]));
        }
}

TEST(Quantize, LayoutsAreRestored) {
  for (const mx::Shape& shape : {mx::Shape{7, 40}, mx::Shape{1, 40, 7}, mx::Shape{27, 5, 7},
                                 mx::Shape{7, 3, 2, 1, 70}, mx::Shape{7, 1, 1, 1, 33}}) {
    const mx::array w = normal(shape, 2);
    const QuantizedWeight q = quantize_weight(w, std::nullopt, 8);
    const mx::array back = dequantize_weight(q);
    EXPECT_EQ(back.shape(), shape);
    EXPECT_EQ(q.dense_shape(), shape);
    EXPECT_LT(value(mx::max(mx::abs(mx::subtract(back, w)))),
              6.0 / 255);  // half a step of a range below 10
    EXPECT_EQ(q.group_size(), q.in_channels() >= 64 ? 64 : 32);
  }
}

SparseTensor tensor(int n, int channels, mx::Dtype dtype) {
  std::vector<int32_t> coords;
  for (int i = 0; i < n; ++i) coords.insert(coords.end(), {i % 2, i / 2 % 5, i / 10 % 4, i / 40});
  return SparseTensor(mx::array(coords.data(), {n, 4}, mx::int32), normal({n, channels}, 1, dtype),
                      {2, 2, 2});
}

// The block expansion has the bits of the dequantized weight and the same kernel runs. Products of
// bfloat16 in one instruction have other bits, so the row of the tiles is named.
TEST(Quantize, EveryConvolutionHasTheBitsOfTheDenseRoute) {
  const Triple one{1, 1, 1}, two{2, 2, 2}, three{3, 3, 3}, zero{0, 0, 0};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int bits : {4, 8})
      for (const auto& [c_in, c_out, groups] :
           {std::tuple(5, 7, 1), {64, 48, 1}, {33, 17, 1}, {12, 8, 4}, {6, 6, 6}}) {
        const SparseTensor x = tensor(130, c_in, dtype), target = tensor(90, 1, dtype);
        const auto check = [&](const auto& op, const Triple& size, const Triple& stride,
                               bool with_target) {
          const int k = static_cast<int>(size[0] * size[1] * size[2]);
          const QuantizedWeight q =
              quantize_weight(normal({k, c_in / groups, c_out}, 4, dtype), std::nullopt, bits);
          ConvOptions o{KernelSpec(size, stride, zero, one), std::nullopt, groups};
          if (with_target) o.coordinates = target.coords();
          const mx::array bias = normal({c_out}, 5, dtype);
          const SparseTensor packed = op(x, q, bias, o, {});
          const ForcedRoute tiles("conv=cpu.tiles");
          const SparseTensor dense = op(x, dequantize_weight(q), bias, o, {});
          EXPECT_TRUE(same_bits(packed.feats(), dense.feats()))
              << c_in << " " << c_out << " " << groups;
        };
        check(subm_conv3d, three, one, false);
        check(conv3d, two, two, false);
        check(conv3d, three, one, true);
        check(conv3d, one, one, false);
        check(conv3d, one, two, false);
        check(conv_transpose3d, two, two, false);
        check(conv_transpose3d, two, two, true);
        check(generative_conv_transpose3d, two, two, false);
      }
}

TEST(Quantize, LinearHasTheBitsOfTheDenseRoute) {
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const int n : {0, 1, 300}) {
      const mx::array x = normal({n, 70}, 1, dtype), bias = normal({9}, 2, dtype);
      const QuantizedWeight q = quantize_weight(normal({9, 70}, 3, dtype), 32, 4);
      EXPECT_TRUE(
          same_bits(linear_features(x, q, bias), linear_features(x, dequantize_weight(q), bias)));
    }
}

TEST(Quantize, FeatureGradientsAreThoseOfTheDenseRoute) {
  for (const auto& [c_in, c_out, groups] :
       {std::tuple(5, 7, 1), {70, 33, 1}, {12, 8, 4}, {6, 6, 6}, {4, 8, 4}}) {
    const SparseTensor x = tensor(130, c_in, mx::float32);
    const QuantizedWeight q =
        quantize_weight(normal({27, c_in / groups, c_out}, 4), std::nullopt, 4);
    const mx::array dense = dequantize_weight(q), bias = normal({c_out}, 5);
    const ConvOptions o{{}, std::nullopt, groups};
    const auto loss = [&](const Weight& w) {
      return [&, w](const std::vector<mx::array>& in) {
        return mx::sum(
            mx::power(subm_conv3d(x.with_feats(in[0]), w, in[1], o).feats(), mx::array(3.0f)));
      };
    };
    const auto a = mx::grad(loss(q), {0, 1})({x.feats(), bias}),
               b = mx::grad(loss(dense), {0, 1})({x.feats(), bias});
    EXPECT_TRUE(same_bits(a[0], b[0])) << c_in;
    EXPECT_TRUE(same_bits(a[1], b[1])) << c_in;
    // Second order and forward mode.
    const mx::array v = normal(x.feats().shape(), 6);
    const auto slope = [&](const Weight& w) {
      return [&, w](const std::vector<mx::array>& in) {
        return dot(mx::grad(loss(w), {0})(in)[0], v);
      };
    };
    EXPECT_TRUE(same_bits(mx::grad(slope(q), {0})({x.feats(), bias})[0],
                          mx::grad(slope(dense), {0})({x.feats(), bias})[0]));
    const auto out = [&](const Weight& w) {
      return [&, w](const std::vector<mx::array>& in) -> std::vector<mx::array> {
        return {loss(w)(in)};
      };
    };
    const double left = value(mx::jvp(out(q), {x.feats(), bias}, {v, bias}).second[0]);
    const double right = value(mx::add(dot(a[0], v), dot(a[1], bias)));
    EXPECT_NEAR(left, right, 1e-3 * (std::fabs(left) + 1));
  }
}

TEST(Quantize, ScalesAreConstantsOfDifferentiation) {
  const SparseTensor x = tensor(40, 5, mx::float32);
  const QuantizedWeight q = quantize_weight(normal({27, 5, 7}, 4), std::nullopt, 4);
  const auto loss = [&](const mx::array& scales) {
    return mx::sum(
        subm_conv3d(
            x,
            QuantizedWeight({q.weight(), scales, q.biases(), 32, 4, 5, 7, {3, 3, 3}, q.layout()}),
            std::nullopt, {})
            .feats());
  };
  EXPECT_TRUE(same_bits(mx::grad(loss)(q.scales()), mx::zeros_like(q.scales())));
}

TEST(Quantize, RoutesTellStorageBitsAndGroup) {
  const SparseTensor x = tensor(40, 5, mx::float32);
  const QuantizedWeight q = quantize_weight(normal({27, 5, 7}, 4), std::nullopt, 4);
  routes::DecisionLog log;
  const SparseTensor y = subm_conv3d(x, q, std::nullopt, {});
  ASSERT_EQ(log.decisions().size(), 2u);  // the relation, then the products
  EXPECT_EQ(log.decisions()[1].chosen->name, "cpu.packed");
  const std::string text = log.decisions()[1].text();
  for (const char* word :
       {"packed int4", "32 codes", "cpu.tiles: storage: weights are packed int4"})
    EXPECT_NE(text.find(word), std::string::npos) << text;
  const int64_t before = routes::run_count("conv", "cpu.packed");
  mx::array feats = y.feats();
  feats.eval();
  EXPECT_EQ(routes::run_count("conv", "cpu.packed"), before + 1);
}

TEST(Quantize, OnlyCodesAndScalesAreKept) {
  const QuantizedWeight q = quantize_weight(normal({27, 64, 48}, 1), 64, 4);
  EXPECT_EQ(q.nbytes(), 27u * 48 * 64 / 2 + 2 * 27 * 48 * 4);
  EXPECT_EQ(quantize_weight(normal({27, 64, 48}, 1, mx::float16), 32, 8).nbytes(),
            27u * 48 * 64 + 2 * 27 * 48 * 2 * 2);
}

TEST(Quantize, BadArgumentsAreErrors) {
  const mx::array w = normal({27, 5, 7}, 4);
  EXPECT_THROW(quantize_weight(w, 32, 3), std::invalid_argument);
  EXPECT_THROW(quantize_weight(w, 16, 4), std::invalid_argument);
  EXPECT_THROW(quantize_weight(mx::astype(w, mx::int32)), std::invalid_argument);
  EXPECT_THROW(quantize_weight(normal({5}, 1)), std::invalid_argument);
  EXPECT_THROW(quantize_weight(mx::zeros({27, 0, 7})), std::invalid_argument);
  const QuantizedWeight q = quantize_weight(w);
  const auto make = [&](const mx::array& codes, const mx::array& scales, const mx::array& biases,
                        int64_t group, int64_t bits, int64_t in, const Triple& size,
                        WeightLayout layout) {
    return QuantizedWeight({codes, scales, biases, group, bits, in, 7, size, layout});
  };
  const Triple size{3, 3, 3};
  const auto major = WeightLayout::kernel_major;
  EXPECT_NO_THROW(make(q.weight(), q.scales(), q.biases(), 32, 4, 5, size, major));
  EXPECT_THROW(make(q.weight(), q.scales(), q.biases(), 32, 8, 5, size, major),
               std::invalid_argument);
  EXPECT_THROW(make(q.weight(), q.scales(), q.biases(), 64, 4, 5, size, major),
               std::invalid_argument);
  EXPECT_THROW(make(q.weight(), q.scales(), q.biases(), 32, 4, 33, size, major),
               std::invalid_argument);
  EXPECT_THROW(make(q.weight(), q.scales(), q.biases(), 32, 4, 0, size, major),
               std::invalid_argument);
  EXPECT_THROW(make(q.weight(), q.scales(), q.biases(), 32, 4, 5, {3, 3, 2}, major),
               std::invalid_argument);
  EXPECT_THROW(make(q.weight(), q.scales(), q.biases(), 32, 4, 5, size, WeightLayout::linear),
               std::invalid_argument);
  EXPECT_THROW(make(q.scales(), q.scales(), q.biases(), 32, 4, 5, size, major),
               std::invalid_argument);
  EXPECT_THROW(make(q.weight(), q.weight(), q.biases(), 32, 4, 5, size, major),
               std::invalid_argument);
  EXPECT_THROW(
      make(q.weight(), q.scales(), mx::astype(q.biases(), mx::float16), 32, 4, 5, size, major),
      std::invalid_argument);
  const SparseTensor x = tensor(40, 5, mx::float32);
  const ConvOptions o;
  EXPECT_EQ(subm_conv3d(x.astype(mx::float16), q, std::nullopt, o).dtype(), mx::float16);
  EXPECT_THROW(subm_conv3d(tensor(40, 6, mx::float32), q, std::nullopt, o), std::invalid_argument);
  EXPECT_THROW(subm_conv3d(x, q, normal({6}, 1), o), std::invalid_argument);
  EXPECT_THROW(subm_conv3d(x, q, std::nullopt, {{}, std::nullopt, 2}), std::invalid_argument);
  EXPECT_THROW(conv3d(x, quantize_weight(normal({7, 5}, 1)), std::nullopt, o),
               std::invalid_argument);
  EXPECT_THROW(conv3d(x, quantize_weight(normal({7, 3, 3, 1, 5}, 1)), std::nullopt, o),
               std::invalid_argument);
  EXPECT_THROW(normalized_subm_conv3d(x, q, std::nullopt, o, 1e-8f), std::invalid_argument);
  EXPECT_THROW(linear(x, q, std::nullopt), std::invalid_argument);
}

TEST(Quantize, SameBitsForAnyNumberOfThreads) {
  const int before = cpu::thread_count();
  const SparseTensor x = tensor(130, 64, mx::float32);
  const QuantizedWeight q = quantize_weight(normal({27, 64, 64}, 4));
  std::vector<mx::array> results;
  for (const int n : {1, 2, 3}) {
    cpu::set_thread_count(n);
    results.push_back(subm_conv3d(x, q, std::nullopt, {}).feats());
    results.back().eval();
  }
  cpu::set_thread_count(before);
  EXPECT_TRUE(same_bits(results[0], results[1]));
  EXPECT_TRUE(same_bits(results[0], results[2]));
}

}  // namespace
}  // namespace lattice

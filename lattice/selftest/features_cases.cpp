// Oracle cases of whole rows and columns: sum_rows, join_columns, take_columns, row_norm with its
// gradient, gelu, adamw.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "lattice/graph/dtype.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/features.h"
#include "lattice/ops/optimizer.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

struct Shape {
  int n, c;
  std::string text(mx::Dtype dtype) const {
    return std::to_string(n) + " x " + std::to_string(c) + " " + graph::dtype_name(dtype);
  }
};

PlainCase make_case(const char* operation, const Shape& z, mx::Dtype dtype,
                    const std::string& what) {
  PlainCase test;
  test.operation = operation;
  test.dtype = dtype;
  test.label = what + z.text(dtype);
  return test;
}

// The gradient of f at x for cotangent g.
template <typename F>
mx::array gradient_of(const F& f, const mx::array& x, const mx::array& g) {
  return mx::vjp([&](const graph::Arrays& in) { return graph::Arrays{f(in[0])}; }, {x}, {g})
      .second[0];
}

PlainCase sum_case(Random& random, const Shape& z, mx::Dtype dtype) {
  PlainCase test = make_case("sum_rows", z, dtype, "");
  const Values x = random_values(random, {z.n, z.c}, dtype);
  test.run = [x = x.array](mx::StreamOrDevice s) { return sum_rows(x, s); };
  test.expected.assign(static_cast<size_t>(z.c), 0.0);
  test.magnitude = test.expected;
  for (size_t i = 0; i < x.exact.size(); ++i) {
    test.expected[i % static_cast<size_t>(z.c)] += x.exact[i];
    test.magnitude[i % static_cast<size_t>(z.c)] += std::fabs(x.exact[i]);
  }
  return test;
}

// Three parts side by side, or the middle part of them.
PlainCase columns_case(Random& random, const Shape& z, bool take, mx::Dtype dtype) {
  const int widths[] = {z.c, 3, z.c + 1}, all = 2 * z.c + 4;
  PlainCase test = make_case(take ? "take_columns" : "join_columns", z, dtype, "");
  std::vector<Values> parts;
  for (const int w : widths) parts.push_back(random_values(random, {z.n, w}, dtype));
  if (take) {
    parts = {random_values(random, {z.n, all}, dtype)};
    for (int r = 0; r < z.n; ++r)
      for (int c = 1; c < 4; ++c)
        test.expected.push_back(parts[0].exact[static_cast<size_t>(r * all + c)]);
  } else {
    for (int r = 0; r < z.n; ++r)
      for (size_t p = 0; p < 3; ++p)
        for (int c = 0; c < widths[p]; ++c)
          test.expected.push_back(parts[p].exact[static_cast<size_t>(r * widths[p] + c)]);
  }
  graph::Arrays arrays;
  for (const Values& part : parts) arrays.push_back(part.array);
  test.run = [take, arrays](mx::StreamOrDevice s) {
    return take ? take_columns(arrays[0], 1, 3, s) : join_columns(arrays, s);
  };
  test.magnitude.assign(test.expected.size(), 0.0);
  return test;
}

// y of row_norm, or the gradient of x for cotangent g.
PlainCase row_norm_case(Random& random, const Shape& z, float eps, bool centered, bool gradient,
                        mx::Dtype dtype) {
  PlainCase test =
      make_case(gradient ? "row_norm_vjp" : "row_norm", z, dtype, centered ? "centered " : "");
  const Values x = random_values(random, {z.n, z.c}, dtype),
               g = random_values(random, {z.n, z.c}, dtype);
  const Values weight = random_values(random, {z.c}, mx::float32),
               bias = random_values(random, {z.c}, mx::float32);
  test.run = [=, x = x.array, g = g.array,
              affine = Affine{weight.array, bias.array}](mx::StreamOrDevice s) {
    const auto norm = [&](const mx::array& rows) {
      return launch_row_norm(rows, affine, eps, centered, s);
    };
    return gradient ? gradient_of(norm, x, g) : norm(x);
  };
  const size_t channels = static_cast<size_t>(z.c);
  const auto over = static_cast<double>(channels);
  for (size_t at = 0; at < x.exact.size(); at += channels) {
    double mean = 0, square = 0, first = 0, second = 0;
    for (size_t c = 0; c < channels; ++c) mean += centered ? x.exact[at + c] / over : 0;
    for (size_t c = 0; c < channels; ++c) square += std::pow(x.exact[at + c] - mean, 2) / over;
    const double r = 1 / std::sqrt(square + double{eps});
    const auto h = [&](size_t c) { return (x.exact[at + c] - mean) * r; };
    const auto k = [&](size_t c) { return g.exact[at + c] * weight.exact[c]; };
    for (size_t c = 0; c < channels; ++c) {
      first += centered ? k(c) / over : 0;
      second += k(c) * h(c) / over;
    }
    for (size_t c = 0; c < channels; ++c) {
      const double part =
          gradient ? r * (k(c) - first - h(c) * second) : h(c) * weight.exact[c] + bias.exact[c];
      test.expected.push_back(part);
      test.magnitude.push_back(gradient ? 32 * r * (1 + r)
                                        : 16 * (1 + r) * (1 + std::fabs(bias.exact[c])));
    }
  }
  return test;
}

PlainCase gelu_case(Random& random, const Shape& z, bool slope, mx::Dtype dtype) {
  PlainCase test = make_case("gelu", z, dtype, slope ? "slope " : "");
  const Values x = random_values(random, {z.n, z.c}, dtype);
  test.run = [slope, x = x.array](mx::StreamOrDevice s) {
    const auto gelu = [s](const mx::array& values) { return launch_gelu(values, s); };
    return slope ? gradient_of(gelu, x, mx::ones_like(x, s)) : gelu(x);
  };
  for (const double v : x.exact) {
    const double below = 0.5 * (1 + std::erf(v / std::sqrt(2.0)));
    const double bell = std::exp(-v * v / 2) / std::sqrt(2 * std::acos(-1.0));
    test.expected.push_back(slope ? below + v * bell : v * below);
    test.magnitude.push_back(1);
  }
  return test;
}

PlainCase adamw_case(Random& random, const Shape& z) {
  PlainCase test = make_case("adamw", z, mx::float32, "");
  const AdamwBetas o{0.9, 0.999, 1e-8f};
  const float rates[] = {0.99f, 0.01f, 1.5f};
  std::vector<Values> in;
  for (int i = 0; i < 4; ++i) in.push_back(random_values(random, {z.n, z.c}, mx::float32));
  std::vector<float> v;
  for (double& value : in[3].exact) {
    v.push_back(static_cast<float>(std::fabs(value)));
    value = double{v.back()};
  }
  in[3].array = mx::array(v.data(), {z.n, z.c}, mx::float32);
  test.run = [o, p = in[0].array, g = in[1].array, m = in[2].array, v = in[3].array,
              rates = mx::array(rates, {3}, mx::float32)](mx::StreamOrDevice s) {
    return adamw_step(p, g, m, v, rates, o, s)[0];
  };
  for (size_t i = 0; i < v.size(); ++i) {
    const double p = in[0].exact[i], g = in[1].exact[i];
    const double m2 = o.b1 * in[2].exact[i] + (1 - o.b1) * g;
    const double v2 = o.b2 * in[3].exact[i] + (1 - o.b2) * g * g;
    const double step = double{rates[1]} * m2 / (double{rates[2]} * std::sqrt(v2) + double{o.eps});
    test.expected.push_back(double{rates[0]} * p - step);
    test.magnitude.push_back(4 * (std::fabs(p) + std::fabs(step)));
  }
  return test;
}

}  // namespace

void add_features_cases(std::vector<PlainCase>& cases) {
  Random random{23};
  for (const Shape& z : {Shape{0, 3}, {1, 1}, {7, 5}, {130, 33}, {2600, 4}}) {
    for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
      cases.push_back(sum_case(random, z, dtype));
      for (const bool take : {false, true}) cases.push_back(columns_case(random, z, take, dtype));
    }
    for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
      for (const bool other : {false, true}) {
        cases.push_back(gelu_case(random, z, other, dtype));
        if (z.c < 3) continue;  // the variance of one channel is 0
        for (const bool gradient : {false, true})
          cases.push_back(row_norm_case(random, z, 1e-3f, other, gradient, dtype));
      }
    for (int i = 0; i < 3; ++i) cases.push_back(adamw_case(random, z));
  }
}

}  // namespace lattice

// Oracle cases of batch_norm and its gradient, and of all_finite.
#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lattice/graph/dtype.h"
#include "lattice/routes/norm.h"
#include "lattice/routes/optimizer.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

struct Shape {
  int n, c;
};

// y of batch_norm, or the gradient of x for cotangent g.
OracleCase norm_case(Random& random, const Shape& z, const Norm& norm, bool gradient,
                     mx::Dtype dtype) {
  OracleCase test;
  test.dtype = dtype;
  test.label = std::string(norm.given ? "given " : "") + (norm.residual ? "residual " : "") +
               (norm.relu ? "relu " : "") + std::to_string(z.n) + " x " + std::to_string(z.c) +
               " " + graph::dtype_name(dtype);
  Values x = random_values(random, {z.n, z.c}, dtype);
  const Values residual = random_values(random, {z.n, z.c}, dtype);
  const Values weight = random_values(random, {z.c}, mx::float32),
               bias = random_values(random, {z.c}, mx::float32);
  Values mean = random_values(random, {z.c}, mx::float32),
         var = random_values(random, {z.c}, mx::float32);
  const size_t channels = static_cast<size_t>(z.c), n = static_cast<size_t>(z.n);
  std::vector<float> means(channels), vars(channels);
  for (size_t c = 0; c < channels; ++c) {
    if (norm.given) {
      var.exact[c] = std::fabs(var.exact[c]) + 0.25;
    } else {
      double sum = 0, squares = 0;
      for (size_t r = 0; r < n; ++r) sum += x.exact[r * channels + c];
      mean.exact[c] = sum / static_cast<double>(std::max<size_t>(n, 1));
      for (size_t r = 0; r < n; ++r)
        squares += std::pow(x.exact[r * channels + c] - mean.exact[c], 2);
      var.exact[c] = squares / static_cast<double>(std::max<size_t>(n, 1));
    }
    means[c] = static_cast<float>(mean.exact[c]);
    vars[c] = static_cast<float>(var.exact[c]);
    if (norm.given) mean.exact[c] = double{means[c]}, var.exact[c] = double{vars[c]};
  }
  mean.array = mx::array(means.data(), {z.c}, mx::float32);
  var.array = mx::array(vars.data(), {z.c}, mx::float32);
  graph::Arrays inputs = {x.array, weight.array, bias.array};
  if (norm.given) inputs.insert(inputs.end(), {mean.array, var.array});
  if (norm.residual) inputs.push_back(residual.array);
  test.question = question(routes::norm_rows(), routes::NormAsked{norm, inputs});
  const Values g = random_values(random, {z.n, z.c}, dtype);
  std::vector<float> y(n * channels);
  std::vector<double> inner(n * channels), s0(channels), s1(channels);
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t c = i % channels;
    const double r = 1 / std::sqrt(var.exact[c] + double{norm.eps}),
                 centered = x.exact[i] - mean.exact[c];
    const double added = norm.residual ? residual.exact[i] : 0;
    const double value = centered * r * weight.exact[c] + bias.exact[c] + added;
    const bool on = !norm.relu || value > 0;
    y[i] = static_cast<float>(on ? value : 0);
    inner[i] = on ? g.exact[i] : 0;
    s0[c] += inner[i], s1[c] += inner[i] * centered;
    if (gradient) continue;
    test.expected.push_back(on ? value : 0);
    test.magnitude.push_back(8 * (std::fabs(centered * r * weight.exact[c]) +
                                  std::fabs(bias.exact[c]) + std::fabs(added)));
  }
  if (!gradient) return test;
  for (size_t i = 0; i < y.size(); ++i) {
    const size_t c = i % channels;
    const double r = 1 / std::sqrt(var.exact[c] + double{norm.eps}), a = weight.exact[c] * r;
    const double centered = x.exact[i] - mean.exact[c], rows = static_cast<double>(n);
    const double part = norm.given ? 0 : s0[c] / rows + centered * r * r * s1[c] / rows;
    test.expected.push_back(a * (inner[i] - part));
    test.magnitude.push_back(32 * std::fabs(a) *
                             (std::fabs(inner[i]) + (norm.given ? 0 : 1 + std::fabs(part))));
  }
  const mx::array made = mx::array(y.data(), {z.n, z.c}, mx::float32);
  inputs.insert(inputs.end(),
                {g.array, mx::astype(made, dtype, mx::Device::cpu), mean.array, var.array});
  test.question = question(routes::norm_vjp_rows(), routes::NormVjpAsked{norm, inputs});
  return test;
}

// Whether arrays of different lengths are finite, of which `bad` holds one value that is not.
OracleCase finite_case(Random& random, int n, int bad, float value, mx::Dtype dtype) {
  OracleCase test;
  test.label = std::to_string(n) + " arrays, " +
               (bad < 0 ? "finite " : std::to_string(value) + " ") + graph::dtype_name(dtype);
  graph::Arrays arrays;
  for (int i = 0; i < n; ++i) {
    mx::array a = random_values(random, {1 + 301 * i % 700, 1 + i % 3}, dtype).array;
    if (i == bad) {
      std::vector<float> values(a.size(), 1.0f);
      values.back() = value;
      a = mx::astype(mx::array(values.data(), a.shape(), mx::float32), dtype, mx::Device::cpu);
    }
    arrays.push_back(a);
  }
  test.question = question(routes::all_finite_rows(), routes::FiniteAsked{arrays});
  test.expected = {bad < 0 ? 1.0 : 0.0};
  test.magnitude = {0.0};
  return test;
}

}  // namespace

void add_norm_cases(std::vector<OracleCase>& cases) {
  Random random{37};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const Shape& z : {Shape{7, 5}, {130, 33}, {1100, 40}, {513, 8}})
      for (const bool given : {false, true})
        for (const int more : {0, 1, 2, 3})  // residual, relu
          for (const bool gradient : {false, true}) {
            if (dtype != mx::float32 && z.n != 130 && z.n != 513) continue;
            cases.push_back(norm_case(random, z, {given, (more & 1) != 0, (more & 2) != 0, 1e-3f},
                                      gradient, dtype));
          }
  for (const bool gradient : {false, true})
    cases.push_back(norm_case(random, {0, 3}, {true, false, false, 1e-3f}, gradient, mx::float32));
  const float inf = std::numeric_limits<float>::infinity(),
              nan = std::numeric_limits<float>::quiet_NaN();
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    cases.push_back(finite_case(random, 3, -1, 0, dtype));
    cases.push_back(finite_case(random, 50, 49, inf, dtype));
    cases.push_back(finite_case(random, 30, 0, nan, dtype));
    cases.push_back(finite_case(random, 1, 0, -inf, dtype));
  }
  cases.push_back(finite_case(random, 0, -1, 0, mx::float32));
}

}  // namespace lattice

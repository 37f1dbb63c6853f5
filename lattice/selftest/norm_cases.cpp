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

// A batch norm in float64.
struct NormOracle {
  Norm norm;
  Shape z;
  Values x, residual, weight, bias, mean, var, g;
  size_t channels = static_cast<size_t>(z.c), n = static_cast<size_t>(z.n);

  NormOracle(Random& random, const Shape& shape, const Norm& asked, mx::Dtype dtype)
      : norm(asked),
        z(shape),
        x(random_values(random, {z.n, z.c}, dtype)),
        residual(random_values(random, {z.n, z.c}, dtype)),
        weight(random_values(random, {z.c}, mx::float32)),
        bias(random_values(random, {z.c}, mx::float32)),
        mean(random_values(random, {z.c}, mx::float32)),
        var(random_values(random, {z.c}, mx::float32)),
        g(random_values(random, {z.n, z.c}, dtype)) {
    set_statistics();
  }

  // Statistics that are given are float32; others are those of the rows.
  void set_statistics() {
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
  }

  graph::Arrays inputs() const {
    graph::Arrays inputs = {x.array, weight.array, bias.array};
    if (norm.given) inputs.insert(inputs.end(), {mean.array, var.array});
    if (norm.residual) inputs.push_back(residual.array);
    return inputs;
  }
  double centered(size_t i) const { return x.exact[i] - mean.exact[i % channels]; }
  double r(size_t c) const { return 1 / std::sqrt(var.exact[c] + double{norm.eps}); }
  double scaled(size_t i) const {
    return centered(i) * r(i % channels) * weight.exact[i % channels];
  }
  double added(size_t i) const { return norm.residual ? residual.exact[i] : 0; }
  double y(size_t i) const {
    const double value = scaled(i) + bias.exact[i % channels] + added(i);
    return norm.relu ? std::max(value, 0.0) : value;
  }

  void add_forward(OracleCase& test) const {
    for (size_t i = 0; i < n * channels; ++i) {
      test.expected.push_back(y(i));
      test.magnitude.push_back(
          8 * (std::fabs(scaled(i)) + std::fabs(bias.exact[i % channels]) + std::fabs(added(i))));
    }
    test.question = question(routes::norm_rows(), routes::NormAsked{norm, inputs()});
  }

  // Of x, for the cotangent g.
  void add_gradient(OracleCase& test, mx::Dtype dtype) const {
    std::vector<float> made(n * channels);
    std::vector<double> inner(n * channels), s0(channels), s1(channels);
    for (size_t i = 0; i < made.size(); ++i) {
      made[i] = static_cast<float>(y(i));
      inner[i] = norm.relu && y(i) == 0 ? 0 : g.exact[i];
      s0[i % channels] += inner[i], s1[i % channels] += inner[i] * centered(i);
    }
    for (size_t i = 0; i < made.size(); ++i) {
      const size_t c = i % channels;
      const double a = weight.exact[c] * r(c), rows = static_cast<double>(n);
      const double part = norm.given ? 0 : s0[c] / rows + centered(i) * r(c) * r(c) * s1[c] / rows;
      test.expected.push_back(a * (inner[i] - part));
      test.magnitude.push_back(32 * std::fabs(a) *
                               (std::fabs(inner[i]) + (norm.given ? 0 : 1 + std::fabs(part))));
    }
    graph::Arrays in = inputs();
    const mx::array rows = mx::array(made.data(), {z.n, z.c}, mx::float32);
    in.insert(in.end(), {g.array, mx::astype(rows, dtype, mx::Device::cpu), mean.array, var.array});
    test.question = question(routes::norm_vjp_rows(), routes::NormVjpAsked{norm, in});
  }
};

// y of batch_norm, or the gradient of x.
OracleCase norm_case(Random& random, const Shape& z, const Norm& norm, bool gradient,
                     mx::Dtype dtype) {
  OracleCase test;
  test.dtype = dtype;
  test.label = std::string(norm.given ? "given " : "") + (norm.residual ? "residual " : "") +
               (norm.relu ? "relu " : "") + std::to_string(z.n) + " x " + std::to_string(z.c) +
               " " + graph::dtype_name(dtype);
  const NormOracle oracle(random, z, norm, dtype);
  if (gradient)
    oracle.add_gradient(test, dtype);
  else
    oracle.add_forward(test);
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

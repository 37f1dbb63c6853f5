// Oracle cases of distance and of its gradient: one pair at a time in float64.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cmath>

#include "lattice/ops/distance.h"
#include "lattice/routes/distance.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

struct Sizes {
  int n, m, c;
  std::string text() const {
    return std::to_string(n) + " x " + std::to_string(m) + " of " + std::to_string(c) + " channels";
  }
};

// The gradient of a.
PlainCase gradient_case(Random& random, const Sizes& z) {
  const Values a = random_values(random, {z.n, z.c}, mx::float32),
               b = random_values(random, {z.m, z.c}, mx::float32),
               w = random_values(random, {z.n, z.m}, mx::float32);
  PlainCase test;
  test.operation = "distance_vjp";
  // The derivative of a square has the factor 2, which the cotangent takes back.
  test.run = [a = a.array, b = b.array, w = w.array](mx::StreamOrDevice s) {
    const auto squares = [&](const graph::Arrays& in) {
      return graph::Arrays{
          indexed_distance(in[0], b, std::nullopt, std::nullopt, Metric::squared_euclidean, s)};
    };
    return mx::vjp(squares, {a}, {mx::multiply(w, mx::array(0.5f), s)}).second[0];
  };
  test.label = z.text();
  for (int64_t i = 0; i < z.n; ++i)
    for (int64_t c = 0; c < z.c; ++c) {
      double sum = 0, magnitude = 0;
      for (int64_t j = 0; j < z.m; ++j) {
        const double slope =
            w.exact[static_cast<size_t>(i * z.m + j)] *
            (a.exact[static_cast<size_t>(i * z.c + c)] - b.exact[static_cast<size_t>(j * z.c + c)]);
        sum += slope;
        magnitude += std::fabs(slope);
      }
      test.expected.push_back(sum);
      test.magnitude.push_back(magnitude);
    }
  return test;
}

}  // namespace

void add_distance_cases(std::vector<OracleCase>& cases) {
  Random random{13};
  using cpu::Distance;
  for (const Distance mode : {Distance::euclidean, Distance::squared, Distance::cosine})
    for (const Sizes& z :
         {Sizes{0, 3, 2}, {3, 0, 2}, {2, 3, 0}, {1, 1, 1}, {7, 5, 3}, {65, 130, 3}, {9, 33, 20}}) {
      const Values a = random_values(random, {z.n, z.c}, mx::float32),
                   b = random_values(random, {z.m, z.c}, mx::float32);
      OracleCase test;
      test.question = question(routes::distance_rows(), {a.array, b.array, mode});
      for (int64_t i = 0; i < z.n; ++i)
        for (int64_t j = 0; j < z.m; ++j) {
          test.magnitude.push_back(0);
          test.expected.push_back(routes::exact_distance(a.exact.data() + i * z.c,
                                                         b.exact.data() + j * z.c, z.c, mode,
                                                         &test.magnitude.back()));
        }
      test.label = std::string(routes::name(mode)) + " " + z.text();
      cases.push_back(std::move(test));
    }
}

void add_distance_gradient_cases(std::vector<PlainCase>& cases) {
  Random random{17};
  for (const Sizes& z : {Sizes{0, 3, 2},
                         {3, 0, 2},
                         {2, 3, 0},
                         {1, 1, 1},
                         {7, 5, 3},
                         {133, 1050, 3},
                         {9, 33, 16},
                         {4, 16, 5},
                         {5, 17, 2},
                         {130, 20, 4},
                         {64, 128, 1}})
    cases.push_back(gradient_case(random, z));
}

}  // namespace lattice

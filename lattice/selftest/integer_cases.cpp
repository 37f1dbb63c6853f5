// Oracle cases of integer_conv: every edge in 64-bit integers, then the rule of one rounding. The
// result has to be equal, not near.
#include <mlx/ops.h>

#include <algorithm>
#include <cmath>

#include "lattice/core/arrays.h"
#include "lattice/graph/dtype.h"
#include "lattice/routes/int_conv.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

struct Shape {
  int c_in, more, c_out;
  mx::Dtype input, output;
  bool residual;
};

template <typename T>
mx::array random_integers(Random& random, mx::Shape shape, int64_t lo, int64_t hi,
                          std::vector<int64_t>& values) {
  int64_t n = 1;
  for (const int d : shape) n *= d;
  std::vector<T> made;
  for (int64_t i = 0; i < n; ++i) {
    values.push_back(lo + random.below(hi - lo + 1));
    made.push_back(static_cast<T>(values.back()));
  }
  return new_array(made.data(), std::move(shape), mx::TypeToDtype<T>());
}

mx::array rows_of(Random& random, int64_t n, int c, mx::Dtype dtype, std::vector<int64_t>& values) {
  const mx::Shape shape = {static_cast<int>(n), c};
  if (dtype == mx::int16) return random_integers<int16_t>(random, shape, -2047, 2047, values);
  mx::array rows = random_integers<uint8_t>(random, shape, 0, 255, values);
  if (dtype == mx::int8)
    for (int64_t& v : values) v -= 128;
  return rows;
}

double converted(int64_t sum, float scale, mx::Dtype output) {
  const float v = static_cast<float>(static_cast<int32_t>(sum)) * scale;
  if (output == mx::float32) return double{v};
  const float hi = output == mx::uint8 ? 255.0f : output == mx::int8 ? 127.0f : 32767.0f;
  const float lo = output == mx::uint8 ? 0.0f : -hi;
  return double{std::nearbyint(std::clamp(v, lo, hi))} + (output == mx::int8 ? 128 : 0);
}

OracleCase integer_case(Random& random, const Relation::Ptr& r, const Shape& z) {
  std::vector<int64_t> w, bias, factor, x, more, residual;
  const int n_k = static_cast<int>(r->n_kernels()), c_in = z.c_in + z.more;
  // At most 16 in a lane of eight weights: the lane rule holds.
  IntegerParts parts{.weight = random_integers<int8_t>(random, {n_k, c_in, z.c_out}, -16, 16, w),
                     .bias = random_integers<int32_t>(random, {z.c_out}, -3000, 3000, bias),
                     .scale = mx::full({z.c_out}, 0.0123f, mx::Device::cpu),
                     .input = z.input,
                     .output = z.output};
  if (z.residual) {
    parts.factor = random_integers<int32_t>(random, {z.c_out}, 1, 40, factor);
    parts.residual = mx::uint8;
  }
  routes::IntConvAsked asked{.relation = r,
                             .kernel = IntegerKernel(parts),
                             .x = rows_of(random, r->n_in(), z.c_in, z.input, x)};
  if (z.more) asked.more = rows_of(random, r->n_in(), z.more, z.input, more);
  if (z.residual) asked.residual = rows_of(random, r->n_out(), z.c_out, mx::uint8, residual);
  std::vector<int64_t> sums;
  for (int64_t o = 0; o < r->n_out(); ++o) sums.insert(sums.end(), bias.begin(), bias.end());
  const Edges& edges = r->edges();
  for (int64_t e = 0; e < r->edge_count(); ++e) {
    const int64_t i = edges.in_rows.data<int32_t>()[e], o = edges.out_rows.data<int32_t>()[e],
                  k = edges.kernel_ids.data<int32_t>()[e];
    for (int64_t c = 0; c < c_in; ++c) {
      const int64_t v = c < z.c_in ? x[static_cast<size_t>(i * z.c_in + c)]
                                   : more[static_cast<size_t>(i * z.more + c - z.c_in)];
      for (int64_t m = 0; m < z.c_out; ++m)
        sums[static_cast<size_t>(o * z.c_out + m)] +=
            v * w[static_cast<size_t>((k * c_in + c) * z.c_out + m)];
    }
  }
  OracleCase test;
  for (size_t i = 0; i < sums.size(); ++i) {
    const size_t m = i % static_cast<size_t>(z.c_out);
    const int64_t sum = sums[i] + (z.residual ? factor[m] * residual[i] : 0);
    test.expected.push_back(converted(sum, 0.0123f, z.output));
  }
  test.magnitude.assign(test.expected.size(), 0.0);
  test.label = std::string(kind_name(r->kind())) + " " + std::to_string(c_in) + " -> " +
               std::to_string(z.c_out) + " " + asked.variant();
  test.question = question(routes::int_conv_rows(), std::move(asked));
  return test;
}

}  // namespace

void add_integer_cases(std::vector<OracleCase>& cases) {
  Random random{29};
  for (const RelationKind kind :
       {RelationKind::submanifold, RelationKind::forward, RelationKind::transposed,
        RelationKind::target, RelationKind::custom})
    for (const Shape& z : {Shape{16, 0, 32, mx::uint8, mx::uint8, false},
                           {20, 12, 33, mx::uint8, mx::uint8, true},
                           {4, 0, 5, mx::int16, mx::int16, false},
                           {24, 0, 40, mx::int8, mx::int8, true},
                           {32, 16, 7, mx::int8, mx::float32, false},
                           {96, 0, 20, mx::uint8, mx::float32, false}})
      cases.push_back(integer_case(random, make_relation(random, kind, 40), z));
  cases.push_back(
      integer_case(random, Relation::identity(70), {64, 0, 64, mx::uint8, mx::uint8, false}));
  cases.push_back(
      integer_case(random, Relation::identity(0), {16, 0, 8, mx::uint8, mx::uint8, false}));
}

}  // namespace lattice

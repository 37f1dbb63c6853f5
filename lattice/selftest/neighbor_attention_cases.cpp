// Oracle cases of attention along edges, its gradient, and rotary position encoding, in float64.
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <cmath>
#include <limits>

#include "lattice/graph/dtype.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/attention_edges.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shape {
  int64_t n;  // rows of the relation
  int heads, size;
  bool products, biased;
};

// The weights of the edges of query i and one head, and their log-sum-exp. `in` holds v, then q
// and k of products, then the bias.
std::vector<double> weights(const AttendEdges& a, const std::vector<Values>& in, const Shape& z,
                            int64_t i, int64_t h, float& lse) {
  const auto at = [&](int64_t row, int64_t c) {
    return static_cast<size_t>((row * z.heads + h) * z.size + c);
  };
  const auto* offsets = a.edges->offsets.data<int32_t>();
  std::vector<double> w;
  double top = -kInf, sum = 0;
  for (int64_t e = offsets[i]; e < offsets[i + 1]; ++e) {
    double x = z.biased ? in.back().exact[static_cast<size_t>(e * z.heads + h)] : 0;
    const int64_t source = a.edges->sources.data<int32_t>()[e];
    for (int64_t c = 0; z.products && c < z.size; ++c)
      x += double{a.scale} * in[1].exact[at(i, c)] * in[2].exact[at(source, c)];
    w.push_back(x);
    top = std::max(top, x);
  }
  for (double& x : w) sum += x = std::exp(x - top);
  for (double& x : w) x /= sum;
  if (!w.empty()) lse = static_cast<float>(top + std::log(sum));
  return w;
}

// Cases of neighbor_attention and of the gradient of v.
void add_edges(std::vector<PlainCase>& cases, Random& random, const Shape& z, mx::Dtype dtype) {
  AttendEdges a;
  a.edges = std::make_shared<const EdgeSegments>(
      edge_segments(*make_relation(random, RelationKind::custom, z.n)));
  a.scale = 0.75f, a.products = z.products, a.biased = z.biased;
  const EdgeSegments& edges = *a.edges;
  const int n_out = static_cast<int>(edges.n_queries), n_in = static_cast<int>(edges.n_sources),
            n_edges = static_cast<int>(edges.n_edges());
  std::vector<Values> in = {random_values(random, {n_in, z.heads, z.size}, dtype)};
  for (const int rows : {n_out, n_in})
    if (z.products) in.push_back(random_values(random, {rows, z.heads, z.size}, dtype));
  if (z.biased) in.push_back(random_values(random, {n_edges, z.heads}, mx::float32));
  const Values g = random_values(random, {n_out, z.heads, z.size}, dtype);
  graph::Arrays inputs;
  for (const Values& v : in) inputs.push_back(v.array);
  PlainCase test, back;
  test.operation = "neighbor_attention", back.operation = "neighbor_attention_vjp";
  test.dtype = back.dtype = dtype;
  test.label = std::to_string(n_edges) + " edges, " + std::to_string(z.heads) + " heads of " +
               std::to_string(z.size) + (z.products ? " products" : "") +
               (z.biased ? " bias " : " ") + graph::dtype_name(dtype);
  back.label = test.label;
  test.run = [a, inputs](mx::StreamOrDevice s) {
    return launch_neighbor_attention(a, inputs, s)[0];
  };
  test.expected.assign(g.exact.size(), 0.0), test.magnitude = test.expected;
  back.expected.assign(in[0].exact.size(), 0.0), back.magnitude = back.expected;
  std::vector<float> lse(static_cast<size_t>(n_out * z.heads), static_cast<float>(kInf));
  for (int64_t i = 0; i < n_out; ++i)
    for (int64_t h = 0; h < z.heads; ++h) {
      const std::vector<double> w =
          weights(a, in, z, i, h, lse[static_cast<size_t>(i * z.heads + h)]);
      for (size_t j = 0; j < w.size(); ++j) {
        const int64_t e = edges.offsets.data<int32_t>()[i] + static_cast<int64_t>(j),
                      source = edges.sources.data<int32_t>()[e];
        for (int64_t c = 0; c < z.size; ++c) {
          const auto to = static_cast<size_t>((i * z.heads + h) * z.size + c),
                     from = static_cast<size_t>((source * z.heads + h) * z.size + c);
          const double term = w[j] * in[0].exact[from], slope = w[j] * g.exact[to];
          test.expected[to] += term, test.magnitude[to] += 8 * std::fabs(term);
          back.expected[from] += slope, back.magnitude[from] += 8 * std::fabs(slope);
        }
      }
    }
  const std::vector<float> out(test.expected.begin(), test.expected.end());
  inputs.push_back(mx::astype(mx::array(out.data(), {n_out, z.heads, z.size}, mx::float32), dtype,
                              mx::Device::cpu));
  inputs.push_back(mx::array(lse.data(), {n_out, z.heads}, mx::float32));
  inputs.push_back(g.array);
  back.run = [a, inputs](mx::StreamOrDevice s) {
    return launch_neighbor_attention_vjp(a, inputs, s)[0];
  };
  cases.push_back(std::move(test));
  cases.push_back(std::move(back));
}

PlainCase rotary_case(Random& random, int n, int heads, int size, int axes, bool inverse,
                      bool halves, mx::Dtype dtype) {
  const Values x = random_values(random, {n, heads, size}, dtype),
               positions = random_values(random, {n, axes}, mx::float32);
  PlainCase test;
  test.operation = "rotary";
  test.dtype = dtype;
  // A rotation is linear: its gradient is the inverse rotation.
  test.run = [inverse, halves, x = x.array, positions = positions.array](mx::StreamOrDevice s) {
    if (!inverse) return rotary(x, positions, 100.0, halves, s);
    return mx::vjp(
               [&](const graph::Arrays& in) {
                 return graph::Arrays{rotary(in[0], positions, 100.0, halves, s)};
               },
               {x}, {x})
        .second[0];
  };
  test.expected = x.exact;
  const int pairs = size / (2 * axes);
  for (int r = 0; r < n * heads; ++r)
    for (int axis = 0; axis < axes; ++axis)
      for (int m = 0; m < pairs; ++m) {
        const double angle = positions.exact[static_cast<size_t>(r / heads * axes + axis)] *
                             std::pow(100.0, -static_cast<double>(m) / pairs) * (inverse ? -1 : 1);
        const auto i = static_cast<size_t>(r * size + 2 * axis * pairs + (halves ? m : 2 * m));
        const size_t j = i + static_cast<size_t>(halves ? pairs : 1);
        test.expected[i] = x.exact[i] * std::cos(angle) - x.exact[j] * std::sin(angle);
        test.expected[j] = x.exact[i] * std::sin(angle) + x.exact[j] * std::cos(angle);
      }
  test.magnitude.assign(test.expected.size(), 4.0);
  test.label = std::to_string(n) + " rows, " + std::to_string(heads) + " heads of " +
               std::to_string(size) + ", " + std::to_string(axes) + " axes " +
               (halves ? "in halves " : "") + graph::dtype_name(dtype);
  return test;
}

}  // namespace

void add_neighbor_attention_cases(std::vector<PlainCase>& cases) {
  Random random{31};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const Shape& z : {Shape{20, 2, 5, true, true},
                           {20, 3, 16, true, false},
                           {20, 4, 3, false, true},
                           {1, 1, 1, true, false}})
      add_edges(cases, random, z, dtype);
  add_edges(cases, random, {0, 2, 4, true, true}, mx::float32);
  add_edges(cases, random, {60, 1, 33, true, true}, mx::float32);
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16})
    for (const bool inverse : {false, true}) {
      cases.push_back(rotary_case(random, 9, 2, 12, 3, inverse, false, dtype));
      cases.push_back(rotary_case(random, 9, 2, 20, 3, inverse, true, dtype));
      cases.push_back(rotary_case(random, 5, 1, 7, 2, inverse, false, dtype));
      cases.push_back(rotary_case(random, 300, 3, 1, 1, inverse, false, dtype));
    }
}

}  // namespace lattice

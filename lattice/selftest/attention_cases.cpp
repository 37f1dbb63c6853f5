// Oracle cases of attention and its gradient: one pair of rows at a time in float64.
#include <mlx/ops.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/routes/attention.h"
#include "lattice/selftest/cases.h"

namespace lattice {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Shape {
  std::vector<int> queries, keys;  // lengths of the segments
  int heads, kv_heads, size;
};
enum class Bias { none, pairs, axes, joint };
enum class Mask { none, causal, pairs };

// The values of one case, and its call of attention.
struct Problem {
  routes::Attend attend;
  std::vector<Values> in;  // q, k, v, bias or table
  std::vector<int32_t> positions[2];
  std::vector<bool> mask;
};

cpu::Buffer<int32_t> borders(const std::vector<int>& lengths) {
  cpu::Buffer<int32_t> offsets(static_cast<int64_t>(lengths.size()) + 1);
  offsets[0] = 0;
  for (size_t i = 0; i < lengths.size(); ++i)
    offsets[static_cast<int64_t>(i) + 1] = offsets[static_cast<int64_t>(i)] + lengths[i];
  return offsets;
}

Problem make_problem(Random& random, const Shape& z, Bias bias, Mask mask, mx::Dtype dtype) {
  Problem p;
  routes::Attend& a = p.attend;
  a.segments = SegmentPairs::create(borders(z.queries), borders(z.keys));
  a.scale = 1.5f;
  const int rows[2] = {static_cast<int>(a.segments->n_queries()),
                       static_cast<int>(a.segments->n_keys())},
            pairs = static_cast<int>(a.segments->n_pairs());
  p.in = {random_values(random, {rows[0], z.heads, z.size}, dtype),
          random_values(random, {rows[1], z.kv_heads, z.size}, dtype),
          random_values(random, {rows[1], z.kv_heads, z.size}, dtype)};
  a.biased = bias != Bias::none;
  if (bias == Bias::pairs) p.in.push_back(random_values(random, {z.heads * pairs}, mx::float32));
  if (bias == Bias::axes || bias == Bias::joint) {
    const std::vector<int> bounds = {2, 0, 1};
    p.in.push_back(random_values(random, {z.heads, bias == Bias::joint ? 15 : 9}, mx::float32));
    for (int end = 0; end < 2; ++end)
      for (int i = 0; i < 3 * rows[end]; ++i)
        p.positions[end].push_back(static_cast<int32_t>(random.below(7)) - 3);
    const auto array = [&](int end) {
      return mx::array(p.positions[end].data(), {rows[end], 3}, mx::int32);
    };
    a.positions = {array(0), array(1), bounds, bias == Bias::joint};
  }
  a.causal = mask == Mask::causal;
  if (mask == Mask::pairs) {
    std::vector<uint8_t> seen;
    for (int i = 0; i < pairs; ++i) {
      p.mask.push_back(random.below(4) != 0);
      seen.push_back(p.mask.back());
    }
    a.mask = mx::array(reinterpret_cast<const bool*>(seen.data()), {pairs}, mx::bool_);
  }
  return p;
}

double bias_of(const Problem& p, int64_t head, int64_t q, int64_t k, int64_t pair) {
  const routes::Attend& a = p.attend;
  if (!a.biased) return 0;
  const std::vector<double>& values = p.in[3].exact;
  if (!a.positions) return values[static_cast<size_t>(pair)];
  const int64_t entries = p.in[3].array.shape(1);
  int64_t first = 0, joint = 0;
  double sum = 0;
  for (int64_t axis = 0; axis < 3; ++axis) {
    const int64_t bound = a.positions->bounds[static_cast<size_t>(axis)];
    const int64_t away = int64_t{p.positions[0][static_cast<size_t>(3 * q + axis)]} -
                         p.positions[1][static_cast<size_t>(3 * k + axis)];
    const int64_t at = std::clamp(away, -bound, bound) + bound;
    sum += a.positions->joint ? 0 : values[static_cast<size_t>(head * entries + first + at)];
    joint = joint * (2 * bound + 1) + at;
    first += 2 * bound + 1;
  }
  return a.positions->joint ? values[static_cast<size_t>(head * entries + joint)] : sum;
}

// The weights of one query and head over the keys of its segment; lse: their log-sum-exp, +inf
// where no key is seen.
std::vector<double> weights(const Problem& p, const Shape& z, int64_t s, int64_t i, int64_t head,
                            int64_t pair0, double& lse) {
  const SegmentPairs& segments = *p.attend.segments;
  const int64_t n_q = segments.queries(s), n_k = segments.keys(s), q = segments.q_offsets()[s] + i,
                group = head / (z.heads / z.kv_heads);
  std::vector<double> w(static_cast<size_t>(n_k), -kInf);
  double top = -kInf, sum = 0;
  for (int64_t j = 0; j < n_k; ++j) {
    const int64_t k = segments.k_offsets()[s] + j;
    if (p.attend.causal && j > i + n_k - n_q) continue;
    if (p.attend.mask && !p.mask[static_cast<size_t>(pair0 + i * n_k + j)]) continue;
    double dot = 0;
    for (int64_t c = 0; c < z.size; ++c)
      dot += p.in[0].exact[static_cast<size_t>((q * z.heads + head) * z.size + c)] *
             p.in[1].exact[static_cast<size_t>((k * z.kv_heads + group) * z.size + c)];
    w[static_cast<size_t>(j)] =
        double{p.attend.scale} * dot +
        bias_of(p, head, q, k, z.heads * pair0 + (head * n_q + i) * n_k + j);
    top = std::max(top, w[static_cast<size_t>(j)]);
  }
  for (double& x : w) sum += x = top == -kInf ? 0 : std::exp(x - top);
  for (double& x : w) x = sum == 0 ? 0 : x / sum;
  lse = sum == 0 ? kInf : top + std::log(sum);
  return w;
}

// One row of the result and of the gradient of q: the sums over the keys and, to bound their
// rounding, the sums of magnitudes.
struct RowSums {
  std::vector<double> out, out_terms, slope, slope_terms;
};

// Of query q and one head, whose weights of the keys from `k0` on are w.
RowSums sum_keys(const Problem& p, const Shape& z, const Values& g, const std::vector<double>& w,
                 int64_t q, int64_t k0, int64_t head) {
  const int64_t group = head / (z.heads / z.kv_heads);
  const auto key = [&](const Values& values, size_t j, int64_t c) {
    const int64_t k = k0 + static_cast<int64_t>(j);
    return values.exact[static_cast<size_t>((k * z.kv_heads + group) * z.size + c)];
  };
  const auto of_g = [&](int64_t c) {
    return g.exact[static_cast<size_t>((q * z.heads + head) * z.size + c)];
  };
  const auto size = static_cast<size_t>(z.size);
  RowSums sums{std::vector<double>(size), std::vector<double>(size), std::vector<double>(size),
               std::vector<double>(size)};
  double delta = 0;
  for (int64_t c = 0; c < z.size; ++c) {
    const auto at = static_cast<size_t>(c);
    for (size_t j = 0; j < w.size(); ++j) {
      sums.out[at] += w[j] * key(p.in[2], j, c);
      sums.out_terms[at] += w[j] * std::fabs(key(p.in[2], j, c));
    }
    delta += sums.out[at] * of_g(c);
  }
  const double scale{p.attend.scale};
  for (size_t j = 0; j < w.size(); ++j) {
    double dp = 0, terms = 0;
    for (int64_t c = 0; c < z.size; ++c) {
      const double term = of_g(c) * key(p.in[2], j, c);
      dp += term, terms += std::fabs(term);
    }
    for (int64_t c = 0; c < z.size; ++c) {
      const double k = key(p.in[1], j, c);
      sums.slope[static_cast<size_t>(c)] += scale * w[j] * (dp - delta) * k;
      sums.slope_terms[static_cast<size_t>(c)] +=
          16 * scale * w[j] * (terms + std::fabs(delta)) * std::fabs(k);
    }
  }
  return sums;
}

// Cases of attention and, with the exact results of attention as inputs, of its gradient of q.
void add_cases(std::vector<OracleCase>& cases, Random& random, const Shape& z, Bias bias, Mask mask,
               mx::Dtype dtype) {
  const Problem p = make_problem(random, z, bias, mask, dtype);
  const SegmentPairs& segments = *p.attend.segments;
  OracleCase test, back;
  graph::Arrays inputs;
  for (const Values& v : p.in) inputs.push_back(v.array);
  test.dtype = back.dtype = dtype;
  test.question = question(routes::attention_rows(), routes::attention_asked(p.attend, inputs, {}));
  const Values g = random_values(random, inputs[0].shape(), dtype);
  std::vector<float> lse_values;
  // The rounding of out moves the gradient.
  const double rounding = dtype == mx::float32 ? 1 : dtype == mx::float16 ? 0x1p9 : 0x1p12;
  int64_t pair0 = 0;
  for (int64_t s = 0; s < segments.n_segments(); ++s) {
    for (int64_t i = 0; i < segments.queries(s); ++i)
      for (int64_t head = 0; head < z.heads; ++head) {
        double lse = 0;
        const std::vector<double> w = weights(p, z, s, i, head, pair0, lse);
        lse_values.push_back(static_cast<float>(lse));
        const RowSums row =
            sum_keys(p, z, g, w, segments.q_offsets()[s] + i, segments.k_offsets()[s], head);
        for (size_t c = 0; c < row.out.size(); ++c) {
          test.expected.push_back(row.out[c]);
          test.magnitude.push_back(static_cast<double>(8 + z.size / 8) *
                                   row.out_terms[c]);  // logits are sums too
          back.expected.push_back(row.slope[c]);
          back.magnitude.push_back(rounding * row.slope_terms[c]);
        }
      }
    pair0 += segments.queries(s) * segments.keys(s);
  }
  std::vector<float> out(test.expected.begin(), test.expected.end());
  inputs.push_back(
      mx::astype(mx::array(out.data(), inputs[0].shape(), mx::float32), dtype, mx::Device::cpu));
  inputs.push_back(mx::array(lse_values.data(), {inputs[0].shape(0), z.heads}, mx::float32));
  inputs.push_back(g.array);
  back.question =
      question(routes::attention_vjp_rows(), routes::attention_vjp_asked(p.attend, inputs, {}));
  static constexpr const char* kBiases[] = {"", " bias of pairs", " table of axes", " joint table"};
  static constexpr const char* kMasks[] = {"", " causal", " mask"};
  test.label = segments.text() + ", " + std::to_string(z.heads) + "/" + std::to_string(z.kv_heads) +
               " heads of " + std::to_string(z.size) + kBiases[static_cast<int>(bias)] +
               kMasks[static_cast<int>(mask)] + " " + graph::dtype_name(dtype);
  back.label = test.label;
  cases.push_back(std::move(test));
  cases.push_back(std::move(back));
}

}  // namespace

void add_attention_cases(std::vector<OracleCase>& cases) {
  Random random{29};
  const std::vector<int> few = {5, 0, 1, 7};
  for (const mx::Dtype dtype : {mx::float32, mx::float16, mx::bfloat16}) {
    add_cases(cases, random, {few, few, 2, 2, 16}, Bias::none, Mask::none, dtype);
    add_cases(cases, random, {few, {3, 4, 0, 9}, 4, 2, 5}, Bias::pairs, Mask::causal, dtype);
    add_cases(cases, random, {{9, 9}, {9, 9}, 2, 1, 8}, Bias::none, Mask::none, dtype);
    // Equal segments with heads that MLX's own attention takes.
    add_cases(cases, random, {{9, 9}, {9, 9}, 2, 1, 64}, Bias::none, Mask::none, dtype);
    add_cases(cases, random, {{6, 6}, {8, 8}, 2, 2, 64}, Bias::none, Mask::causal, dtype);
  }
  for (const Bias bias : {Bias::none, Bias::pairs, Bias::axes, Bias::joint})
    for (const Mask mask : {Mask::none, Mask::causal, Mask::pairs})
      add_cases(cases, random, {{4, 6}, {6, 3}, 2, 1, 3}, bias, mask, mx::float32);
  add_cases(cases, random, {{}, {}, 1, 1, 4}, Bias::none, Mask::none, mx::float32);
  add_cases(cases, random, {{0}, {3}, 1, 1, 4}, Bias::none, Mask::none, mx::float32);
  add_cases(cases, random, {{3}, {0}, 1, 1, 4}, Bias::none, Mask::none, mx::float32);
  add_cases(cases, random, {{1}, {1}, 1, 1, 1}, Bias::joint, Mask::none, mx::float32);
  add_cases(cases, random, {{50}, {130}, 1, 1, 33}, Bias::none, Mask::none, mx::float32);
  add_cases(cases, random, {{33}, {65}, 1, 1, 256}, Bias::none, Mask::causal, mx::float32);
}

}  // namespace lattice

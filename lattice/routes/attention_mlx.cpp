// attention and its gradient from plain MLX operations.
#include <mlx/fast.h>
#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <limits>

#include "lattice/core/arrays.h"
#include "lattice/routes/attention.h"
#include "lattice/routes/products.h"

namespace lattice::routes {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();

// One run of segments: its sizes as MLX counts them.
struct Part {
  int n, queries, keys, q0, k0;
  int64_t pair0;
  explicit Part(const SegmentPairs::Run& r)
      : n(static_cast<int>(r.count)),
        queries(static_cast<int>(r.queries)),
        keys(static_cast<int>(r.keys)),
        q0(static_cast<int>(r.q0)),
        k0(static_cast<int>(r.k0)),
        pair0(r.pair0) {}
};

// Entries [first, first + count) of a (N,) array, reshaped.
mx::array cut(const mx::array& x, int64_t first, mx::Shape shape, mx::StreamOrDevice s) {
  int count = 1;
  for (const int extent : shape) count *= extent;
  const int begin = static_cast<int>(first);
  return mx::reshape(mx::slice(x, {begin}, {begin + count}, s), std::move(shape), s);
}

// Rows of (N, heads, size) of a run as (n, heads, groups, rows, size); groups: heads of q for one
// head of k and v.
mx::array heads_first(const mx::array& x, int first, int n, int rows, int groups,
                      mx::StreamOrDevice s) {
  const int heads = x.shape(1), size = x.shape(2);
  const mx::array part = mx::slice(x, {first, 0, 0}, {first + n * rows, heads, size}, s);
  return mx::transpose(mx::reshape(part, {n, rows, heads / groups, groups, size}, s),
                       {0, 2, 3, 1, 4}, s);
}

// Back to (n * rows, heads, size).
mx::array rows_first(const mx::array& x, mx::StreamOrDevice s) {
  const int n = x.shape(0), rows = x.shape(3), heads = x.shape(1) * x.shape(2), size = x.shape(4);
  return mx::reshape(mx::transpose(x, {0, 3, 1, 2, 4}, s), {n * rows, heads, size}, s);
}

// (n, heads, queries, keys): entries of the table by relative position.
mx::array table_bias(const mx::array& table, const Attend::Positions& p, const Part& part,
                     const Lookup& lookup, mx::StreamOrDevice s) {
  const int axes = static_cast<int>(p.bounds.size());
  std::vector<mx::array> lookups;
  int first = 0;
  for (int a = 0; a < axes; ++a) {
    const int bound = p.bounds[static_cast<size_t>(a)];
    const auto column = [&](const mx::array& rows, int from, int count, mx::Shape shape) {
      return mx::reshape(mx::slice(rows, {from, a}, {from + count, a + 1}, s), std::move(shape), s);
    };
    const mx::array i =
        column(p.of_queries, part.q0, part.n * part.queries, {part.n, part.queries, 1});
    const mx::array j = column(p.of_keys, part.k0, part.n * part.keys, {part.n, 1, part.keys});
    const mx::array at =
        mx::add(mx::clip(mx::subtract(i, j, s), mx::array(-bound), mx::array(bound), s),
                mx::array(bound), s);
    if (p.joint && a > 0)
      lookups[0] = mx::add(mx::multiply(lookups[0], mx::array(2 * bound + 1), s), at, s);
    else
      lookups.push_back(mx::add(at, mx::array(first), s));
    if (!p.joint) first += 2 * bound + 1;
  }
  mx::array bias = lookup(table, lookups[0]);
  for (size_t a = 1; a < lookups.size(); ++a) bias = mx::add(bias, lookup(table, lookups[a]), s);
  return mx::transpose(bias, {1, 0, 2, 3}, s);
}

// {out, log-sum-exp} of one run.
graph::Arrays run_formula(const Attend& a, const graph::Arrays& in, const Part& part,
                          const Lookup& lookup, mx::StreamOrDevice s) {
  const int heads = in[0].shape(1), groups = heads / in[1].shape(1);
  const mx::array q = heads_first(in[0], part.q0, part.n, part.queries, groups, s),
                  k = heads_first(in[1], part.k0, part.n, part.keys, 1, s),
                  v = heads_first(in[2], part.k0, part.n, part.keys, 1, s);
  const mx::Shape grouped = {part.n, heads / groups, groups, part.queries, part.keys},
                  flat = {part.n, heads, part.queries, part.keys};
  mx::array logits = product(mx::multiply(q, mx::array(a.scale), s), mx::swapaxes(k, -1, -2, s), s);
  logits = mx::reshape(logits, flat, s);
  if (a.positions)
    logits = mx::add(logits, table_bias(in[3], *a.positions, part, lookup, s), s);
  else if (a.biased)
    logits = mx::add(logits, cut(in[3], heads * part.pair0, flat, s), s);
  if (a.mask)
    logits = mx::where(cut(*a.mask, part.pair0, {part.n, 1, part.queries, part.keys}, s), logits,
                       mx::array(-kInf), s);
  if (a.causal) {
    const mx::array last =
        mx::reshape(mx::arange(part.keys - part.queries, part.keys, s), {part.queries, 1}, s);
    logits =
        mx::where(mx::less_equal(mx::arange(part.keys, s), last, s), logits, mx::array(-kInf), s);
  }
  mx::array top = mx::stop_gradient(mx::max(logits, -1, true, s), s);
  top = mx::where(mx::equal(top, mx::array(-kInf), s), mx::array(0.0f), top, s);
  const mx::array e = mx::exp(mx::subtract(logits, top, s), s);
  const mx::array sum = sum_axis(e, -1, true, s), none = mx::equal(sum, mx::array(0.0f), s);
  const mx::array p = mx::divide(e, mx::where(none, mx::array(1.0f), sum, s), s);
  const mx::array lse = mx::where(none, mx::array(kInf), mx::add(top, mx::log(sum, s), s), s);
  return {rows_first(product(mx::reshape(p, grouped, s), v, s), s),
          mx::reshape(mx::transpose(lse, {0, 2, 1, 3}, s), {part.n * part.queries, heads}, s)};
}

}  // namespace

graph::Arrays attention_formula(const Attend& a, const graph::Arrays& in, mx::StreamOrDevice s,
                                const Lookup& lookup) {
  const Lookup take = [s](const mx::array& table, const mx::array& indices) {
    return mx::take(table, indices, 1, s);
  };
  graph::Arrays inputs, out, lse;
  for (const mx::array& x : in) inputs.push_back(as_float32(x, s));
  const int heads = in[0].shape(1), size = in[0].shape(2);
  for (const SegmentPairs::Run& run : a.segments->runs()) {
    const Part part(run);
    const int rows = part.n * part.queries;
    if (rows == 0) continue;
    if (part.keys == 0) {
      out.push_back(mx::zeros({rows, heads, size}, mx::float32, s));
      lse.push_back(mx::full({rows, heads}, kInf, mx::float32, s));
      continue;
    }
    const graph::Arrays made = run_formula(a, inputs, part, lookup ? lookup : take, s);
    out.push_back(made[0]), lse.push_back(made[1]);
  }
  if (out.empty()) return {in[0], mx::zeros({0, heads}, mx::float32, s)};
  return {mx::astype(mx::concatenate(out, 0, s), in[0].dtype(), s), mx::concatenate(lse, 0, s)};
}

graph::Arrays attention_with_mlx(const AttentionAsked& asked) {
  return attention_formula(asked.attend, asked.inputs(), asked.stream);
}

graph::Arrays attention_with_sdpa(const AttentionAsked& asked) {
  const Attend& a = asked.attend;
  const mx::StreamOrDevice s = asked.stream;
  const Part part(a.segments->runs()[0]);
  const auto heads = [&](const mx::array& x, int rows) {
    return mx::transpose(mx::reshape(x, {part.n, rows, x.shape(1), x.shape(2)}, s), {0, 2, 1, 3},
                         s);
  };
  const mx::array& q = asked.q;
  const mx::array out = mx::fast::scaled_dot_product_attention(
      heads(q, part.queries), heads(asked.k, part.keys), heads(asked.v, part.keys), a.scale,
      a.causal ? "causal" : "", {}, {}, false, s);
  return {mx::reshape(mx::transpose(out, {0, 2, 1, 3}, s), q.shape(), s),
          mx::zeros({0, q.shape(1)}, mx::float32, s)};
}

graph::Arrays attention_vjp_with_mlx(const AttentionVjpAsked& asked) {
  const auto out = [&](const graph::Arrays& in) {
    return graph::Arrays{attention_formula(asked.forward.attend, in, asked.stream)[0]};
  };
  return mx::vjp(out, asked.forward.inputs(), {asked.g}).second;
}

}  // namespace lattice::routes

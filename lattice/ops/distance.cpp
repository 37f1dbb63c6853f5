#include "lattice/ops/distance.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/features/distance_gradient.h"
#include "lattice/ops/check.h"
#include "lattice/ops/conv.h"
#include "lattice/routes/capability.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/launch.h"

namespace lattice {
namespace {

void check(std::string_view function, const mx::array& a, const mx::array& b) {
  if (a.ndim() != 2 || b.ndim() != 2 || a.shape(1) != b.shape(1))
    fail(function, "a and b must have shapes (N, C) and (M, C), got " + shape_text(a.shape()) +
                       " and " + shape_text(b.shape()));
  for (const mx::array* x : {&a, &b}) check_float(function, *x);
}

// sqrt with derivative 0 at 0.
mx::array safe_sqrt(const mx::array& v, mx::StreamOrDevice s) {
  const mx::array positive = mx::greater(v, mx::array(0.0f), s);
  return mx::where(positive, mx::sqrt(mx::where(positive, v, mx::array(1.0f), s), s),
                   mx::array(0.0f), s);
}
mx::array norms(const mx::array& a, mx::StreamOrDevice s) {
  return safe_sqrt(sum_axis(mx::square(a, s), -1, true, s), s);
}

// Cosine distances in MLX operations, from which their derivatives are taken.
graph::Arrays cosine_formula(const graph::Arrays& in, mx::StreamOrDevice s) {
  const mx::array scale = mx::multiply(norms(in[0], s), mx::transpose(norms(in[1], s), s), s);
  const mx::array dots = matmul_rows(in[0], mx::transpose(in[1], s), std::nullopt, s);
  return {mx::subtract(mx::array(1.0f),
                       mx::divide(dots, mx::maximum(scale, mx::array(1e-8f), s), s), s)};
}

cpu::Distance kind_of(Metric metric) {
  return metric == Metric::cosine      ? cpu::Distance::cosine
         : metric == Metric::euclidean ? cpu::Distance::euclidean
                                       : cpu::Distance::squared;
}

mx::array rows_between(const mx::array& a, int from, int to, mx::StreamOrDevice s) {
  return mx::slice(a, {from, 0}, {to, a.shape(1)}, s);
}

mx::array distances(const mx::array& a, const mx::array& b, Metric metric, int block,
                    mx::StreamOrDevice s);

// The factor of a - b in the derivative of a distance: g / d, or 0 where d is 0; 2 g for squares.
mx::array factor(const mx::array& g, const mx::array& a, const mx::array& b, Metric metric,
                 int block, mx::StreamOrDevice s) {
  if (metric == Metric::squared_euclidean) return mx::multiply(g, mx::array(2.0f), s);
  const mx::array d = distances(a, b, metric, block, s),
                  positive = mx::greater(d, mx::array(0.0f), s);
  return mx::where(positive, mx::divide(g, mx::where(positive, d, mx::array(1.0f), s), s),
                   mx::array(0.0f), s);
}

// Up to so many channels, derivatives subtract before they sum. a[i] - b[j] is exact for near
// points; the difference of two sums is not (1 % at 1 mm in a cloud of 50 m). Features of more
// channels are no positions; for such features two products are many times faster.
constexpr int kSmallChannels = 16;

// (N, M): a[i, c] - b[j, c].
mx::array differences(const mx::array& a, const mx::array& b, int c, mx::StreamOrDevice s) {
  return mx::subtract(mx::slice(a, {0, c}, {a.shape(0), c + 1}, s),
                      mx::transpose(mx::slice(b, {0, c}, {b.shape(0), c + 1}, s), s), s);
}

// sum_j w[i, j] (a[i] - b[j]) and sum_i w[i, j] (b[j] - a[i]), one channel at a time: in MLX
// operations, differentiable as they are. Inputs: a, b, w.
graph::Arrays slope_formula(const graph::Arrays& in, mx::StreamOrDevice s) {
  const mx::array &a = in[0], &b = in[1], &w = in[2];
  if (a.size() == 0 || b.size() == 0)
    return {mx::zeros(a.shape(), mx::float32, s), mx::zeros(b.shape(), mx::float32, s)};
  std::vector<mx::array> to_a, to_b;
  for (int c = 0; c < a.shape(1); ++c) {
    const mx::array slope = mx::multiply(w, differences(a, b, c, s), s);
    to_a.push_back(sum_axis(slope, 1, true, s));
    to_b.push_back(mx::transpose(mx::negative(sum_axis(slope, 0, true, s), s), s));
  }
  return {mx::concatenate(to_a, 1, s), mx::concatenate(to_b, 1, s)};
}

// The same on the CPU: differences first, four rows of a and 1,024 of b at a time.
graph::Arrays slopes_on_cpu(const graph::Arrays& in, mx::StreamOrDevice s) {
  return graph::cpu_call(
      "distance_vjp", "", routes::contiguous(in, s),
      {{in[0].shape(), mx::float32}, {in[1].shape(), mx::float32}},
      [](std::span<const graph::Input> in, std::span<const graph::Output> out) {
        cpu::distance_gradient({in[2].as<float>(), in[0].as<float>(), in[1].as<float>(),
                                in[0].shape[0], in[1].shape[0], in[0].shape[1]},
                               out[0].as<float>(), out[1].as<float>());
      },
      s);
}

// A function of (a, b, w) whose derivatives are those of the formula.
graph::Arrays slope_sums(const mx::array& a, const mx::array& b, const mx::array& w,
                         mx::StreamOrDevice s) {
  const auto forward = [s](const graph::Arrays& in) {
    return on_gpu(s) ? slope_formula(in, s) : slopes_on_cpu(in, s);
  };
  const auto formula = [s](const graph::Arrays& in) { return slope_formula(in, s); };
  const auto vjp = [formula](const graph::Arrays& in, const graph::Arrays& ct,
                             const graph::Arrays&) { return mx::vjp(formula, in, ct).second; };
  const auto jvp = [formula](const graph::Arrays& in, const graph::Arrays& t) {
    return mx::jvp(formula, in, t).second;
  };
  return graph::differentiable({a, b, w}, forward, vjp, jvp);
}

// Gradients for one block of rows of a: sum_j w[i, j] (a[i] - b[j]) and sum_i w[i, j] (b[j] -
// a[i]). Both are the same for moved points; many channels are moved to the center first.
graph::Arrays block_vjp(const mx::array& a, const mx::array& b, const mx::array& g,
                        const mx::array& center, Metric metric, int block, mx::StreamOrDevice s) {
  if (metric == Metric::cosine)
    return mx::vjp([s](const graph::Arrays& in) { return cosine_formula(in, s); },
                   graph::Arrays{a, b}, graph::Arrays{g})
        .second;
  const mx::array w = factor(g, a, b, metric, block, s);
  if (a.shape(1) <= kSmallChannels) return slope_sums(a, b, w, s);
  const mx::array x = mx::subtract(a, center, s), y = mx::subtract(b, center, s);
  const mx::array to_a = mx::subtract(mx::multiply(x, sum_axis(w, 1, true, s), s),
                                      matmul_rows(w, y, std::nullopt, s), s);
  const mx::array wt = mx::transpose(w, s);
  const mx::array to_b = mx::subtract(mx::multiply(y, sum_axis(wt, 1, true, s), s),
                                      matmul_rows(wt, x, std::nullopt, s), s);
  return {to_a, to_b};
}

// (N, M) distances of float32 rows; the gradient is made from `block` rows at a time.
mx::array distances(const mx::array& a, const mx::array& b, Metric metric, int block,
                    mx::StreamOrDevice s) {
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(routes::distance_rows(), {in[0], in[1], kind_of(metric), s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    const int n = in[0].shape(0);
    if (n == 0 || in[1].shape(0) == 0 || in[0].shape(1) == 0)
      return {mx::zeros(in[0].shape(), mx::float32, s), mx::zeros(in[1].shape(), mx::float32, s)};
    const mx::array center = mx::stop_gradient(mx::mean(in[0], 0, true, s), s);
    std::vector<mx::array> parts;
    mx::array to_b = mx::zeros(in[1].shape(), mx::float32, s);
    for (int from = 0; from < n; from += block) {
      const int to = std::min(n, from + block);
      const graph::Arrays part =
          block_vjp(rows_between(in[0], from, to, s), in[1], rows_between(ct[0], from, to, s),
                    center, metric, block, s);
      parts.push_back(part[0]);
      to_b = mx::add(to_b, part[1], s);
    }
    return {parts.size() == 1 ? parts[0] : mx::concatenate(parts, 0, s), to_b};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    if (in[0].size() == 0 || in[1].size() == 0)
      return {mx::zeros({in[0].shape(0), in[1].shape(0)}, mx::float32, s)};
    if (metric == Metric::cosine)
      return mx::jvp([s](const graph::Arrays& x) { return cosine_formula(x, s); }, in, t).second;
    if (in[0].shape(1) <= kSmallChannels) {
      mx::array slope = mx::array(0.0f);
      for (int c = 0; c < in[0].shape(1); ++c)
        slope = mx::add(
            slope, mx::multiply(differences(in[0], in[1], c, s), differences(t[0], t[1], c, s), s),
            s);
      return {factor(slope, in[0], in[1], metric, block, s)};
    }
    const mx::array center = mx::stop_gradient(mx::mean(in[0], 0, true, s), s);
    const mx::array x = mx::subtract(in[0], center, s), y = mx::subtract(in[1], center, s);
    const auto dots = [s](const mx::array& p, const mx::array& q) {
      return matmul_rows(p, mx::transpose(q, s), std::nullopt, s);
    };
    const auto own = [s](const mx::array& p, const mx::array& q) {
      return sum_axis(mx::multiply(p, q, s), 1, true, s);
    };
    // <a - b, da - db>
    mx::array slope = mx::add(own(x, t[0]), mx::transpose(own(y, t[1]), s), s);
    slope = mx::subtract(slope, mx::add(dots(x, t[1]), dots(t[0], y), s), s);
    return {factor(slope, in[0], in[1], metric, block, s)};
  };
  return graph::differentiable({a, b}, forward, vjp, jvp)[0];
}

mx::array taken(const mx::array& a, const std::optional<mx::array>& rows, std::string_view function,
                const char* what, mx::StreamOrDevice s) {
  if (!rows) return a;
  const mx::array checked = checked_rows(*rows, a.shape(0), function, what);
  const int n = checked.shape(0);  // mx::take has no gradient without rows or channels
  if (n == 0 || a.shape(1) == 0) return mx::zeros({n, a.shape(1)}, a.dtype(), s);
  return mx::take(a, checked, 0, s);
}

}  // namespace

Metric parse_metric(std::string_view name, std::string_view function, bool chebyshev) {
  if (name == "euclidean") return Metric::euclidean;
  if (name == "squared_euclidean") return Metric::squared_euclidean;
  if (name == "cosine") return Metric::cosine;
  if (chebyshev && name == "chebyshev") return Metric::chebyshev;
  fail(function, std::string("metric must be euclidean, squared_euclidean") +
                     (chebyshev ? ", cosine or chebyshev" : " or cosine") + ", got '" +
                     std::string(name) + "'");
}

mx::array indexed_distance(const mx::array& a, const mx::array& b,
                           const std::optional<mx::array>& a_idx,
                           const std::optional<mx::array>& b_idx, Metric metric,
                           mx::StreamOrDevice s) {
  constexpr const char* kName = "indexed_distance";
  check(kName, a, b);
  const mx::array x = taken(a, a_idx, kName, "a_indices", s),
                  y = taken(b, b_idx, kName, "b_indices", s);
  const mx::array d =
      distances(as_float32(x, s), as_float32(y, s), metric, std::max(1, x.shape(0)), s);
  return mx::astype(d, mx::promote_types(a.dtype(), b.dtype()), s);
}

mx::array indexed_distance_blocked(const mx::array& a, const mx::array& b, int64_t block_size,
                                   Metric metric, mx::StreamOrDevice s) {
  constexpr const char* kName = "indexed_distance_blocked";
  check(kName, a, b);
  if (block_size < 1) fail(kName, "block_size must be >= 1, got " + std::to_string(block_size));
  const int block = static_cast<int>(std::min<int64_t>(block_size, std::max(1, a.shape(0))));
  return mx::astype(distances(as_float32(a, s), as_float32(b, s), metric, block, s),
                    mx::promote_types(a.dtype(), b.dtype()), s);
}

mx::array indexed_pair_distance(const mx::array& a, const mx::array& a_idx, const mx::array& b,
                                const mx::array& b_idx, Metric metric, mx::StreamOrDevice s) {
  constexpr const char* kName = "indexed_pair_distance";
  check(kName, a, b);
  if (a_idx.size() != b_idx.size())
    fail(kName, "a_indices and b_indices must have equal lengths, got " +
                    std::to_string(a_idx.size()) + " and " + std::to_string(b_idx.size()));
  const mx::array x = as_float32(taken(a, a_idx, kName, "a_indices", s), s);
  const mx::array y = as_float32(taken(b, b_idx, kName, "b_indices", s), s);
  const mx::Dtype dtype = mx::promote_types(a.dtype(), b.dtype());
  if (x.size() == 0) return mx::zeros({x.shape(0)}, dtype, s);
  const mx::array difference = mx::subtract(x, y, s);
  mx::array d = sum_axis(mx::square(difference, s), 1, false, s);
  if (metric == Metric::euclidean) d = safe_sqrt(d, s);
  if (metric == Metric::chebyshev) d = mx::max(mx::abs(difference, s), 1, false, s);
  if (metric == Metric::cosine) {
    const mx::array scale = mx::squeeze(mx::multiply(norms(x, s), norms(y, s), s), 1, s);
    const mx::array dot = sum_axis(mx::multiply(x, y, s), 1, false, s);
    d = mx::subtract(mx::array(1.0f), mx::divide(dot, mx::maximum(scale, mx::array(1e-8f), s), s),
                     s);
  }
  return mx::astype(d, dtype, s);
}

}  // namespace lattice

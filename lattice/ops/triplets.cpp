#include "lattice/ops/triplets.h"

#include <mlx/ops.h>

#include <limits>
#include <numeric>

#include "lattice/core/arrays.h"
#include "lattice/graph/differentiable.h"
#include "lattice/ops/check.h"
#include "lattice/ops/conv.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/packed_weight.h"

namespace lattice {
namespace {

void check(const std::string& function, const char* what, const mx::array& a, size_t rank,
           const char* axes) {
  if (a.ndim() != rank)
    fail(function,
         std::string(what) + " must have shape " + axes + ", got " + shape_text(a.shape()));
  check_float(function, a);
}

mx::array count_to(int64_t n) {
  cpu::Buffer<int32_t> ids(n);
  std::iota(ids.begin(), ids.end(), 0);
  return adopt(std::move(ids), {static_cast<int>(n)});
}

// groups times c and m channels.
routes::ConvProblem problem_of(const mx::array& x, const Relation::Ptr& r, int groups, int c,
                               int m) {
  return {r, int64_t{c} * groups, int64_t{m} * groups, groups, x.dtype()};
}

mx::array per_edge_outer(const mx::array& x, const mx::array& y, const Relation::Ptr& r, int groups,
                         mx::StreamOrDevice s);

// y (n_out, G M) = x (n_in, G C) times matrices (N, G, C, M), which may be any view.
mx::array per_edge_apply(const mx::array& x, const mx::array& a, const Relation::Ptr& r,
                         mx::StreamOrDevice s) {
  const int groups = a.shape(1), c = a.shape(2), m = a.shape(3);
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(routes::per_edge_apply_rows(),
                        {problem_of(in[0], r, groups, c, m), in[0], in[1], s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {per_edge_apply(ct[0], mx::swapaxes(in[1], 2, 3, s), r->reversed(), s),
            per_edge_outer(in[0], ct[0], r, groups, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    return {mx::add(per_edge_apply(t[0], in[1], r, s), per_edge_apply(in[0], t[1], r, s), s)};
  };
  return graph::differentiable({x, a}, forward, vjp, jvp)[0];
}

// u (N, G, C, M) = x (n_in, G C) outer y (n_out, G M).
mx::array per_edge_outer(const mx::array& x, const mx::array& y, const Relation::Ptr& r, int groups,
                         mx::StreamOrDevice s) {
  const int c = x.shape(1) / groups, m = y.shape(1) / groups;
  const auto forward = [=](const graph::Arrays& in) -> graph::Arrays {
    return {routes::run(routes::per_edge_outer_rows(),
                        {problem_of(in[0], r, groups, c, m), in[0], in[1], s})};
  };
  const auto vjp = [=](const graph::Arrays& in, const graph::Arrays& ct,
                       const graph::Arrays&) -> graph::Arrays {
    return {per_edge_apply(in[1], mx::swapaxes(ct[0], 2, 3, s), r->reversed(), s),
            per_edge_apply(in[0], ct[0], r, s)};
  };
  const auto jvp = [=](const graph::Arrays& in, const graph::Arrays& t) -> graph::Arrays {
    return {mx::add(per_edge_outer(t[0], in[1], r, groups, s),
                    per_edge_outer(in[0], t[1], r, groups, s), s)};
  };
  return graph::differentiable({x, y}, forward, vjp, jvp)[0];
}

}  // namespace

Relation::Ptr triplet_relation(const std::optional<mx::array>& a_idx,
                               const std::optional<mx::array>& b_idx, const mx::array& o_idx,
                               int64_t n_a, int64_t n_b, int64_t n_o) {
  const std::string op = "triplets";
  const int64_t n = static_cast<int64_t>(o_idx.size());
  if (n_o < 0 || n_o > std::numeric_limits<int32_t>::max())
    fail(op, "n_o must be in 0..2^31-1, got " + std::to_string(n_o));
  if (!a_idx && n_a != n)
    fail(op, "a_idx is needed: a has " + std::to_string(n_a) + " matrices for " +
                 std::to_string(n) + " triplets");
  if (!b_idx && n_b != n && n_b != n_o)
    fail(op, "b_idx is needed: b has " + std::to_string(n_b) + " rows, neither the " +
                 std::to_string(n) + " triplets nor the " + std::to_string(n_o) + " output rows");
  const mx::array o = checked_rows(o_idx, n_o, op, "o_idx");
  const mx::array k = a_idx ? checked_rows(*a_idx, n_a, op, "a_idx") : count_to(n);
  const mx::array b = b_idx ? checked_rows(*b_idx, n_b, op, "b_idx") : n_b == n ? count_to(n) : o;
  if (k.size() != o.size() || b.size() != o.size())
    fail(op, "a_idx, b_idx and o_idx must have equal lengths, got " + std::to_string(k.size()) +
                 ", " + std::to_string(b.size()) + " and " + std::to_string(o.size()));
  // A relation has at least one offset; without matrices there are no triplets.
  return Relation::from_edges(b, o, k, n_b, n_o, std::max<int64_t>(1, n_a));
}

mx::array mvmr(const mx::array& a, const mx::array& b, const Relation::Ptr& r, MatrixLayout layout,
               mx::StreamOrDevice s) {
  constexpr const char* kName = "mvmr";
  const bool gcm = layout == MatrixLayout::gcm;
  check(kName, "a", a, 4, gcm ? "(N, G, C, M)" : "(N, G, M, C)");
  check(kName, "b", b, 3, "(N, G, C)");
  const int groups = a.shape(1), c = a.shape(gcm ? 2 : 3), m = a.shape(gcm ? 3 : 2);
  if (b.shape(1) != groups || b.shape(2) != c)
    fail(kName, "b must have shape (N, " + std::to_string(groups) + ", " + std::to_string(c) +
                    ") to match a of shape " + shape_text(a.shape()) + ", got " +
                    shape_text(b.shape()));
  if (r->n_in() != b.shape(0) || r->n_kernels() != std::max(1, a.shape(0)))
    fail(kName, "a and b must have " + std::to_string(r->n_kernels()) + " matrices and " +
                    std::to_string(r->n_in()) + " rows for these triplets, got " +
                    std::to_string(a.shape(0)) + " and " + std::to_string(b.shape(0)));
  const int n_o = static_cast<int>(r->n_out());
  const mx::Dtype dtype = mx::promote_types(a.dtype(), b.dtype());
  if (r->edge_count() == 0 || groups == 0 || c == 0 || m == 0)
    return mx::zeros({n_o, groups, m}, dtype, s);
  const mx::array matrices = mx::astype(gcm ? a : mx::swapaxes(a, 2, 3, s), dtype, s);
  const mx::array rows = mx::reshape(mx::astype(b, dtype, s), {b.shape(0), groups * c}, s);
  return mx::reshape(per_edge_apply(rows, matrices, r, s), {n_o, groups, m}, s);
}

mx::array mvmr(const mx::array& a, const std::optional<mx::array>& a_idx, const mx::array& b,
               const std::optional<mx::array>& b_idx, const mx::array& o_idx, int64_t n_o,
               MatrixLayout layout, mx::StreamOrDevice s) {
  check("mvmr", "a", a, 4, layout == MatrixLayout::gcm ? "(N, G, C, M)" : "(N, G, M, C)");
  check("mvmr", "b", b, 3, "(N, G, C)");
  return mvmr(a, b, triplet_relation(a_idx, b_idx, o_idx, a.shape(0), b.shape(0), n_o), layout, s);
}

mx::array vvor(const mx::array& a, const mx::array& b, const Relation::Ptr& r,
               mx::StreamOrDevice s) {
  constexpr const char* kName = "vvor";
  check(kName, "a", a, 3, "(N, G, M)");
  check(kName, "b", b, 3, "(N, G, C)");
  const int groups = a.shape(1), m = a.shape(2), c = b.shape(2);
  if (b.shape(1) != groups)
    fail(kName, "a and b must have equal groups, got shapes " + shape_text(a.shape()) + " and " +
                    shape_text(b.shape()));
  if (r->n_in() != a.shape(0) || r->n_out() != b.shape(0))
    fail(kName, "a and b must have " + std::to_string(r->n_in()) + " and " +
                    std::to_string(r->n_out()) + " rows for these triplets, got " +
                    std::to_string(a.shape(0)) + " and " + std::to_string(b.shape(0)));
  const int n_o = static_cast<int>(r->n_kernels());
  const mx::Dtype dtype = mx::promote_types(a.dtype(), b.dtype());
  if (r->edge_count() == 0 || groups == 0 || c == 0 || m == 0)
    return mx::zeros({n_o, groups, m, c}, dtype, s);
  const mx::array x = mx::reshape(mx::astype(a, dtype, s), {a.shape(0), groups * m}, s);
  const mx::array y = mx::reshape(mx::astype(b, dtype, s), {b.shape(0), groups * c}, s);
  return per_edge_outer(x, y, r, groups, s);
}

mx::array vvor(const mx::array& a, const mx::array& a_idx, const mx::array& b,
               const mx::array& b_idx, const mx::array& o_idx, int64_t n_o, mx::StreamOrDevice s) {
  check("vvor", "a", a, 3, "(N, G, M)");
  check("vvor", "b", b, 3, "(N, G, C)");
  if (n_o < 0) fail("vvor", "n_o must be >= 0, got " + std::to_string(n_o));
  const mx::array u =
      vvor(a, b, triplet_relation(o_idx, a_idx, b_idx, n_o, a.shape(0), b.shape(0)), s);
  return n_o > 0 ? u : mx::zeros({0, a.shape(1), a.shape(2), b.shape(2)}, u.dtype(), s);
}

mx::array point_conv(const mx::array& x, const mx::array& weight, const Relation::Ptr& relation,
                     const std::optional<mx::array>& bias, mx::StreamOrDevice s) {
  constexpr const char* kName = "point_conv";
  check(kName, "x", x, 2, "(N, C_in)");
  check(kName, "weight", weight, 4, "(K, G, C_in / G, C_out / G)");
  const int groups = weight.shape(1);
  if (weight.shape(0) != relation->n_kernels() || groups < 1 ||
      groups * weight.shape(2) != x.shape(1))
    fail(kName, "weight must have shape (" + std::to_string(relation->n_kernels()) + ", G, " +
                    std::to_string(x.shape(1)) + " / G, C_out / G), got " +
                    shape_text(weight.shape()));
  return conv(x, routes::side_by_side(weight, s), relation, bias, groups, s, kName);
}

}  // namespace lattice

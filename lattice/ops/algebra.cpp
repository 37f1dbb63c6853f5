#include "lattice/ops/algebra.h"

#include <mlx/ops.h>

#include <algorithm>
#include <atomic>
#include <limits>
#include <stdexcept>

#include "lattice/core/arrays.h"
#include "lattice/kernels/cpu/geometry/keys.h"
#include "lattice/ops/check.h"
#include "lattice/ops/columns.h"
#include "lattice/ops/reduce_rows.h"

namespace lattice {
namespace {

std::atomic<int64_t> alignments{0};

void check_pair(std::string_view op, const SparseTensor& a, const SparseTensor& b) {
  if (a.stride() != b.stride())
    fail(op, "tensors must have the same coordinate stride, got " + triple_text(a.stride()) +
                 " and " + triple_text(b.stride()));
  if (a.dtype() != b.dtype())
    fail(op, "tensors must have equal dtypes, got " + graph::dtype_name(a.dtype()) + " and " +
                 graph::dtype_name(b.dtype()));
  check_float(op, a);
  check_same_dtype(a.coordinate_set(), b.coordinate_set(), op, "coords");
}

SparseAlignment aligned(std::string_view op, const SparseTensor& a, const SparseTensor& b,
                        Join join) {
  ++alignments;
  a.coordinate_set().unique_index(op);
  b.coordinate_set().unique_index(op);
  return build_sparse_alignment(a.coordinate_set(), std::nullopt, b.coordinate_set(), std::nullopt,
                                join);
}

bool is_identity(const mx::array& rows, int64_t n) {
  if (static_cast<int64_t>(rows.size()) != n) return false;
  const int32_t* r = n ? rows.data<int32_t>() : nullptr;
  for (int64_t i = 0; i < n; ++i)
    if (r[i] != i) return false;
  return true;
}

mx::array taken(const mx::array& feats, const mx::array& rows, float fill, mx::StreamOrDevice s) {
  if (is_identity(rows, feats.shape(0))) return feats;
  return gather_rows(feats, groups_of(rows, feats.shape(0)), fill, s);
}

std::optional<BatchCounts> joint_counts(const SparseTensor& a, const SparseTensor& b,
                                        const CoordinateSet& set) {
  if (!a.batch_counts() && !b.batch_counts()) return std::nullopt;
  size_t most = 0;
  for (const SparseTensor* t : {&a, &b})
    if (t->batch_counts()) most = std::max(most, t->batch_counts()->size());
  return count_batches(set, static_cast<int64_t>(most));
}

// Both sides' features on common rows, and a tensor that has those rows.
struct Joined {
  mx::array lhs, rhs;
  SparseTensor rows;
};
Joined join_rows(std::string_view op, const SparseTensor& a, const SparseTensor& b, Join join,
                 const Fills& fills, mx::StreamOrDevice s) {
  check_pair(op, a, b);
  if (a.same_coords(b)) return {a.feats(), b.feats(), a};
  const SparseAlignment rows = aligned(op, a, b, join);
  const mx::array lhs = taken(a.feats(), rows.lhs_rows, fills.lhs, s);
  const mx::array rhs = taken(b.feats(), rows.rhs_rows, fills.rhs, s);
  if (is_identity(rows.lhs_rows, a.active_count())) return {lhs, rhs, a};
  if (is_identity(rows.rhs_rows, b.active_count())) return {lhs, rhs, b};
  const CoordinateSet set(rows.coords, op);
  return {lhs, rhs,
          SparseTensor(a.coord_manager(), a.coord_manager()->insert_set(set, a.stride()), lhs,
                       joint_counts(a, b, set))};
}

}  // namespace

int64_t alignment_count() { return alignments; }

BinaryOp parse_binary(std::string_view name, std::string_view operation) {
  if (name == "add") return BinaryOp::add;
  if (name == "sub") return BinaryOp::sub;
  if (name == "mul") return BinaryOp::mul;
  if (name == "maximum") return BinaryOp::maximum;
  if (name == "minimum") return BinaryOp::minimum;
  fail(operation, "op must be add, sub, mul, maximum or minimum, got '" + std::string(name) + "'");
}

SparseAlignment align_sparse(const SparseTensor& lhs, const SparseTensor& rhs, Join join,
                             mx::StreamOrDevice) {
  if (lhs.stride() != rhs.stride())
    fail("align_sparse", "tensors must have the same coordinate stride, got " +
                             triple_text(lhs.stride()) + " and " + triple_text(rhs.stride()));
  check_same_dtype(lhs.coordinate_set(), rhs.coordinate_set(), "align_sparse", "coords");
  if (!lhs.same_coords(rhs)) return aligned("align_sparse", lhs, rhs, join);
  const mx::array rows = evaluated(mx::arange(0, static_cast<int>(lhs.active_count()), mx::int32),
                                   "align_sparse", "rows");
  return {lhs.coords(), lhs.active_rows(), rows, rows};
}

mx::array gather_aligned_features(const mx::array& feats, const mx::array& rows, float fill,
                                  mx::StreamOrDevice s) {
  constexpr const char* kName = "gather_aligned_features";
  if (feats.ndim() != 2)
    fail(kName, "features must have shape (N, C), got " + shape_text(feats.shape()));
  check_float(kName, feats);
  const mx::array checked =
      checked_rows(rows, feats.shape(0), kName, "rows", std::numeric_limits<int32_t>::min());
  return taken(feats, checked, fill, s);
}

SparseTensor reindex_sparse(const SparseTensor& x, const TargetCoords& target, float fill,
                            mx::StreamOrDevice s) {
  constexpr const char* kName = "reindex_sparse";
  check_float(kName, x);
  const CoordinateMapKey key = target_key(x, target, x.stride(), kName);
  if (key == x.coord_key()) return x;
  if (const auto* to = std::get_if<SparseTensor>(&target)) {  // the target's identity and counts
    check_same_dtype(x.coordinate_set(), to->coordinate_set(), kName, "coords and target");
    x.coordinate_set().unique_index(kName);
    ++alignments;
    return to->with_feats(
        taken(x.feats(), lookup_coords(x.coordinate_set(), to->coordinate_set()), fill, s));
  }
  const CoordinateSet set = x.coord_manager()->set(key);
  check_same_dtype(x.coordinate_set(), set, kName, "coords and target");
  x.coordinate_set().unique_index(kName);
  ++alignments;
  return result_on(x, key, taken(x.feats(), lookup_coords(x.coordinate_set(), set), fill, s));
}

SparseTensor sparse_binary(const SparseTensor& lhs, const SparseTensor& rhs, BinaryOp op, Join join,
                           const Fills& fills, mx::StreamOrDevice s) {
  constexpr const char* kName = "sparse_binary";
  if (lhs.channels() != rhs.channels() && lhs.channels() != 1 && rhs.channels() != 1)
    fail(kName, "tensors must have equal channels or one, got " + std::to_string(lhs.channels()) +
                    " and " + std::to_string(rhs.channels()));
  const Joined j = join_rows(kName, lhs, rhs, join, fills, s);
  switch (op) {
    case BinaryOp::add:
      return j.rows.with_feats(mx::add(j.lhs, j.rhs, s));
    case BinaryOp::sub:
      return j.rows.with_feats(mx::subtract(j.lhs, j.rhs, s));
    case BinaryOp::mul:
      return j.rows.with_feats(mx::multiply(j.lhs, j.rhs, s));
    case BinaryOp::maximum:
      return j.rows.with_feats(mx::maximum(j.lhs, j.rhs, s));
    default:
      return j.rows.with_feats(mx::minimum(j.lhs, j.rhs, s));
  }
}

SparseTensor sparse_intersection(const SparseTensor& lhs, const SparseTensor& rhs,
                                 mx::StreamOrDevice s) {
  const Joined j = join_rows("sparse_intersection", lhs, rhs, Join::inner, {}, s);
  return j.rows.with_feats(j.lhs);
}

SparseTensor sparse_cat_aligned(const SparseTensor& lhs, const SparseTensor& rhs, Join join,
                                const Fills& fills, mx::StreamOrDevice s) {
  const Joined j = join_rows("sparse_cat_aligned", lhs, rhs, join, fills, s);
  return j.rows.with_feats(join_columns({j.lhs, j.rhs}, s));
}

SparseTensor cat(const std::vector<SparseTensor>& tensors, Join join, mx::StreamOrDevice s) {
  if (tensors.empty()) fail("cat", "needs at least one tensor, got none");
  const SparseTensor& first = tensors.front();
  bool shared = true;
  for (const SparseTensor& t : tensors) {
    check_pair("cat", first, t);
    shared = shared && t.same_coords(first);
  }
  if (shared) {
    std::vector<mx::array> feats;
    feats.reserve(tensors.size());
    for (const SparseTensor& t : tensors) feats.push_back(t.feats());
    return tensors.size() == 1 ? first : first.with_feats(join_columns(feats, s));
  }
  SparseTensor sum = first;
  for (size_t i = 1; i < tensors.size(); ++i)
    sum = sparse_cat_aligned(sum, tensors[i], join, {}, s);
  return sum;
}

}  // namespace lattice

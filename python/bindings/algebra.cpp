// Algebra of sparse tensors. Arguments only.
#include "lattice/ops/algebra.h"

#include "arguments.h"
#include "bind.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Stream = mx::StreamOrDevice;
using Text = std::string_view;
using X = const SparseTensor&;

void def_binary(nb::module_& m, const char* name, BinaryOp op) {
  def(
      m, name,
      [op, name](X lhs, X rhs, Text join, float lhs_fill, float rhs_fill, Stream s) {
        return sparse_binary(lhs, rhs, op, parse_join(join, name), {lhs_fill, rhs_fill}, s);
      },
      "lhs"_a, "rhs"_a, "join"_a, "lhs_fill"_a, "rhs_fill"_a, "stream"_a, Unlocked());
}

void bind_rows(nb::module_& m) {
  def(m, "prune", &prune, "x"_a, "rows"_a, "stream"_a, Unlocked());
  def(m, "prune_mask", &prune_mask, "x"_a, "mask"_a, "stream"_a, Unlocked());
  def(m, "rows_where", &rows_where, "mask"_a, Unlocked());
  def(m, "crop", &crop, "x"_a, "min_coord"_a, "max_coord"_a, "stream"_a, Unlocked());
  def(
      m, "replace_feature", [](X x, const mx::array& feats) { return x.with_feats(feats); }, "x"_a,
      "feats"_a);
  def(m, "topk_rows", &topk_rows, "x"_a, "counts"_a, "rho"_a, Unlocked());
  def(
      m, "sparse_from_coordinates",
      [](const mx::array& coords, const mx::array& feats, const Triple& stride,
         const std::optional<BatchCounts>& counts, Text duplicates, Stream s) {
        const Duplicates how = parse_duplicates(duplicates, "sparse_from_coordinates");
        return sparse_from_coordinates(coords, feats, stride, counts, how, s);
      },
      "coords"_a, "feats"_a, "stride"_a, "batch_counts"_a, "duplicate_reduction"_a, "stream"_a,
      Unlocked());
  def(
      m, "sparse_collate",
      [](const std::vector<mx::array>& coords, const std::vector<mx::array>& feats,
         const Triple& stride, Text duplicates, Stream s) {
        const Duplicates how = parse_duplicates(duplicates, "sparse_collate");
        return sparse_collate(coords, feats, stride, how, s);
      },
      "coords_list"_a, "feats_list"_a, "stride"_a, "duplicate_reduction"_a, "stream"_a, Unlocked());
}

}  // namespace

void bind_algebra(nb::module_& m) {
  def(
      m, "align_sparse",
      [](X lhs, X rhs, Text join, Stream s) {
        return align_sparse(lhs, rhs, parse_join(join, "align_sparse"), s);
      },
      "lhs"_a, "rhs"_a, "join"_a, "stream"_a, Unlocked());
  m.def("alignment_count", &alignment_count,
        "How often coordinates were aligned by value in this process.");
  def(
      m, "gather_aligned_features",
      [](const TensorOrArray& x, const mx::array& rows, float fill, Stream s) {
        const auto* tensor = std::get_if<SparseTensor>(&x);
        return gather_aligned_features(tensor ? tensor->feats() : std::get<mx::array>(x), rows,
                                       fill, s);
      },
      "x"_a, "rows"_a, "fill"_a, "stream"_a, Unlocked());
  def(m, "reindex_sparse", &reindex_sparse, "input"_a, "target"_a, "fill"_a, "stream"_a,
      Unlocked());
  def(
      m, "sparse_binary",
      [](X lhs, X rhs, Text op, Text join, float lhs_fill, float rhs_fill, Stream s) {
        const BinaryOp what = parse_binary(op, "sparse_binary");
        const Join how = parse_join(join, "sparse_binary");
        return sparse_binary(lhs, rhs, what, how, {lhs_fill, rhs_fill}, s);
      },
      "lhs"_a, "rhs"_a, "op"_a, "join"_a, "lhs_fill"_a, "rhs_fill"_a, "stream"_a, Unlocked());
  def_binary(m, "sparse_add", BinaryOp::add);
  def_binary(m, "sparse_sub", BinaryOp::sub);
  def_binary(m, "sparse_mul", BinaryOp::mul);
  def_binary(m, "sparse_maximum", BinaryOp::maximum);
  def_binary(m, "sparse_minimum", BinaryOp::minimum);
  def(
      m, "cat",
      [](const std::vector<SparseTensor>& tensors, Text join, Stream s) {
        return cat(tensors, parse_join(join, "cat"), s);
      },
      "tensors"_a, "join"_a, "stream"_a, Unlocked());
  def(
      m, "sparse_cat_aligned",
      [](X lhs, X rhs, Text join, float lhs_fill, float rhs_fill, Stream s) {
        const Join how = parse_join(join, "sparse_cat_aligned");
        return sparse_cat_aligned(lhs, rhs, how, {lhs_fill, rhs_fill}, s);
      },
      "lhs"_a, "rhs"_a, "join"_a, "lhs_fill"_a, "rhs_fill"_a, "stream"_a, Unlocked());
  bind_rows(m);
}

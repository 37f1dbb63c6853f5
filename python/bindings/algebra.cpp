// Algebra of sparse tensors. Arguments only.
#include "lattice/ops/algebra.h"

#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "arguments.h"
#include "bind.h"
#include "lattice/core/errors.h"

using namespace lattice;
using namespace nb::literals;

namespace {

using Stream = mx::StreamOrDevice;
using X = const SparseTensor&;

void def_binary(nb::module_& m, const char* name, BinaryOp op, const char* join, const char* doc) {
  m.def(
      name,
      [op, name](X lhs, X rhs, const std::string& join, float lhs_fill, float rhs_fill, Stream s) {
        const Join how = parse_join(join, name);
        return unlocked([&] { return sparse_binary(lhs, rhs, op, how, {lhs_fill, rhs_fill}, s); });
      },
      "lhs"_a, "rhs"_a, nb::kw_only(), "join"_a = join, "lhs_fill"_a = 0.0f, "rhs_fill"_a = 0.0f,
      "stream"_a = nb::none(), doc);
}

void def_any_binary(nb::module_& m, const char* name) {
  m.def(
      name,
      [name](X lhs, X rhs, const std::string& op, const std::string& join, float lhs_fill,
             float rhs_fill, Stream s) {
        const BinaryOp what = parse_binary(op, name);
        const Join how = parse_join(join, name);
        return unlocked(
            [&] { return sparse_binary(lhs, rhs, what, how, {lhs_fill, rhs_fill}, s); });
      },
      "lhs"_a, "rhs"_a, "op"_a, nb::kw_only(), "join"_a = "outer", "lhs_fill"_a = 0.0f,
      "rhs_fill"_a = 0.0f, "stream"_a = nb::none(),
      "op(lhs, rhs) on joined rows: add, sub, mul, maximum or minimum; a missing row is the fill.");
}

// Features of a tensor, or an array.
mx::array features(nb::handle x, const char* operation) {
  if (nb::isinstance<SparseTensor>(x)) return nb::cast<SparseTensor>(x).feats();
  if (nb::isinstance<mx::array>(x)) return nb::cast<mx::array>(x);
  throw TypeError("[" + std::string(operation) + "] x must be a SparseTensor or an array, found " +
                  nb::type_name(x.type()).c_str());
}

void bind_rows(nb::module_& m) {
  m.def(
      "prune",
      [](X x, const mx::array& rows, Stream s) {
        return unlocked([&] { return prune(x, rows, s); });
      },
      "x"_a, "rows"_a, nb::kw_only(), "stream"_a = nb::none(),
      "The given rows, in the given order.");
  m.def(
      "prune_mask",
      [](X x, const mx::array& mask, Stream s) {
        return unlocked([&] { return prune_mask(x, mask, s); });
      },
      "x"_a, "mask"_a, nb::kw_only(), "stream"_a = nb::none(), "The rows where mask is true.");
  m.def(
      "crop",
      [](X x, nb::handle lo, nb::handle hi, Stream s) {
        const Triple from = triple(lo, "crop", "min_coord"), to = triple(hi, "crop", "max_coord");
        return unlocked([&] { return crop(x, from, to, s); });
      },
      "x"_a, nb::kw_only(), "min_coord"_a, "max_coord"_a, "stream"_a = nb::none(),
      "The rows with min_coord <= (x, y, z) <= max_coord, both included.");
  m.def(
      "replace_feature", [](X x, const mx::array& feats, Stream) { return x.with_feats(feats); },
      "x"_a, "feats"_a, nb::kw_only(), "stream"_a = nb::none(),
      "Other features on the same coordinates.");
  m.def(
      "topk_rows",
      [](X x, nb::handle counts, double rho, Stream) {
        const std::vector<int64_t> n = integers(counts, "topk_rows", "counts");
        return unlocked([&] { return topk_rows(x, n, rho); });
      },
      "x"_a, "counts"_a, nb::kw_only(), "rho"_a = 1.0, "stream"_a = nb::none(),
      "Ascending rows: of batch item b the floor(rho * counts[b]) with the largest channel 0.");
  m.def(
      "sparse_from_coordinates",
      [](const mx::array& coords, const mx::array& feats, nb::handle stride, nb::handle counts,
         const std::string& duplicates, Stream s) {
        constexpr const char* kName = "sparse_from_coordinates";
        const Triple step = triple(stride, kName, "stride");
        std::optional<BatchCounts> rows;
        if (!counts.is_none()) rows = integers(counts, kName, "batch_counts");
        const Duplicates how = parse_duplicates(duplicates, kName);
        return unlocked([&] { return sparse_from_coordinates(coords, feats, step, rows, how, s); });
      },
      "coords"_a, "feats"_a, nb::kw_only(), "stride"_a = 1, "batch_counts"_a = nb::none(),
      "duplicate_reduction"_a = "none", "stream"_a = nb::none(),
      "A tensor; rows of equal coordinates become one: first, sum, mean or max.");
  m.def(
      "sparse_collate",
      [](const std::vector<mx::array>& coords, const std::vector<mx::array>& feats,
         nb::handle stride, const std::string& duplicates, Stream s) {
        const Triple step = triple(stride, "sparse_collate", "stride");
        const Duplicates how = parse_duplicates(duplicates, "sparse_collate");
        return unlocked([&] { return sparse_collate(coords, feats, step, how, s); });
      },
      "coords_list"_a, "feats_list"_a, nb::kw_only(), "stride"_a = 1,
      "duplicate_reduction"_a = "none", "stream"_a = nb::none(),
      "Items of (n, 3) coordinates and (n, C) features as one batch; batch_counts are set.");
}

}  // namespace

void bind_algebra(nb::module_& m) {
  m.def(
      "align_sparse",
      [](X lhs, X rhs, const std::string& join, Stream s) {
        const Join how = parse_join(join, "align_sparse");
        return unlocked([&] { return align_sparse(lhs, rhs, how, s); });
      },
      "lhs"_a, "rhs"_a, nb::kw_only(), "join"_a = "inner", "stream"_a = nb::none(),
      "The rows of two tensors joined by coordinate.");
  m.def("alignment_count", &alignment_count,
        "How often coordinates were aligned by value in this process.");
  m.def(
      "gather_aligned_features",
      [](nb::handle x, const mx::array& rows, float fill, Stream s) {
        const mx::array feats = features(x, "gather_aligned_features");
        return unlocked([&] { return gather_aligned_features(feats, rows, fill, s); });
      },
      "x"_a, "rows"_a, nb::kw_only(), "fill"_a = 0.0f, "stream"_a = nb::none(),
      "feats[rows]; fill where a row is negative.");
  m.def(
      "reindex_sparse",
      [](X x, nb::handle target, float fill, Stream s) {
        const auto where = target_coords(target, "reindex_sparse", "target");
        if (!where) throw TypeError("[reindex_sparse] target must not be None");
        return unlocked([&] { return reindex_sparse(x, *where, fill, s); });
      },
      "x"_a, "target"_a, nb::kw_only(), "fill"_a = 0.0f, "stream"_a = nb::none(),
      "x's features at the target's coordinates; fill where x has no row.");
  def_any_binary(m, "sparse_binary");
  def_any_binary(m, "sparse_binary_op");
  def_binary(m, "sparse_add", BinaryOp::add, "outer", "lhs + rhs; a missing row is the fill.");
  def_binary(m, "sparse_sub", BinaryOp::sub, "outer", "lhs - rhs; a missing row is the fill.");
  def_binary(m, "sparse_mul", BinaryOp::mul, "inner", "lhs * rhs on common rows.");
  def_binary(m, "sparse_maximum", BinaryOp::maximum, "inner", "max(lhs, rhs) on common rows.");
  def_binary(m, "sparse_minimum", BinaryOp::minimum, "inner", "min(lhs, rhs) on common rows.");
  m.def(
      "cat",
      [](const std::vector<SparseTensor>& tensors, const std::string& join, Stream s) {
        const Join how = parse_join(join, "cat");
        return unlocked([&] { return cat(tensors, how, s); });
      },
      "tensors"_a, nb::kw_only(), "join"_a = "inner", "stream"_a = nb::none(),
      "Channels side by side on joined rows.");
  m.def(
      "sparse_cat_aligned",
      [](X lhs, X rhs, const std::string& join, float lhs_fill, float rhs_fill, Stream s) {
        const Join how = parse_join(join, "sparse_cat_aligned");
        return unlocked([&] { return sparse_cat_aligned(lhs, rhs, how, {lhs_fill, rhs_fill}, s); });
      },
      "lhs"_a, "rhs"_a, nb::kw_only(), "join"_a = "inner", "lhs_fill"_a = 0.0f, "rhs_fill"_a = 0.0f,
      "stream"_a = nb::none(), "Channels of two tensors side by side; a missing row is the fill.");
  bind_rows(m);
}

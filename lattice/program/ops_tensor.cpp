// Sparse tensors in programs: their parts, joins, selections, dense grids; docs/ops/algebra.md has
// the formulas.
#include "lattice/core/dense.h"
#include "lattice/ops/algebra.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr Operand kX{"x", "sparse"}, kLhs{"lhs", "sparse"}, kRhs{"rhs", "sparse"};
constexpr Attribute kJoin{"join", Type::text}, kLhsFill{"lhs_fill", Type::number},
    kRhsFill{"rhs_fill", Type::number};

Fills fills_of(const Call& call) {
  return {static_cast<float>(call.number("lhs_fill")), static_cast<float>(call.number("rhs_fill"))};
}

void add_binary(std::vector<Operation>& rows, const char* name, BinaryOp op) {
  rows.push_back({name,
                  1,
                  {kLhs, kRhs},
                  {kJoin, kLhsFill, kRhsFill},
                  {"sparse"},
                  Phase::features,
                  [name, op](const Call& call) -> Results {
                    return {sparse_binary(call.sparse("lhs"), call.sparse("rhs"), op,
                                          parse_join(call.text("join"), name), fills_of(call))};
                  }});
}

void add_joins(std::vector<Operation>& rows) {
  rows.push_back({"sparse_binary",
                  1,
                  {kLhs, kRhs},
                  {{"op", Type::text}, kJoin, kLhsFill, kRhsFill},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {sparse_binary(call.sparse("lhs"), call.sparse("rhs"),
                                          parse_binary(call.text("op"), "sparse_binary"),
                                          parse_join(call.text("join"), "sparse_binary"),
                                          fills_of(call))};
                  }});
  add_binary(rows, "sparse_add", BinaryOp::add);
  add_binary(rows, "sparse_sub", BinaryOp::sub);
  add_binary(rows, "sparse_mul", BinaryOp::mul);
  add_binary(rows, "sparse_maximum", BinaryOp::maximum);
  add_binary(rows, "sparse_minimum", BinaryOp::minimum);
  rows.push_back({"cat",
                  1,
                  {{"tensors", "sparse", Form::list}},
                  {kJoin},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {cat(call.sparse_list("tensors"), parse_join(call.text("join"), "cat"))};
                  }});
  rows.push_back({"sparse_cat_aligned",
                  1,
                  {kLhs, kRhs},
                  {kJoin, kLhsFill, kRhsFill},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {sparse_cat_aligned(call.sparse("lhs"), call.sparse("rhs"),
                                               parse_join(call.text("join"), "sparse_cat_aligned"),
                                               fills_of(call))};
                  }});
  rows.push_back({"reindex_sparse",
                  1,
                  {kX, {"target", "sparse|array"}},
                  {{"fill", Type::number}},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {reindex_sparse(call.sparse("x"), *target_of(call, "target"),
                                           static_cast<float>(call.number("fill")))};
                  }});
}

// `prune` and `prune_mask` read values, so that what follows cannot be prepared.
void add_selections(std::vector<Operation>& rows) {
  rows.push_back(
      {"prune",
       1,
       {kX, {"rows", "array"}},
       {},
       {"sparse"},
       Phase::decision,
       [](const Call& call) -> Results { return {prune(call.sparse("x"), call.array("rows"))}; }});
  rows.push_back({"prune_mask",
                  1,
                  {kX, {"mask", "array"}},
                  {},
                  {"sparse"},
                  Phase::decision,
                  [](const Call& call) -> Results {
                    return {prune_mask(call.sparse("x"), call.array("mask"))};
                  }});
  rows.push_back(
      {"crop",
       1,
       {kX},
       {{"min_coord", Type::integers, false, 3}, {"max_coord", Type::integers, false, 3}},
       {"sparse"},
       Phase::features,
       [](const Call& call) -> Results {
         return {crop(call.sparse("x"), call.triple("min_coord"), call.triple("max_coord"))};
       }});
}

void add_parts(std::vector<Operation>& rows) {
  rows.push_back(
      {"feats", 1, {kX}, {}, {"array"}, Phase::features, [](const Call& call) -> Results {
         return {call.sparse("x").feats()};
       }});
  rows.push_back(
      {"coords", 1, {kX}, {}, {"array"}, Phase::geometry, [](const Call& call) -> Results {
         return {call.sparse("x").coords()};
       }});
  rows.push_back(
      {"batch_indices", 1, {kX}, {}, {"array"}, Phase::geometry, [](const Call& call) -> Results {
         return {call.sparse("x").batch_indices()};
       }});
  rows.push_back({"with_feats",
                  1,
                  {kX, {"feats", "array"}},
                  {},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {call.sparse("x").with_feats(call.array("feats"))};
                  }});
  rows.push_back(
      {"to_dense",
       1,
       {kX},
       {{"shape", Type::integers, true, -1, 0, 1 << 20}, {"min_coord", Type::integers, true, 3}},
       {"array"},
       Phase::features,
       [](const Call& call) -> Results {
         std::optional<std::vector<int64_t>> shape;
         if (call.has("shape")) shape = call.integers("shape");
         std::optional<Triple> low;
         if (call.has("min_coord")) low = call.triple("min_coord");
         return {to_dense(call.sparse("x"), shape, low)};
       }});
}

}  // namespace

std::vector<Operation> tensor_operations() {
  std::vector<Operation> rows;
  add_parts(rows);
  add_joins(rows);
  add_selections(rows);
  return rows;
}

}  // namespace lattice::program

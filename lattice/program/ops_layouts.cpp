// Attention in programs: layouts of slots, pooling by blocks, attention itself; docs/ops/layouts.md
// and docs/ops/attention.md have the formulas.
#include "lattice/ops/layouts.h"

#include "lattice/core/errors.h"
#include "lattice/ops/attention.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

using Layout = AttentionLayout::Ptr;
using Pooling = GridPooling::Ptr;

LayoutSource source_of(const Call& call) {
  if (const auto* tensor = std::get_if<SparseTensor>(&call.value("x"))) return *tensor;
  return CoordsLike(call.array("x"));
}

Results run_patches(const Call& call) {
  return {object_value("layout", attention_patches(source_of(call), call.integer("size"),
                                                   parse_curve(call.text("order"), "Program"),
                                                   call.flag("shrink")))};
}

Results run_windows(const Call& call) {
  return {object_value(
      "layout", attention_windows(source_of(call), call.triple("size"), call.triple("shift")))};
}

Results run_to_slots(const Call& call) {
  const auto made =
      to_slots(call.array("feats"), call.object<Layout>("layout", "layout"), call.integer("parts"));
  return {made.begin(), made.end()};
}

Results run_attention(const Call& call) {
  AttentionOptions options;
  options.k_offsets = call.optional_array("k_offsets");
  options.scale = call.optional_number("scale");
  if (call.given("bias")) {
    if (const auto* array = std::get_if<mx::array>(&call.value("bias")))
      options.bias = *array;
    else
      options.bias = call.object<PositionBias>("bias", "bias");
  }
  if (call.flag("causal")) options.mask = std::string("causal");
  if (call.given("mask")) options.mask = call.array("mask");
  return {
      attention(call.array("q"), call.array("k"), call.array("v"), call.array("offsets"), options)};
}

void add_layouts(std::vector<Operation>& rows) {
  const Attribute order{"order", Type::text};
  const Operand layout{"layout", "layout"};
  rows.push_back({"attention_patches",
                  1,
                  {{"x", "sparse|array"}},
                  {{"size", Type::integer, false, -1, 1}, order, {"shrink", Type::flag}},
                  {"layout"},
                  Phase::geometry,
                  run_patches});
  rows.push_back({"attention_windows",
                  1,
                  {{"x", "sparse|array"}},
                  {{"size", Type::integers, false, 3, 0}, {"shift", Type::integers, false, 3, 0}},
                  {"layout"},
                  Phase::geometry,
                  run_windows});
  rows.push_back({"layout_offsets",
                  1,
                  {layout},
                  {},
                  {"array"},
                  Phase::geometry,
                  [](const Call& call) -> Results {
                    return {call.object<Layout>("layout", "layout")->offsets()};
                  }});
  rows.push_back({"layout_positions",
                  1,
                  {layout},
                  {},
                  {"array"},
                  Phase::geometry,
                  [](const Call& call) -> Results {
                    return {call.object<Layout>("layout", "layout")->positions()};
                  }});
  rows.push_back({"to_slots",
                  1,
                  {{"feats", "array"}, layout},
                  {{"parts", Type::integer, false, -1, 1, 64}},
                  {"array*"},
                  Phase::features,
                  run_to_slots});
  rows.push_back({"to_rows",
                  1,
                  {{"feats", "array"}, layout},
                  {},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {to_rows(call.array("feats"), call.object<Layout>("layout", "layout"))};
                  }});
}

void add_pooling(std::vector<Operation>& rows) {
  const Operand pooling{"pooling", "pooling"};
  rows.push_back(
      {"grid_pooling",
       1,
       {{"x", "sparse"}},
       {{"stride", Type::integer, false, -1, 1}, {"order", Type::text}},
       {"pooling"},
       Phase::geometry,
       [](const Call& call) -> Results {
         return {object_value("pooling", grid_pooling(call.sparse("x"), call.integer("stride"),
                                                      parse_curve(call.text("order"), "Program")))};
       }});
  rows.push_back({"grid_pool",
                  1,
                  {{"x", "sparse"}, pooling},
                  {{"mode", Type::text}},
                  {"sparse"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {grid_pool(call.sparse("x"), call.object<Pooling>("pooling", "pooling"),
                                      parse_reduction(call.text("mode"), "grid_pool", "mode"))};
                  }});
  rows.push_back(
      {"grid_unpool",
       1,
       {{"feats", "array"}, pooling},
       {},
       {"array"},
       Phase::features,
       [](const Call& call) -> Results {
         return {grid_unpool(call.array("feats"), call.object<Pooling>("pooling", "pooling"))};
       }});
}

void add_attention(std::vector<Operation>& rows) {
  rows.push_back(
      {"position_bias",
       1,
       {{"table", "array"}, {"q_positions", "array"}, {"k_positions", "array", Form::optional}},
       {{"bounds", Type::integers}, {"joint", Type::flag}},
       {"bias"},
       Phase::features,
       [](const Call& call) -> Results {
         return {object_value("bias", PositionBias(call.array("table"), call.array("q_positions"),
                                                   call.optional_array("k_positions"),
                                                   call.integers("bounds"), call.flag("joint")))};
       }});
  rows.push_back({"attention",
                  1,
                  {{"q", "array"},
                   {"k", "array"},
                   {"v", "array"},
                   {"offsets", "array"},
                   {"k_offsets", "array", Form::optional},
                   {"bias", "array|bias", Form::optional},
                   {"mask", "array", Form::optional}},
                  {{"scale", Type::number, true}, {"causal", Type::flag}},
                  {"array"},
                  Phase::features,
                  run_attention});
  rows.push_back({"rotary",
                  1,
                  {{"x", "array"}, {"positions", "array"}},
                  {{"base", Type::number}},
                  {"array"},
                  Phase::features,
                  [](const Call& call) -> Results {
                    return {rotary(call.array("x"), call.array("positions"), call.number("base"))};
                  }});
}

}  // namespace

std::vector<Operation> layout_operations() {
  std::vector<Operation> rows;
  add_layouts(rows);
  add_pooling(rows);
  add_attention(rows);
  return rows;
}

}  // namespace lattice::program

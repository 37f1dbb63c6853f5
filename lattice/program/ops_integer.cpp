// Layers in exact integers in programs; docs/ops/integer.md has the formulas. integer_kernel
// depends on tensors of the file alone, so that it runs once, when the program loads: there the
// lane rule and the bound of the sums are proven again, and a file that breaks them is refused.
#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/ops/integer.h"
#include "lattice/ops/reduce_rows.h"
#include "lattice/program/ops_common.h"

namespace lattice::program {

namespace {

constexpr const char* kKernelKind = "integer_kernel";
constexpr Operand kKernel{"kernel", kKernelKind};

mx::Dtype format_of(const Call& call, const char* attribute) {
  for (const mx::Dtype dtype : {mx::uint8, mx::int8, mx::int16, mx::float32})
    if (call.text(attribute) == graph::dtype_name(dtype)) return dtype;
  throw Error(ErrorCode::version,
              "[Program] " + call.place() + ": unknown format \"" + call.text(attribute) + "\"",
              "integer_kernel", attribute);
}

Reduction mode_of(const Call& call) {
  return parse_reduction(call.text("mode"), call.node().operation->name, "mode");
}

Results run_kernel(const Call& call) {
  IntegerParts parts{.weight = call.array("weight"),
                     .bias = call.array("bias"),
                     .scale = call.array("scale"),
                     .factor = call.optional_array("factor"),
                     .input = format_of(call, "input"),
                     .output = format_of(call, "output"),
                     .relu = call.flag("relu"),
                     .table = call.optional_array("table")};
  if (call.has("residual")) parts.residual = format_of(call, "residual");
  return {object_value(kKernelKind, IntegerKernel(std::move(parts), call.place()))};
}

Results run_conv(const Call& call) {
  for (const RelationKind kind :
       {RelationKind::forward, RelationKind::submanifold, RelationKind::transposed,
        RelationKind::generative, RelationKind::reached, RelationKind::reached_transposed})
    if (call.text("kind") == kind_name(kind))
      return {integer_conv(
          kind, call.sparse_list("x"), call.object<IntegerKernel>("kernel", kKernelKind),
          {kernel_of(call), target_of(call, "coordinates"), 1}, call.optional_sparse("residual"))};
  throw Error(ErrorCode::version,
              "[Program] " + call.place() + ": unknown kind \"" + call.text("kind") + "\"",
              "integer_conv", "kind");
}

const Operand kFeats{"feats", "array"}, kX{"x", "sparse"};
const Attribute kMode{"mode", Type::text}, kScale{"scale", Type::number},
    kFormat{"format", Type::text}, kOutput{"output", Type::text};

float real(const Call& call, const char* name) { return static_cast<float>(call.number(name)); }

void add(std::vector<Operation>& rows, const char* name, const std::vector<Operand>& operands,
         const std::vector<Attribute>& attributes, const char* result,
         Results (*run)(const Call&)) {
  rows.push_back({name, 1, operands, attributes, {result}, Phase::features, run});
}

void add_layers(std::vector<Operation>& rows) {
  add(rows, "integer_kernel",
      {{"weight", "array"},
       {"bias", "array"},
       {"scale", "array"},
       {"factor", "array", Form::optional},
       {"table", "array", Form::optional}},
      {{"input", Type::text}, kOutput, {"residual", Type::text, true}, {"relu", Type::flag}},
      kKernelKind, run_kernel);
  add(rows, "integer_conv",
      {{"x", "sparse", Form::list},
       kKernel,
       {"residual", "sparse", Form::optional},
       {"coordinates", "sparse|array", Form::optional}},
      {{"kind", Type::text}, kKernelSize, kStride, kPadding, kDilation}, "sparse", run_conv);
  add(rows, "integer_linear", {{"x", "array"}, kKernel}, {}, "array",
      [](const Call& call) -> Results {
        return {integer_linear(call.array("x"), call.object<IntegerKernel>("kernel", kKernelKind))};
      });
}

void add_features(std::vector<Operation>& rows) {
  add(rows, "quantize_features", {kFeats, {"inverse", "array"}}, {kFormat}, "array",
      [](const Call& call) -> Results {
        return {quantize_features(call.array("feats"), call.array("inverse"),
                                  format_of(call, "format"))};
      });
  add(rows, "dequantize_features", {kFeats}, {{"step", Type::number}, kFormat}, "array",
      [](const Call& call) -> Results {
        return {dequantize_features(call.array("feats"), real(call, "step"),
                                    format_of(call, "format"))};
      });
  add(rows, "integer_pool", {kX}, {kMode, kKernelSize, kStride, kPadding, kDilation, kScale},
      "sparse", [](const Call& call) -> Results {
        return {
            integer_pool(call.sparse("x"), mode_of(call), kernel_of(call), real(call, "scale"))};
      });
  add(rows, "integer_global_pool", {kX}, {kMode, kScale, kOutput}, "array",
      [](const Call& call) -> Results {
        return {integer_global_pool(call.sparse("x"), mode_of(call), real(call, "scale"),
                                    format_of(call, "output"))};
      });
}

}  // namespace

std::vector<Operation> integer_operations() {
  std::vector<Operation> rows;
  add_layers(rows);
  add_features(rows);
  return rows;
}

}  // namespace lattice::program

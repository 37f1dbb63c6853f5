#include "lattice/program/ops_common.h"

#include <cstring>

#include "lattice/core/errors.h"

namespace lattice::program {

namespace {

Triple triple_or(const Call& call, const char* name, const Triple& otherwise) {
  for (const Attribute& attribute : call.node().operation->attributes)
    if (std::strcmp(attribute.name, name) == 0) return call.triple(name);
  return otherwise;
}

[[noreturn]] void refuse_word(const Call& call, const char* attribute, const std::string& found) {
  throw Error(ErrorCode::version,
              "[Program] " + call.place() + ": unknown " + attribute + " \"" + found + "\"",
              call.node().operation->name, attribute);
}

}  // namespace

KernelSpec kernel_of(const Call& call) {
  const Triple size = call.triple("kernel_size");
  if (size[0] * size[1] * size[2] > (1 << 15))
    throw Error(ErrorCode::limit,
                "[Program] " + call.place() + ": kernel_size must have at most 32768 offsets",
                call.node().operation->name, "kernel_size");
  return {size, triple_or(call, "stride", {1, 1, 1}), triple_or(call, "padding", {0, 0, 0}),
          triple_or(call, "dilation", {1, 1, 1})};
}

KernelSpec reached_kernel_of(const Call& call) {
  KernelSpec spec = kernel_of(call);
  const std::string& order = call.text("order");
  if (order != "sorted" && order != "spconv") refuse_word(call, "order", order);
  spec.order = order == "spconv" ? RowOrder::taps : RowOrder::sorted;
  if (call.has("bounds")) {
    const std::vector<int64_t>& b = call.integers("bounds");
    spec.bounds = Bounds{{b[0], b[1], b[2]}, {b[3], b[4], b[5]}};
  }
  return spec;
}

Support support_of(const Call& call) {
  const std::string& support = call.text("support");
  if (support != "floor" && support != "reached") refuse_word(call, "support", support);
  return support == "reached" ? Support::reached : Support::floored;
}

std::optional<TargetCoords> target_of(const Call& call, const char* operand) {
  if (!call.given(operand)) return std::nullopt;
  if (const auto* tensor = std::get_if<SparseTensor>(&call.value(operand))) return *tensor;
  return call.array(operand);
}

}  // namespace lattice::program

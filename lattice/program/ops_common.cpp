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

std::optional<TargetCoords> target_of(const Call& call, const char* operand) {
  if (!call.given(operand)) return std::nullopt;
  if (const auto* tensor = std::get_if<SparseTensor>(&call.value(operand))) return *tensor;
  return call.array(operand);
}

}  // namespace lattice::program

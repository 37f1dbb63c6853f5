#include "lattice/core/kernel_spec.h"

#include <limits>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/geometry/relations.h"

namespace lattice {
namespace {

void check(const char* name, const Triple& t, int64_t lowest) {
  for (int64_t v : t)
    if (v < lowest || v > std::numeric_limits<int32_t>::max())
      fail("KernelSpec", std::string(name) + " must be " + std::to_string(lowest) +
                             "..2147483647 on each axis, got " + triple_text(t));
}

}  // namespace

std::string triple_text(const Triple& t) {
  std::string text = "(";
  for (size_t a = 0; a < 3; ++a) text.append(a ? ", " : "").append(std::to_string(t[a]));
  return text.append(")");
}

std::string bounds_text(const Bounds& b) {
  return triple_text(b.low) + " .. " + triple_text(b.high);
}

KernelSpec::KernelSpec(Triple size_, Triple stride_, Triple padding_, Triple dilation_)
    : size(size_), stride(stride_), padding(padding_), dilation(dilation_) {
  check("kernel_size", size, 1);
  check("stride", stride, 1);
  check("padding", padding, -std::numeric_limits<int32_t>::max());  // negative: a shift upward
  check("dilation", dilation, 1);
  if (size[0] > kMaxKernelVolume || size[1] > kMaxKernelVolume / size[0] ||
      size[2] > kMaxKernelVolume / (size[0] * size[1]))
    fail("KernelSpec", "kernel_size " + triple_text(size) + " has more than " +
                           std::to_string(kMaxKernelVolume) + " offsets");
}

cpu::Kernel KernelSpec::kernel(bool centered) const {
  return {size, stride, padding, dilation, centered};
}

bool KernelSpec::is_pointwise() const {
  return volume() == 1 && stride == Triple{1, 1, 1} && padding == Triple{0, 0, 0} &&
         dilation == Triple{1, 1, 1};
}

bool KernelSpec::is_centered_submanifold() const { return kernel(true).symmetric(); }

std::string KernelSpec::text() const {
  std::string words = "size=" + triple_text(size) + ", stride=" + triple_text(stride) +
                      ", padding=" + triple_text(padding) + ", dilation=" + triple_text(dilation);
  if (bounds) words += ", bounds=" + bounds_text(*bounds);
  if (order == RowOrder::taps) words += ", order=spconv";
  return words;
}

std::vector<Triple> kernel_offsets(const Triple& size, const Triple& dilation, bool centered) {
  const KernelSpec spec(size, {1, 1, 1}, {0, 0, 0}, dilation);
  const cpu::Kernel kernel = spec.kernel(centered);
  std::vector<Triple> offsets;
  offsets.reserve(static_cast<size_t>(kernel.volume()));
  for (int64_t k = 0; k < kernel.volume(); ++k) offsets.push_back(kernel.offset(k));
  return offsets;
}

}  // namespace lattice

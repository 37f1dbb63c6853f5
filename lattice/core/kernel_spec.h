// Size, stride, padding and dilation of a kernel, checked.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "lattice/kernels/cpu/geometry/relations.h"

namespace lattice {

using cpu::Triple;

inline constexpr int64_t kMaxKernelVolume = int64_t{1} << 20;

// Sizes, strides and dilations are in 1..2^31-1, paddings in -2^31+1..2^31-1, and size.x * size.y *
// size.z <= 2^20; anything else throws std::invalid_argument that names the argument.
struct KernelSpec {
  Triple size{3, 3, 3};
  Triple stride{1, 1, 1};
  Triple padding{0, 0, 0};
  Triple dilation{1, 1, 1};

  KernelSpec() = default;
  KernelSpec(Triple size, Triple stride, Triple padding, Triple dilation);

  int64_t volume() const { return size[0] * size[1] * size[2]; }
  // 1x1x1, stride 1, no padding, dilation 1.
  bool is_pointwise() const;
  // Odd sizes, stride 1, no padding.
  bool is_centered_submanifold() const;
  cpu::Kernel kernel(bool centered) const { return {size, stride, padding, dilation, centered}; }
  std::string text() const;

  bool operator==(const KernelSpec&) const = default;
  auto operator<=>(const KernelSpec&) const = default;
};

std::string triple_text(const Triple& t);

// Offsets in id order, k = (ix * Ky + iy) * Kz + iz. Centered: an odd size is centered on 0;
// otherwise 0..size-1. Times dilation.
std::vector<Triple> kernel_offsets(const Triple& size, const Triple& dilation,
                                   bool centered = true);

}  // namespace lattice

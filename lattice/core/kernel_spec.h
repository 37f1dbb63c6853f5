/// @file
/// Size, stride, padding and dilation of a kernel, checked.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "lattice/core/names.h"

namespace lattice {

/// Cells of the largest kernel.
inline constexpr int64_t kMaxKernelVolume = int64_t{1} << 20;

/// Sizes, strides and dilations are in 1..2^31-1, paddings in -2^31+1..2^31-1, and size.x * size.y
/// * size.z <= 2^20; anything else throws std::invalid_argument that names the argument.
struct LATTICE_API KernelSpec {
  Triple size{3, 3, 3};                         ///< cells on each axis
  Triple stride{1, 1, 1};                       ///< steps between outputs
  Triple padding{0, 0, 0};                      ///< what is subtracted from each offset
  Triple dilation{1, 1, 1};                     ///< steps between the cells of the kernel
  std::optional<Bounds> bounds = std::nullopt;  ///< of the input; only the reached kinds read it
  RowOrder order = RowOrder::sorted;            ///< of the output; only the reached kinds read it

  /// 3 x 3 x 3, stride 1.
  KernelSpec() = default;
  /// Checks all fields. Throws std::invalid_argument.
  KernelSpec(Triple size, Triple stride = {1, 1, 1}, Triple padding = {0, 0, 0},
             Triple dilation = {1, 1, 1});

  /// Cells of the kernel.
  int64_t volume() const { return size[0] * size[1] * size[2]; }
  /// 1x1x1, stride 1, no padding, dilation 1.
  bool is_pointwise() const;
  /// Odd sizes, stride 1, no padding.
  bool is_centered_submanifold() const;
  /// @cond internal
  cpu::Kernel kernel(bool centered) const;
  /// @endcond
  /// A description in one line.
  std::string text() const;

  /// Whether all fields are equal.
  bool operator==(const KernelSpec&) const = default;
  /// The order of a map: field by field.
  auto operator<=>(const KernelSpec&) const = default;
};

/// "(1, 2, 3)".
LATTICE_API std::string triple_text(const Triple& t);
/// "(0, 0, 0) .. (41, 1600, 1408)".
LATTICE_API std::string bounds_text(const Bounds& b);

/// Offsets in id order, k = (ix * Ky + iy) * Kz + iz. Centered: an odd size is centered on 0;
/// otherwise 0..size-1. Times dilation.
LATTICE_API std::vector<Triple> kernel_offsets(const Triple& size, const Triple& dilation,
                                               bool centered = true);

}  // namespace lattice

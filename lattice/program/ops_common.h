// Functions that several groups of operations share: kernels, targets, names for the table.
#pragma once

#include "lattice/program/operation.h"

namespace lattice::program {

using Form = Operand::Form;
using Type = AttributeType;
using Results = std::vector<ProgramValue>;

// Three integers, of which sizes and strides are at least 1.
constexpr Attribute kKernelSize{"kernel_size", Type::integers, false, 3, 1, 1 << 10};
constexpr Attribute kStride{"stride", Type::integers, false, 3, 1};
constexpr Attribute kPadding{"padding", Type::integers, false, 3};
constexpr Attribute kDilation{"dilation", Type::integers, false, 3, 1};

// The kernel of a node from those of the four that it has. Throws Error above 32,768 offsets.
KernelSpec kernel_of(const Call& call);
// The same with `bounds` and `order` of a reached support, and whether it is one.
KernelSpec reached_kernel_of(const Call& call);
Support support_of(const Call& call);
// The attributes that version 2 of convolutions and pools has besides their sizes.
constexpr Attribute kSupport{"support", Type::text}, kOrder{"order", Type::text},
    kBounds{"bounds", Type::integers, true, 6};
// Where the output lies, if the operand is given: a sparse tensor, or coordinates (N, 4).
std::optional<TargetCoords> target_of(const Call& call, const char* operand);

}  // namespace lattice::program

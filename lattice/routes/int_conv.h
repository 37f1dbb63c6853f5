// Convolutions in exact integers: the question, and the functions that launch the answer.
#pragma once

#include <optional>
#include <string>

#include "lattice/core/integer_kernel.h"
#include "lattice/core/relation.h"
#include "lattice/kernels/cpu/features/int_list.h"
#include "lattice/routes/decide.h"

namespace lattice::routes {

struct IntConvAsked {
  Relation::Ptr relation;
  IntegerKernel kernel;
  mx::array x;                             // (n_in, columns) of the kernel's input
  std::optional<mx::array> more = {};      // the columns behind those of x
  std::optional<mx::array> residual = {};  // (n_out, C_out) of the kernel's residual
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};

const Table<IntConvAsked, mx::array>& int_conv_rows();

mx::array int_conv_tiles(const IntConvAsked& asked, const Route& route, cpu::IntDot dot);
mx::array int_conv_reference(const IntConvAsked& asked, const Route& route);

}  // namespace lattice::routes

// Arguments that are one integer or three, and lists of integers. A float, a bool or another length
// is an error that names the operation and the argument.
#pragma once

#include <array>
#include <optional>
#include <vector>

#include "bind.h"
#include "lattice/core/kernel_spec.h"
#include "lattice/ops/relations.h"

// One integer: int, or a NumPy or MLX integer scalar. Throws lattice::TypeError,
// std::invalid_argument when it leaves int64.
int64_t integer(nb::handle value, const char* operation, const char* argument);
// A sequence or array of integers.
std::vector<int64_t> integers(nb::handle value, const char* operation, const char* argument);
// An integer that has an older name, `<argument>_capacity`: whichever is given; both must agree.
nb::object given_once(nb::handle value, nb::handle older, const char* operation,
                      const char* argument);
// One integer, repeated, or three.
lattice::Triple triple(nb::handle value, const char* operation, const char* argument);
// One number as float32; a bool or a string is an error.
float number(nb::handle value, const char* operation, const char* argument);
// One number, repeated, or three; as float32. A bool, a string or another length is an error.
std::array<float, 3> floats3(nb::handle value, const char* operation, const char* argument);
// An MLX array as it is; a NumPy array or nested lists of numbers become one.
mlx::core::array array(nb::handle value, const char* operation, const char* argument);
// An argument that `array` makes; constructors take it, because calls of a class cannot be wrapped
// in Python as functions are.
struct Given {
  std::optional<mlx::core::array> value;
  const mlx::core::array& operator*() const { return *value; }
};
nb::tuple to_python(const lattice::Triple& t);

// From the four arguments of a kernel. `size` may itself be a KernelSpec; then the others are not
// read.
lattice::KernelSpec kernel_spec(const char* operation, nb::handle size, nb::handle stride,
                                nb::handle padding, nb::handle dilation);

// Output coordinates: None, a SparseTensor, a CoordinateMapKey or an array.
std::optional<lattice::TargetCoords> target_coords(nb::handle value, const char* operation,
                                                   const char* argument);

template <>
struct nb::detail::type_caster<Given> {
  NB_TYPE_CASTER(Given, const_name("mlx.core.array"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept {
    try {
      value.value = ::array(source, "", "");
      return true;
    } catch (const std::exception&) {  // the call is refused with the types that are expected
      return false;
    }
  }
};

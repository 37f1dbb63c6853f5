// Python objects of arrays. MLX makes a new object for every array that C++ returns; programs that
// compare `x.coords is coords` get the object that they gave, as long as it lives.
#pragma once

#include "arguments.h"
#include "lattice/core/coordinate_set.h"

// Keeps a weak reference to an object of MLX's array; others are ignored.
void remember(nb::handle object);
// For signatures.
using ArrayObject = nb::typed<nb::object, mlx::core::array>;

// The object that was remembered for this array and still holds it; else a new one.
nb::object remembered(const mlx::core::array& a);
// The same for the array of a coordinate set.
nb::object remembered(const lattice::CoordinateSet& set);
// A private copy of the values, so that writing to it reaches no kernel. It is one object while it
// lives and nobody wrote to it.
nb::object one_copy(const mlx::core::array& a);

// An array whose object is remembered.
struct Given : mlx::core::array {};
template <>
struct Argument<Given> {
  static constexpr auto Name = nb::detail::const_name("ArrayLike");
  static Given from(nb::handle value, At at) {
    Given made{array(value, at)};
    remember(value);
    return made;
  }
};

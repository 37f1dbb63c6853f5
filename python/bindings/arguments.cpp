#include "arguments.h"

#include <nanobind/stl/string.h>

#include <stdexcept>
#include <string>

#include "lattice/core/errors.h"

namespace {

std::string head(const char* operation, const char* argument) {
  return "[" + std::string(operation) + "] " + argument + " must ";
}

[[noreturn]] void wrong_type(const char* operation, const char* argument, const char* expected,
                             nb::handle found) {
  throw lattice::TypeError(head(operation, argument) + "be " + expected + ", found " +
                           nb::cast<std::string>(nb::repr(found)) + " of type " +
                           nb::cast<std::string>(nb::str(found.type().attr("__name__"))));
}

// Arrays and scalars of NumPy and MLX as plain Python values; anything else as it is.
nb::object plain(nb::handle value) {
  return nb::hasattr(value, "tolist") ? nb::object(value.attr("tolist")()) : nb::borrow(value);
}

bool is_sequence(nb::handle value) {
  return PySequence_Check(value.ptr()) && !nb::isinstance<nb::str>(value) &&
         !nb::isinstance<nb::bytes>(value);
}

}  // namespace

int64_t integer(nb::handle value, const char* operation, const char* argument) {
  const nb::object number = plain(value);
  if (nb::isinstance<nb::bool_>(number) || !PyIndex_Check(number.ptr()))
    wrong_type(operation, argument, "an integer", value);
  const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
  if (!index.is_valid()) {
    PyErr_Clear();
    wrong_type(operation, argument, "an integer", value);
  }
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow)
    throw std::invalid_argument(head(operation, argument) + "fit 64 bits, found " +
                                nb::cast<std::string>(nb::repr(index)));
  return result;
}

mlx::core::array array(nb::handle value, const char* operation, const char* argument) {
  mlx::core::array* held = nullptr;
  if (nb::try_cast<mlx::core::array*>(value, held, false) && held) return *held;
  const bool numpy = nb::hasattr(value, "__array__") || nb::hasattr(value, "__array_interface__");
  if (!numpy && !nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value))
    wrong_type(operation, argument, "an mx.array, a NumPy array or nested lists", value);
  try {
    nb::object given = nb::borrow(value);
    if (nb::hasattr(value, "flags") && nb::hasattr(value, "astype"))
      // MLX takes neither another order of bytes nor a reversed view.
      given = value.attr("astype")(value.attr("dtype").attr("newbyteorder")("="),
                                   nb::arg("order") = "C", nb::arg("copy") = false);
    return nb::cast<mlx::core::array>(nb::module_::import_("mlx.core").attr("array")(given));
  } catch (nb::python_error& error) {
    throw lattice::TypeError(head(operation, argument) +
                             "be numbers in rows of one length; MLX says: " +
                             nb::cast<std::string>(nb::str(error.value())));
  }
}

std::vector<int64_t> integers(nb::handle value, const char* operation, const char* argument) {
  const nb::object sequence = plain(value);
  if (!is_sequence(sequence)) wrong_type(operation, argument, "a sequence of integers", value);
  std::vector<int64_t> out;
  for (nb::handle item : sequence) out.push_back(integer(item, operation, argument));
  return out;
}

nb::object given_once(nb::handle value, nb::handle older, const char* operation,
                      const char* argument) {
  if (value.is_none()) return nb::borrow(older);
  const std::string older_name = std::string(argument) + "_capacity";
  if (!older.is_none() &&
      integer(value, operation, argument) != integer(older, operation, older_name.c_str()))
    throw std::invalid_argument(head(operation, argument) + "equal " + older_name +
                                ", its older name; give one of them");
  return nb::borrow(value);
}

lattice::Triple triple(nb::handle value, const char* operation, const char* argument) {
  const nb::object given = plain(value);
  if (!is_sequence(given)) {
    if (nb::isinstance<nb::bool_>(given) || !PyIndex_Check(given.ptr()))
      wrong_type(operation, argument, "an integer or three integers", value);
    const int64_t all = integer(given, operation, argument);
    return {all, all, all};
  }
  const std::vector<int64_t> values = integers(given, operation, argument);
  if (values.size() != 3)
    throw std::invalid_argument(head(operation, argument) +
                                "be an integer or three integers, found " +
                                std::to_string(values.size()) + " of them");
  return {values[0], values[1], values[2]};
}

float number(nb::handle value, const char* operation, const char* argument) {
  const nb::object given = plain(value);
  if (nb::isinstance<nb::bool_>(given) ||
      !(nb::isinstance<nb::float_>(given) || PyIndex_Check(given.ptr())))
    wrong_type(operation, argument, "a number", value);
  const double result = PyFloat_AsDouble(given.ptr());
  if (result == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    wrong_type(operation, argument, "a number that fits float64", value);
  }
  return static_cast<float>(result);
}

std::array<float, 3> floats3(nb::handle value, const char* operation, const char* argument) {
  const nb::object given = plain(value);
  if (!is_sequence(given)) {
    const float all = number(given, operation, argument);
    return {all, all, all};
  }
  if (nb::len(given) != 3)
    throw std::invalid_argument(head(operation, argument) + "be a number or three numbers, found " +
                                std::to_string(nb::len(given)) + " of them");
  return {number(given[0], operation, argument), number(given[1], operation, argument),
          number(given[2], operation, argument)};
}

nb::tuple to_python(const lattice::Triple& t) { return nb::make_tuple(t[0], t[1], t[2]); }

lattice::KernelSpec kernel_spec(const char* operation, nb::handle size, nb::handle stride,
                                nb::handle padding, nb::handle dilation) {
  if (nb::isinstance<lattice::KernelSpec>(size)) return nb::cast<lattice::KernelSpec>(size);
  const lattice::Triple sizes = triple(size, operation, "kernel_size"),
                        strides = triple(stride, operation, "stride");
  const lattice::Triple paddings = triple(padding, operation, "padding"),
                        dilations = triple(dilation, operation, "dilation");
  try {
    return {sizes, strides, paddings, dilations};
  } catch (const std::invalid_argument& e) {  // "[KernelSpec] ...": the user called `operation`
    const std::string text = e.what();
    throw std::invalid_argument("[" + std::string(operation) + text.substr(text.find(']')));
  }
}

std::optional<lattice::TargetCoords> target_coords(nb::handle value, const char* operation,
                                                   const char* argument) {
  if (value.is_none()) return std::nullopt;
  if (nb::isinstance<lattice::SparseTensor>(value)) return nb::cast<lattice::SparseTensor>(value);
  if (nb::isinstance<lattice::CoordinateMapKey>(value))
    return nb::cast<lattice::CoordinateMapKey>(value);
  if (nb::isinstance<mlx::core::array>(value)) return nb::cast<mlx::core::array>(value);
  if (nb::isinstance<lattice::CoordinateSet>(value))
    return nb::cast<const lattice::CoordinateSet&>(value).array();
  throw lattice::TypeError(head(operation, argument) +
                           "be None, a SparseTensor, a CoordinateMapKey or an array, found " +
                           std::string(nb::type_name(value.type()).c_str()));
}

#include "arguments.h"

#include <stdexcept>

#include "lattice/core/errors.h"

namespace mx = mlx::core;

namespace {

std::string head(At at) { return "[" + std::string(at.operation) + "] " + at.argument + " must "; }

// The type of a value as a user writes it: numpy.ndarray, mlx.core.array, SparseTensor.
std::string kind_of(nb::handle value) {
  const auto name = nb::cast<std::string>(value.type().attr("__name__"));
  const auto module = nb::cast<std::string>(nb::str(value.type().attr("__module__")));
  return module == "numpy" || module == "mlx.core" ? module + "." + name : name;
}

[[noreturn]] void wrong_value(At at, const char* expected, nb::handle found) {
  throw lattice::TypeError(head(at) + "be " + expected + ", found " +
                           nb::cast<std::string>(nb::repr(found)) + " of type " +
                           nb::cast<std::string>(nb::str(found.type().attr("__name__"))));
}

// Arrays and scalars of NumPy and MLX as plain Python values; anything else as it is.
nb::object plain(nb::handle value) {
  if (PyFloat_CheckExact(value.ptr()) || PyTuple_CheckExact(value.ptr())) return nb::borrow(value);
  return nb::hasattr(value, "tolist") ? nb::object(value.attr("tolist")()) : nb::borrow(value);
}

bool is_sequence(nb::handle value) {
  return PySequence_Check(value.ptr()) && !nb::isinstance<nb::str>(value) &&
         !nb::isinstance<nb::bytes>(value);
}

bool is_list(nb::handle value) {
  return nb::isinstance<nb::list>(value) || nb::isinstance<nb::tuple>(value);
}

bool is_numpy(nb::handle value) {
  return nb::hasattr(value, "__array__") || nb::hasattr(value, "__array_interface__");
}

// Whether a value is an array or becomes one.
bool is_array(nb::handle value) {
  return instance<mx::array>(value) || instance<lattice::CoordinateSet>(value) || is_list(value) ||
         is_numpy(value);
}

int64_t integer_of(nb::handle index, At at) {
  int overflow = 0;
  const int64_t result = PyLong_AsLongLongAndOverflow(index.ptr(), &overflow);
  if (overflow)
    throw std::invalid_argument(head(at) + "fit 64 bits, found " +
                                nb::cast<std::string>(nb::repr(index)));
  return result;
}

}  // namespace

void wrong_kind(nb::handle found, At at, std::string_view expected) {
  std::string cure;
  if (is_array(found) && expected.find("SparseTensor") != std::string_view::npos)
    cure = "; make one with SparseTensor(coords, feats)";
  else if (nb::isinstance<lattice::SparseTensor>(found))
    cure = "; give its features, `" + std::string(at.argument) + ".feats`";
  throw lattice::TypeError("[" + std::string(at.operation) + "] " + at.argument + ": found " +
                           kind_of(found) + ", expected " + std::string(expected) + cure + ".");
}

int64_t integer(nb::handle value, At at) {
  if (!PyLong_CheckExact(value.ptr())) {
    const nb::object number = plain(value);
    if (nb::isinstance<nb::bool_>(number) || !PyIndex_Check(number.ptr()))
      wrong_value(at, "an integer", value);
    const nb::object index = nb::steal(PyNumber_Index(number.ptr()));
    if (index.is_valid()) return integer_of(index, at);
    PyErr_Clear();
    wrong_value(at, "an integer", value);
  }
  return integer_of(value, at);
}

mx::array array(nb::handle value, At at) {
  if (const auto* held = instance<mx::array>(value)) return *held;
  if (const auto* set = instance<lattice::CoordinateSet>(value)) return set->array();
  if (!is_list(value) && !is_numpy(value))
    wrong_kind(value, at, "an mx.array, a NumPy array or nested lists");
  try {
    nb::object given = nb::borrow(value);
    if (nb::hasattr(value, "flags") && nb::hasattr(value, "astype"))
      // MLX takes neither another order of bytes nor a reversed view.
      given = value.attr("astype")(value.attr("dtype").attr("newbyteorder")("="),
                                   nb::arg("order") = "C", nb::arg("copy") = false);
    return nb::cast<mx::array>(nb::module_::import_("mlx.core").attr("array")(given));
  } catch (nb::python_error& error) {
    throw lattice::TypeError(head(at) + "be numbers in rows of one length; MLX says: " +
                             nb::cast<std::string>(nb::str(error.value())));
  }
}

bool is_list_of_arrays(nb::handle value) {
  if (!is_list(value)) return false;
  for (nb::handle item : nb::borrow<nb::sequence>(value))
    if (nb::hasattr(item, "shape")) return true;
  return false;
}

std::vector<int64_t> integers(nb::handle value, At at) {
  const nb::object sequence = plain(value);
  if (!is_sequence(sequence)) wrong_value(at, "a sequence of integers", value);
  std::vector<int64_t> out;
  for (nb::handle item : sequence) out.push_back(integer(item, at));
  return out;
}

int64_t given_once(const std::optional<int64_t>& value, const std::optional<int64_t>& older,
                   At at) {
  const std::string older_name = std::string(at.argument) + "_capacity";
  if (!value && !older) throw lattice::TypeError(head(at) + "be an integer, found None");
  if (value && older && *value != *older)
    throw std::invalid_argument(head(at) + "equal " + older_name +
                                ", its older name; give one of them");
  return value ? *value : *older;
}

lattice::Triple triple(nb::handle value, At at) {
  if (PyLong_CheckExact(value.ptr())) {
    const int64_t all = integer_of(value, at);
    return {all, all, all};
  }
  const nb::object given = plain(value);
  if (!is_sequence(given)) {
    if (nb::isinstance<nb::bool_>(given) || !PyIndex_Check(given.ptr()))
      wrong_value(at, "an integer or three integers", value);
    const int64_t all = integer(given, at);
    return {all, all, all};
  }
  const std::vector<int64_t> values = integers(given, at);
  if (values.size() != 3)
    throw std::invalid_argument(head(at) + "be an integer or three integers, found " +
                                std::to_string(values.size()) + " of them");
  return {values[0], values[1], values[2]};
}

double number(nb::handle value, At at) {
  const nb::object given = plain(value);
  if (nb::isinstance<nb::bool_>(given) ||
      !(nb::isinstance<nb::float_>(given) || PyIndex_Check(given.ptr())))
    wrong_value(at, "a number", value);
  const double result = PyFloat_AsDouble(given.ptr());
  if (result == -1.0 && PyErr_Occurred()) {
    PyErr_Clear();
    wrong_value(at, "a number that fits float64", value);
  }
  return result;
}

std::array<double, 3> numbers3(nb::handle value, At at) {
  const nb::object given = plain(value);
  if (!is_sequence(given)) {
    const double all = number(given, at);
    return {all, all, all};
  }
  if (nb::len(given) != 3)
    throw std::invalid_argument(head(at) + "be a number or three numbers, found " +
                                std::to_string(nb::len(given)) + " of them");
  return {number(given[0], at), number(given[1], at), number(given[2], at)};
}

IntTuple to_python(const std::vector<int64_t>& values) {
  nb::list out;
  for (int64_t v : values) out.append(v);
  return IntTuple(nb::tuple(out));
}

int64_t row_count(nb::handle self) {
  const auto coords = nb::cast<mx::array>(self.attr("coords"));
  if (coords.ndim() > 0) return coords.shape(0);
  throw std::invalid_argument("[" + kind_of(self) + "] coords must have rows, found one number");
}

int64_t active_row_count(nb::handle self) {
  const int64_t rows = row_count(self);
  if (!nb::hasattr(self, "active_rows")) return rows;
  const auto name = kind_of(self);
  const At at{name.c_str(), "active_rows"};
  const nb::object value = self.attr("active_rows").attr("reshape")(-1).attr("tolist")();
  const std::vector<int64_t> given = integers(value, at);
  if (given.size() != 1 || given[0] < 0 || given[0] > rows)
    throw std::invalid_argument("[" + name + "] active_rows must be in 0.." + std::to_string(rows) +
                                ", found " + nb::cast<std::string>(nb::repr(value)));
  return given[0];
}

lattice::Bounds bounds(nb::handle value, At at) {
  const nb::object given = plain(value);
  if (!is_sequence(given) || nb::len(given) != 2)
    wrong_value(at, "two corners, ((0, 0, 0), (D, H, W))", value);
  const lattice::Bounds made{triple(given[0], at), triple(given[1], at)};
  for (size_t a = 0; a < 3; ++a)
    if (made.low[a] >= made.high[a])
      throw std::invalid_argument(head(at) + "have its first corner below the second, found " +
                                  lattice::bounds_text(made));
  return made;
}

lattice::KernelSpec reached_spec(const char* operation, const KernelSize& size,
                                 const lattice::Triple& stride, const lattice::Triple& padding,
                                 const lattice::Triple& dilation,
                                 const std::optional<lattice::Bounds>& bounds,
                                 std::string_view order) {
  lattice::KernelSpec spec = kernel_spec(operation, size, stride, padding, dilation);
  if (bounds) spec.bounds = bounds;
  if (order == "spconv")
    spec.order = lattice::RowOrder::taps;
  else if (order != "sorted")
    lattice::fail(operation,
                  "order must be \"sorted\" or \"spconv\", got \"" + std::string(order) + "\"");
  return spec;
}

lattice::RelationKind kind_named(const char* operation, std::string_view name) {
  using Kind = lattice::RelationKind;
  for (const Kind kind : {Kind::forward, Kind::submanifold, Kind::transposed, Kind::generative,
                          Kind::reached, Kind::reached_transposed})
    if (name == lattice::kind_name(kind)) return kind;
  lattice::fail(operation,
                "kind must be \"forward\", \"submanifold\", \"transposed\", \"generative\", "
                "\"reached\" or \"reached_transposed\", got \"" +
                    std::string(name) + "\"");
}

lattice::Support support_named(const char* operation, std::string_view name) {
  if (name == "reached") return lattice::Support::reached;
  if (name == "floor") return lattice::Support::floored;
  lattice::fail(operation,
                "support must be \"floor\" or \"reached\", got \"" + std::string(name) + "\"");
}

bool flag(nb::handle value, At at) {
  if (!nb::isinstance<nb::bool_>(value)) wrong_kind(value, at, "bool");
  return value.ptr() == Py_True;
}

std::string_view text(nb::handle value, At at) {
  Py_ssize_t size = 0;
  const char* held =
      nb::isinstance<nb::str>(value) ? PyUnicode_AsUTF8AndSize(value.ptr(), &size) : nullptr;
  if (!held) {
    PyErr_Clear();  // a surrogate, which has no UTF-8
    wrong_kind(value, at, "str");
  }
  return {held, static_cast<size_t>(size)};
}

nb::bytes bytes(nb::handle value, At at) {
  if (!nb::isinstance<nb::bytes>(value)) wrong_kind(value, at, "bytes");
  return nb::borrow<nb::bytes>(value);
}

mx::StreamOrDevice stream(nb::handle value, At at) {
  mx::StreamOrDevice where;
  if (!value.is_none() && !nb::try_cast<mx::StreamOrDevice>(value, where))
    wrong_kind(value, at, "a stream or device of MLX");
  return where;
}

mx::Dtype dtype(nb::handle value, At at) {
  mx::Dtype found = mx::float32;
  if (value.is_none() || !nb::try_cast<mx::Dtype>(value, found))
    wrong_kind(value, at, "a dtype of MLX, such as mx.float16");
  return found;
}

KernelSize kernel_size(nb::handle value, At at) {
  if (PyLong_CheckExact(value.ptr())) return triple(value, at);
  if (const auto* spec = instance<lattice::KernelSpec>(value)) return *spec;
  return triple(value, at);
}

lattice::KernelSpec kernel_spec(const char* operation, const KernelSize& size,
                                const lattice::Triple& stride, const lattice::Triple& padding,
                                const lattice::Triple& dilation) {
  if (const auto* spec = std::get_if<lattice::KernelSpec>(&size)) return *spec;
  try {
    return {std::get<lattice::Triple>(size), stride, padding, dilation};
  } catch (const std::invalid_argument& e) {  // "[KernelSpec] ...": the user called `operation`
    const std::string text = e.what();
    throw std::invalid_argument("[" + std::string(operation) + text.substr(text.find(']')));
  }
}

lattice::TargetCoords target_coords(nb::handle value, At at) {
  if (const auto* tensor = instance<lattice::SparseTensor>(value)) return *tensor;
  if (const auto* key = instance<lattice::CoordinateMapKey>(value)) return *key;
  if (is_array(value)) return array(value, at);
  wrong_kind(value, at, "a SparseTensor, a CoordinateMapKey or an array (N, 4)");
}

lattice::CoordsLike coords_like(nb::handle value, At at) {
  if (const auto* set = instance<lattice::CoordinateSet>(value)) return *set;
  if (const auto* x = instance<lattice::SparseTensor>(value)) return x->coordinate_set();
  return array(value, at);
}

TensorOrArray tensor_or_array(nb::handle value, At at) {
  if (const auto* tensor = instance<lattice::SparseTensor>(value)) return *tensor;
  if (is_array(value)) return array(value, at);
  wrong_kind(value, at, "a SparseTensor or an array");
}

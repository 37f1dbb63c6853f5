// Arguments of the functions that Python calls.
//
//   def(m, "relu", [](const SparseTensor& x, Stream s) {...}, "x"_a, "stream"_a);
//
// binds a function whose parameters have the types that it needs. nanobind hands over the Python
// objects as they were given, and Argument<T>::from makes the values: NumPy arrays and nested lists
// become arrays, one integer becomes three. What does not fit is an error with the names of the
// operation and of the argument, what was found, what is expected, and the cure where there is one.
// In signatures and stubs a parameter has the type Argument<T>::Name.
//
// Defaults and help of an operation stand in its Python function in mlx_lattice/ops; methods and
// constructors have theirs in the binding.
#pragma once

#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include <array>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "bind.h"
#include "lattice/core/kernel_spec.h"
#include "lattice/ops/coords.h"
#include "lattice/ops/relations.h"

// Where a value was given: the operation that the user called, and the argument.
struct At {
  const char* operation;
  const char* argument;
};

// One integer: int, or a NumPy or MLX integer scalar. Throws lattice::TypeError,
// std::invalid_argument when it leaves int64.
int64_t integer(nb::handle value, At at);
// A sequence or array of integers.
std::vector<int64_t> integers(nb::handle value, At at);
// An integer that has an older name, `<argument>_capacity`: whichever is given; both must agree.
int64_t given_once(const std::optional<int64_t>& value, const std::optional<int64_t>& older, At at);
// One integer, repeated, or three.
lattice::Triple triple(nb::handle value, At at);
// One number; a bool or a string is an error.
double number(nb::handle value, At at);
// One number, repeated, or three.
std::array<double, 3> numbers3(nb::handle value, At at);
// An MLX array as it is; a NumPy array, a CoordinateSet or nested lists of numbers become one.
mlx::core::array array(nb::handle value, At at);
// Whether a list holds arrays or lists of lists, so that it is several arrays and not one.
bool is_list_of_arrays(nb::handle value);
inline std::tuple<int64_t, int64_t, int64_t> to_python(const lattice::Triple& t) {
  return {t[0], t[1], t[2]};
}
using IntTuple = nb::typed<nb::tuple, int, nb::ellipsis>;
IntTuple to_python(const std::vector<int64_t>& values);

// Throws lattice::TypeError "[operation] argument: found ..., expected ...", with a cure if a
// sparse tensor or its features were meant.
[[noreturn]] void wrong_kind(nb::handle found, At at, std::string_view expected);

// The size of a kernel, or a whole KernelSpec; then stride, padding and dilation are not read.
using KernelSize = std::variant<lattice::Triple, lattice::KernelSpec>;
// From the four arguments of a kernel.
lattice::KernelSpec kernel_spec(const char* operation, const KernelSize& size,
                                const lattice::Triple& stride, const lattice::Triple& padding,
                                const lattice::Triple& dilation);

// The same with bounds and the order of rows, "sorted" or "spconv".
lattice::KernelSpec reached_spec(const char* operation, const KernelSize& size,
                                 const lattice::Triple& stride, const lattice::Triple& padding,
                                 const lattice::Triple& dilation,
                                 const std::optional<lattice::Bounds>& bounds,
                                 std::string_view order);
// "floor" or "reached".
lattice::Support support_named(const char* operation, std::string_view name);
// The kind of a convolution by its name.
lattice::RelationKind kind_named(const char* operation, std::string_view name);

// The instance of a class of the extension that an object is, or nullptr.
template <typename T>
const T* instance(nb::handle value) {
  T* held = nullptr;
  return nb::try_cast<T*>(value, held, false) ? held : nullptr;
}

// How a parameter of type T is made: by default T is a class of the extension.
template <typename T>
struct Argument {
  static constexpr auto Name = nb::detail::make_caster<T>::Name;
  static const T& from(nb::handle value, At at) {
    if (const T* held = instance<T>(value)) return *held;
    wrong_kind(value, at, nb::type_name(nb::type<T>()).c_str());
  }
};

template <typename T>
struct Argument<std::shared_ptr<T>> {
  static constexpr auto Name = nb::detail::make_caster<T>::Name;
  static std::shared_ptr<T> from(nb::handle value, At at) {
    std::shared_ptr<T> held;
    if (!value.is_none() && nb::try_cast<std::shared_ptr<T>>(value, held, false)) return held;
    wrong_kind(value, at, nb::type_name(nb::type<std::remove_const_t<T>>()).c_str());
  }
};

template <typename T>
struct Argument<std::optional<T>> {
  static constexpr auto Name = Argument<T>::Name;
  static std::optional<T> from(nb::handle value, At at) {
    if (value.is_none()) return std::nullopt;
    return Argument<T>::from(value, at);
  }
};

// A function of the share that is done. Its call takes Python's lock; Ctrl-C ends the work.
template <>
struct Argument<std::function<void(double)>> {
  static constexpr auto Name =
      nb::detail::const_name("collections.abc.Callable[[float], object] | None");
  static std::function<void(double)> from(nb::handle value, At at) {
    if (value.is_none()) return {};
    if (!PyCallable_Check(value.ptr())) wrong_kind(value, at, "a function of one number, or None");
    return [call = nb::borrow<nb::object>(value)](double share) {
      nb::gil_scoped_acquire locked;
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      call(share);
    };
  }
};

template <typename T>
struct Argument<std::vector<T>> {
  static constexpr auto Name = nb::detail::const_name("collections.abc.Sequence[") +
                               Argument<T>::Name + nb::detail::const_name("]");
  static std::vector<T> from(nb::handle value, At at) {
    if (!nb::isinstance<nb::list>(value) && !nb::isinstance<nb::tuple>(value))
      wrong_kind(value, at, "a list with one item for each");
    std::vector<T> made;
    for (nb::handle item : nb::borrow<nb::sequence>(value))
      made.push_back(Argument<T>::from(item, at));
    return made;
  }
};

// The other types: a name for signatures, and how the value is made.
#define LATTICE_ARGUMENT(Type, name, expression)                     \
  template <>                                                        \
  struct Argument<Type> {                                            \
    static constexpr auto Name = nb::detail::const_name(name);       \
    static Type from(nb::handle value, At at) { return expression; } \
  }

lattice::Bounds bounds(nb::handle value, At at);
bool flag(nb::handle value, At at);
std::string_view text(nb::handle value, At at);
nb::bytes bytes(nb::handle value, At at);
mlx::core::StreamOrDevice stream(nb::handle value, At at);
mlx::core::Dtype dtype(nb::handle value, At at);
KernelSize kernel_size(nb::handle value, At at);
lattice::TargetCoords target_coords(nb::handle value, At at);
lattice::CoordsLike coords_like(nb::handle value, At at);

LATTICE_ARGUMENT(bool, "bool", flag(value, at));
LATTICE_ARGUMENT(int64_t, "int", integer(value, at));
LATTICE_ARGUMENT(float, "float", static_cast<float>(number(value, at)));
LATTICE_ARGUMENT(double, "float", number(value, at));
LATTICE_ARGUMENT(std::string_view, "str", text(value, at));
LATTICE_ARGUMENT(std::string, "str", std::string(text(value, at)));
LATTICE_ARGUMENT(nb::bytes, "bytes", bytes(value, at));
LATTICE_ARGUMENT(mlx::core::array, "ArrayLike", array(value, at));
LATTICE_ARGUMENT(mlx::core::StreamOrDevice, "StreamOrDevice", stream(value, at));
LATTICE_ARGUMENT(mlx::core::Dtype, "mlx.core.Dtype", dtype(value, at));
LATTICE_ARGUMENT(lattice::Triple, "Triple", triple(value, at));
LATTICE_ARGUMENT(lattice::Bounds, "Bounds", bounds(value, at));
using Triple3 = std::array<double, 3>;
LATTICE_ARGUMENT(Triple3, "Numbers", numbers3(value, at));
LATTICE_ARGUMENT(std::vector<int64_t>, "ArrayLike", integers(value, at));
LATTICE_ARGUMENT(KernelSize, "Kernel", kernel_size(value, at));
LATTICE_ARGUMENT(lattice::TargetCoords, "Target", target_coords(value, at));
LATTICE_ARGUMENT(lattice::CoordsLike, "ArrayLike", coords_like(value, at));

// A sparse tensor, or an array of its features.
using TensorOrArray = std::variant<lattice::SparseTensor, mlx::core::array>;
TensorOrArray tensor_or_array(nb::handle value, At at);
LATTICE_ARGUMENT(TensorOrArray, "SparseTensor | ArrayLike", tensor_or_array(value, at));

// What nanobind hands over for a parameter of type T: the object itself.
template <typename T>
struct Passed {
  nb::handle object;
};

template <typename T>
struct nb::detail::type_caster<Passed<T>> {
  NB_TYPE_CASTER(Passed<T>, Argument<T>::Name)
  bool from_python(handle source, uint32_t, cleanup_list*) noexcept {
    value.object = source;
    return true;
  }
};
template <typename T>
struct nb::detail::has_arg_defaults<Passed<std::optional<T>>> : std::true_type {};
template <>
struct nb::detail::has_arg_defaults<Passed<mlx::core::StreamOrDevice>> : std::true_type {};

namespace binding {

template <typename A>
using Plain = std::remove_cvref_t<A>;

template <size_t N>
struct Names {
  std::string operation;
  std::array<const char*, N> arguments;
};

// The names of the nb::arg among the extras of a def.
template <size_t N, typename... Extra>
Names<N> names(std::string operation, const Extra&... extra) {
  Names<N> made{std::move(operation), {}};
  size_t i = 0;
  const auto add = [&](const auto& e) {
    if constexpr (nb::detail::arg_traits<Plain<decltype(e)>>::is_arg) made.arguments[i++] = e.name_;
  };
  (add(extra), ...);
  return made;
}

// f(values of the objects), without the GIL if `release`.
template <bool release, typename F, size_t N, typename... A, size_t... I>
decltype(auto) call(const F& f, const Names<N>& names, std::index_sequence<I...>,
                    const Passed<A>&... given) {
  const std::tuple<decltype(Argument<A>::from(given.object, At{}))...> values{
      Argument<A>::from(given.object, At{names.operation.c_str(), names.arguments[I]})...};
  if constexpr (release) {
    Release unlocked;
    return std::apply(f, values);
  } else {
    return std::apply(f, values);
  }
}

template <bool release, typename R, typename... A, typename F, typename... Extra>
auto checked(std::function<R(A...)>*, std::string operation, const F& f, const Extra&... extra) {
  return [f, names = names<sizeof...(A)>(std::move(operation), extra...)](
             Passed<Plain<A>>... given) -> R {
    return call<release>(f, names, std::index_sequence_for<A...>(), given...);
  };
}

// The same for a method, whose object is the first parameter.
template <bool release, typename R, typename Self, typename... A, typename F, typename... Extra>
auto checked_method(std::function<R(Self, A...)>*, std::string operation, const F& f,
                    const Extra&... extra) {
  return [f, names = names<sizeof...(A)>(std::move(operation), extra...)](
             Self self, Passed<Plain<A>>... given) -> R {
    const auto bound = [&](const auto&... values) -> R { return f(self, values...); };
    return call<release>(bound, names, std::index_sequence_for<A...>(), given...);
  };
}

template <bool release, typename T, typename... A, typename F, typename... Extra>
auto checked_init(std::function<T(A...)>*, std::string operation, const F& f,
                  const Extra&... extra) {
  return [f, names = names<sizeof...(A)>(std::move(operation), extra...)](
             T* self, Passed<Plain<A>>... given) {
    new (self) T(call<release>(f, names, std::index_sequence_for<A...>(), given...));
  };
}

template <typename... Extra>
inline constexpr bool kReleases = (std::is_same_v<Extra, Unlocked> || ...);

template <typename F>
using Signature = decltype(std::function(std::declval<F>()))*;

// `call` releases the GIL itself, behind the conversion of the arguments.
template <typename T>
decltype(auto) extra(const T& other) {
  if constexpr (std::is_same_v<T, Unlocked>)
    return nullptr;
  else
    return (other);
}
// Arguments of an operation may be None, so that the error for it names the argument.
template <typename T>
decltype(auto) extra_of_operation(const T& other) {
  using Traits = nb::detail::arg_traits<T>;
  constexpr uint32_t kFlags = Traits::flags | nb::detail::cast_flags::accepts_none;
  if constexpr (Traits::has_default)
    return nb::arg_v_t<kFlags, false>(other, nb::object(other.value));
  else if constexpr (Traits::is_arg)
    return other.none();
  else
    return extra(other);
}

inline std::string method_name(nb::handle kind, const char* name) {
  return std::string(nb::cast<std::string>(kind.attr("__name__"))) + "." + name;
}

}  // namespace binding

// An operation, which a Python function of the same name calls with all arguments.
template <typename F, typename... Extra>
void def(nb::module_& m, const char* name, const F& f, const Extra&... extra) {
  m.def(name,
        binding::checked<binding::kReleases<Extra...>>(binding::Signature<F>(), name, f, extra...),
        binding::extra_of_operation(extra)...);
}

template <typename C, typename F, typename... Extra>
void def_method(C& c, const char* name, const F& f, const Extra&... extra) {
  c.def(name,
        binding::checked_method<binding::kReleases<Extra...>>(
            binding::Signature<F>(), binding::method_name(c, name), f, extra...),
        binding::extra(extra)...);
}

template <typename C, typename F, typename... Extra>
void def_static(C& c, const char* name, const F& f, const Extra&... extra) {
  c.def_static(name,
               binding::checked<binding::kReleases<Extra...>>(
                   binding::Signature<F>(), binding::method_name(c, name), f, extra...),
               binding::extra(extra)...);
}

// A constructor: f makes the value.
template <typename C, typename F, typename... Extra>
void def_init(C& c, const F& f, const Extra&... extra) {
  c.def("__init__",
        binding::checked_init<binding::kReleases<Extra...>>(
            binding::Signature<F>(), nb::cast<std::string>(c.attr("__name__")), f, extra...),
        binding::extra(extra)...);
}

// A constructor of a class that is held by a shared pointer, which f makes.
template <typename C, typename F, typename... Extra>
void def_new(C& c, const F& f, const Extra&... extra) {
  c.def(nb::new_(binding::checked<binding::kReleases<Extra...>>(
            binding::Signature<F>(), nb::cast<std::string>(c.attr("__name__")), f, extra...)),
        binding::extra(extra)...);
}

// Names of the older package: `capacity` and `active_count` of what has coords and active_rows.
// Both are the number of rows, unless a user made the object.
int64_t row_count(nb::handle self);
int64_t active_row_count(nb::handle self);
template <typename C>
void def_row_counts(C& c) {
  c.def_prop_ro("capacity", &row_count, nb::sig("def capacity(self) -> int"),
                "The number of rows of coords.");
  c.def_prop_ro("active_count", &active_row_count, nb::sig("def active_count(self) -> int"),
                "The number of rows that count: active_rows.");
}

#include "columns.h"

#include <nanobind/ndarray.h>

#include <memory>
#include <stdexcept>

using namespace lattice;

namespace {

using Kind = nb::dlpack::dtype_code;
constexpr nb::dlpack::dtype dtype_of(Kind code, uint8_t bits) {
  return {static_cast<uint8_t>(code), bits, 1};
}
// In the order of lattice::Number.
constexpr nb::dlpack::dtype kDtypes[] = {
    dtype_of(Kind::Bool, 8),   dtype_of(Kind::UInt, 8),   dtype_of(Kind::Int, 8),
    dtype_of(Kind::UInt, 16),  dtype_of(Kind::Int, 16),   dtype_of(Kind::UInt, 32),
    dtype_of(Kind::Int, 32),   dtype_of(Kind::UInt, 64),  dtype_of(Kind::Int, 64),
    dtype_of(Kind::Float, 16), dtype_of(Kind::Float, 32), dtype_of(Kind::Float, 64)};

}  // namespace

nb::object numpy_of(const Column& column, bool two_axes) {
  const size_t ndim = two_axes || column.width > 1 ? 2 : 1;
  const size_t shape[2] = {static_cast<size_t>(column.rows), static_cast<size_t>(column.width)};
  const int64_t bytes = number_bytes(column.type);
  const int64_t strides[2] = {column.row_bytes / bytes, column.value_bytes / bytes};
  auto* owner = new std::shared_ptr<const void>(column.owner);
  const nb::capsule keep(
      owner, [](void* p) noexcept { delete static_cast<std::shared_ptr<const void>*>(p); });
  return nb::cast(nb::ndarray<nb::numpy>(const_cast<void*>(column.data), ndim, shape, keep, strides,
                                         kDtypes[static_cast<int>(column.type)]));
}

Column column_of(nb::handle object) {
  const auto array = nb::cast<nb::ndarray<nb::ro, nb::device::cpu>>(object);
  Column column;
  bool known = false;
  for (int i = 0; i < 12; ++i)
    if (array.dtype() == kDtypes[i]) {
      column.type = static_cast<Number>(i);
      known = true;
    }
  if (!known || array.ndim() < 1 || array.ndim() > 2)
    throw std::invalid_argument("expected numbers of shape (N,) or (N, k)");
  const int64_t bytes = number_bytes(column.type);
  column.data = array.data();
  column.rows = static_cast<int64_t>(array.shape(0));
  column.width = array.ndim() > 1 ? static_cast<int64_t>(array.shape(1)) : 1;
  column.row_bytes = array.stride(0) * bytes;
  column.value_bytes = array.ndim() > 1 ? array.stride(1) * bytes : bytes;
  auto* kept = new nb::object(nb::borrow(object));
  column.owner = std::shared_ptr<const void>(kept, [](const void* p) {
    nb::gil_scoped_acquire locked;
    delete static_cast<const nb::object*>(p);
  });
  return column;
}

// Conversions between MLX arrays and the memory that kernels read and write.
#pragma once

#include <mlx/allocator.h>
#include <mlx/array.h>
#include <mlx/utils.h>

#include <string>
#include <string_view>

#include "lattice/core/names.h"
#include "lattice/graph/array_memory.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/pages.h"

namespace lattice {

// "(5, 3)".
LATTICE_API std::string shape_text(const mx::Shape& shape);

// The array with its values computed, in row-major order without gaps. Inside mx.compile or vmap
// there are no values: throws std::invalid_argument that says so. `what` names the argument.
LATTICE_API mx::array evaluated(const mx::array& a, std::string_view operation,
                                std::string_view what);

// A new array with a copy of the values at `data`. Throws std::bad_alloc when MLX has no memory;
// the constructors of mx::array would copy into null.
LATTICE_API mx::array new_array(const void* data, mx::Shape shape, mx::Dtype dtype);

// A copy of the values of an array. NumPy views of MLX arrays are writable, so kernels must not
// rely on memory that Python holds.
LATTICE_API mx::array private_copy(const mx::array& a);

// An array with the buffer's values. A GPU that shares memory with the CPU takes over the memory of
// large buffers; otherwise the values are copied. Throws std::bad_alloc when MLX has no memory.
template <typename T>
mx::array adopt(cpu::Buffer<T>&& buffer, mx::Shape shape, mx::Dtype dtype = mx::TypeToDtype<T>()) {
  if (buffer.nbytes() >= cpu::kPageBytes) {
    const mx::allocator::Buffer shared =
        mx::allocator::make_buffer(buffer.data(), cpu::whole_pages(buffer.nbytes()));
    if (shared.ptr()) {
      auto* owned = new cpu::Buffer<T>(std::move(buffer));
      const auto free = [owned](mx::allocator::Buffer memory) {
        mx::allocator::release(memory);
        delete owned;
      };
      return mx::array(mx::allocator::Data(shared, free), std::move(shape), dtype);
    }
  }
  return new_array(buffer.data(), std::move(shape), dtype);
}

// The same as a 1-D array.
template <typename T>
mx::array adopt(cpu::Buffer<T>&& buffer) {
  const int n = static_cast<int>(buffer.size());
  return adopt(std::move(buffer), {n});
}

// Some rows of a 2-D array. The row numbers are valid, and there are at most as many as the array
// has rows. An array without channels is sliced instead, because the gradient of mx::take is a
// scatter, which divides by the size of a row.
mx::array take_rows(const mx::array& a, const mx::array& rows, mx::StreamOrDevice s = {});

// Sums over one axis; 0 over an axis of size 0. All sums of the library go through this function:
// MLX 0.32.4 on the CPU may never end a sum over an empty axis of an array with gaps between its
// rows.
mx::array sum_axis(const mx::array& a, int axis, bool keepdims, mx::StreamOrDevice s = {});

// A 1-D int32 array of row ids in memory of its own, evaluated. Throws when the shape is wrong or a
// value is outside [lowest, n).
mx::array checked_rows(const mx::array& rows, int64_t n, std::string_view operation,
                       std::string_view what, int64_t lowest = 0);

// A 1-D array of integers as int64, evaluated.
mx::array checked_integers(const mx::array& a, std::string_view operation, std::string_view what);

// Offsets (B + 1) of lengths (B,), checked: integers, >= 0, sum == rows where rows >= 0. `what`
// names the argument.
cpu::Buffer<int32_t> checked_offsets(const mx::array& lengths, int64_t rows,
                                     std::string_view operation, std::string_view what);

// Borders (B + 1) of segments, copied and checked: integers that ascend from 0 to `rows`.
cpu::Buffer<int32_t> checked_borders(const mx::array& borders, int64_t rows,
                                     std::string_view operation, std::string_view what);

// Whether it is float32, float16 or bfloat16.
bool is_float(mx::Dtype dtype);
mx::array as_float32(const mx::array& a, mx::StreamOrDevice s);

}  // namespace lattice

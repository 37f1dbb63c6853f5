// Between MLX arrays and the kernels' memory.
#pragma once

#include <mlx/array.h>

#include <string>
#include <string_view>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice {

namespace mx = mlx::core;

// "(5, 3)".
std::string shape_text(const mx::Shape& shape);

// The array with its values computed, in row-major order without gaps. Inside mx.compile or vmap
// there are no values: throws std::invalid_argument that says so. `what` names the argument.
mx::array evaluated(const mx::array& a, std::string_view operation, std::string_view what);

// An array that owns the buffer's memory.
template <typename T>
mx::array adopt(cpu::Buffer<T>&& buffer, mx::Shape shape, mx::Dtype dtype = mx::TypeToDtype<T>()) {
  if (buffer.empty())
    return mx::array(static_cast<const int32_t*>(nullptr), std::move(shape), dtype);
  auto* kept = new cpu::Buffer<T>(std::move(buffer));
  return mx::array(kept->data(), std::move(shape), dtype, [kept](void*) { delete kept; });
}

// A 1-D int32 array of row ids, evaluated; throws when the shape is another or a value is outside
// [lowest, n).
mx::array checked_rows(const mx::array& rows, int64_t n, std::string_view operation,
                       std::string_view what, int64_t lowest = 0);

}  // namespace lattice

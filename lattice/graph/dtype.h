// Calls a template with the C++ type of a dtype that is known only at run time.
//
//   visit_float(x.dtype(), [&](auto tag) { using T = decltype(tag); ... }, "conv");
#pragma once

#include <mlx/array.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "lattice/api.h"

namespace lattice::graph {

// "float32", "int64", ...
LATTICE_API std::string dtype_name(mlx::core::Dtype dtype);

// Throws std::invalid_argument "[operation] dtype: found <dtype>, expected <expected>".
[[noreturn]] void throw_dtype(std::string_view operation, mlx::core::Dtype dtype,
                              std::string_view expected);

// fn(T{}) with T float, mx::float16_t or mx::bfloat16_t.
template <typename F>
decltype(auto) visit_float(mlx::core::Dtype dtype, F&& fn,
                           std::string_view operation = "visit_float") {
  switch (dtype.val()) {
    case mlx::core::Dtype::Val::float32:
      return std::forward<F>(fn)(float{});
    case mlx::core::Dtype::Val::float16:
      return std::forward<F>(fn)(mlx::core::float16_t{});
    case mlx::core::Dtype::Val::bfloat16:
      return std::forward<F>(fn)(mlx::core::bfloat16_t{});
    default:
      throw_dtype(operation, dtype, "float32, float16 or bfloat16");
  }
}

// fn(T{}) with T int32_t or int64_t.
template <typename F>
decltype(auto) visit_int(mlx::core::Dtype dtype, F&& fn, std::string_view operation = "visit_int") {
  switch (dtype.val()) {
    case mlx::core::Dtype::Val::int32:
      return std::forward<F>(fn)(int32_t{});
    case mlx::core::Dtype::Val::int64:
      return std::forward<F>(fn)(int64_t{});
    default:
      throw_dtype(operation, dtype, "int32 or int64");
  }
}

}  // namespace lattice::graph

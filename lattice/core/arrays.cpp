#include "lattice/core/arrays.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <stdexcept>

#include "lattice/graph/dtype.h"

namespace lattice {

std::string shape_text(const mx::Shape& shape) {
  std::string text = "(";
  for (size_t i = 0; i < shape.size(); ++i)
    text.append(i ? ", " : "").append(std::to_string(shape[i]));
  return text.append(shape.size() == 1 ? ",)" : ")");
}

mx::array evaluated(const mx::array& a, std::string_view operation, std::string_view what) {
  mx::array out = a;
  try {
    out.eval();
    if (!out.flags().row_contiguous) {
      out = mx::contiguous(out);
      out.eval();
    }
  } catch (const std::exception&) {
    if (!a.is_tracer()) throw;
    throw std::invalid_argument(
        "[" + std::string(operation) + "] " + std::string(what) +
        " must have values, but is traced by mx.compile or vmap; build geometry outside and "
        "capture it");
  }
  return out;
}

mx::array checked_rows(const mx::array& rows, int64_t n, std::string_view operation,
                       std::string_view what, int64_t lowest) {
  const std::string head = "[" + std::string(operation) + "] " + std::string(what);
  if (rows.ndim() != 1)
    throw std::invalid_argument(head + " must have shape (N,), got " + shape_text(rows.shape()));
  if (!mx::issubdtype(rows.dtype(), mx::integer))
    throw std::invalid_argument(head + " must hold integers, got " +
                                graph::dtype_name(rows.dtype()));
  const auto inside = [&](const auto* values, size_t count) {  // one pass without a branch
    int64_t bad = 0;
    for (size_t i = 0; i < count; ++i) bad += values[i] < lowest || values[i] >= n;
    return bad == 0;
  };
  if (rows.dtype() == mx::int32) {
    const mx::array given = evaluated(rows, operation, what);
    if (inside(given.data<int32_t>(), given.size())) return given;
  }
  mx::array wide = evaluated(mx::astype(rows, mx::int64), operation, what);
  const int64_t* values = wide.data<int64_t>();
  for (size_t i = 0; i < wide.size(); ++i)
    if (values[i] < lowest || values[i] >= n)
      throw std::invalid_argument(head + "[" + std::to_string(i) +
                                  "] = " + std::to_string(values[i]) + " is outside " +
                                  std::to_string(lowest) + ".." + std::to_string(n - 1));
  return evaluated(mx::astype(rows, mx::int32), operation, what);
}

}  // namespace lattice

#include "lattice/core/arrays.h"

#include <mlx/ops.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/graph/dtype.h"
#include "lattice/kernels/cpu/base/threads.h"

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
    fail(operation,
         std::string(what) +
             " must have values, but is traced by mx.compile or vmap; build geometry outside and "
             "capture it");
  }
  return out;
}

mx::array new_array(const void* data, mx::Shape shape, mx::Dtype dtype) {
  mx::array made = graph::empty_array(std::move(shape), dtype);
  if (!data) return made;
  // Fresh pages cost more than the copy, so every thread touches its own.
  constexpr int64_t kPiece = 1 << 20;
  cpu::parallel_range(static_cast<int64_t>(made.nbytes()), kPiece, [&](int64_t begin, int64_t end) {
    std::memcpy(made.data<char>() + begin, static_cast<const char*>(data) + begin,
                static_cast<size_t>(end - begin));
  });
  return made;
}

mx::array private_copy(const mx::array& given) {
  const mx::array a = evaluated(given, "array", "what is read");
  return new_array(a.size() > 0 ? a.data<char>() : nullptr, a.shape(), a.dtype());
}

mx::array take_rows(const mx::array& a, const mx::array& rows, mx::StreamOrDevice s) {
  if (a.shape(1) > 0) return mx::take(a, rows, 0, s);
  return mx::slice(a, {0, 0}, {static_cast<int>(rows.size()), 0}, s);
}

mx::array sum_axis(const mx::array& a, int axis, bool keepdims, mx::StreamOrDevice s) {
  const int at = axis < 0 ? axis + static_cast<int>(a.ndim()) : axis;
  if (a.shape(at) > 0) return mx::sum(a, at, keepdims, s);
  mx::Shape shape = a.shape();
  if (keepdims)
    shape[at] = 1;
  else
    shape.erase(shape.begin() + at);
  return mx::zeros(shape, a.dtype(), s);
}

mx::array checked_rows(const mx::array& rows, int64_t n, std::string_view operation,
                       std::string_view what, int64_t lowest) {
  const std::string name(what);
  if (rows.ndim() != 1)
    fail(operation, name + " must have shape (N,), got " + shape_text(rows.shape()));
  if (!mx::issubdtype(rows.dtype(), mx::integer))
    fail(operation, name + " must hold integers, got " + graph::dtype_name(rows.dtype()));
  const mx::array given = rows.dtype() == mx::int32
                              ? evaluated(rows, operation, what)
                              : evaluated(mx::astype(rows, mx::int64), operation, what);
  // Copied first and checked then: writing to the caller's memory cannot change what was checked.
  const int64_t count = static_cast<int64_t>(given.size());
  mx::array checked = graph::empty_array({static_cast<int>(count)}, mx::int32);
  auto* kept = checked.data<int32_t>();
  const auto take = [&](const auto* values) {
    int64_t bad = 0;
    for (int64_t i = 0; i < count; ++i) {  // one pass without a branch
      const auto value = values[i];
      kept[i] = static_cast<int32_t>(value);
      bad += value < lowest || value >= n;
    }
    if (bad == 0) return;
    for (int64_t i = 0; i < count; ++i)
      if (values[i] < lowest || values[i] >= n)
        fail(operation, name + "[" + std::to_string(i) + "] = " + std::to_string(values[i]) +
                            " is outside " + std::to_string(lowest) + ".." + std::to_string(n - 1) +
                            (values[i] >= n && name.find("rows") != std::string::npos
                                 ? "; a row behind these is inactive or does not exist"
                                 : ""));
    fail(operation, name + " changed while it was checked");
  };
  if (given.size() > 0 && given.dtype() == mx::int32) take(given.data<int32_t>());
  if (given.size() > 0 && given.dtype() == mx::int64) take(given.data<int64_t>());
  return checked;
}

mx::array checked_integers(const mx::array& a, std::string_view operation, std::string_view what) {
  const std::string name(what);
  if (a.ndim() != 1) fail(operation, name + " must have shape (N,), got " + shape_text(a.shape()));
  if (!mx::issubdtype(a.dtype(), mx::integer))
    fail(operation, name + " must hold integers, got " + graph::dtype_name(a.dtype()));
  return evaluated(mx::astype(a, mx::int64), operation, what);
}

cpu::Buffer<int32_t> checked_offsets(const mx::array& lengths, int64_t rows,
                                     std::string_view operation, std::string_view what) {
  const mx::array values = checked_integers(lengths, operation, what);
  const int64_t n = static_cast<int64_t>(values.size());
  cpu::Buffer<int32_t> offsets(n + 1);
  int64_t total = offsets[0] = 0;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t length = values.data<int64_t>()[i];
    if (length < 0 || length > std::numeric_limits<int32_t>::max() - total)
      fail(operation, std::string(what) + "[" + std::to_string(i) +
                          "] = " + std::to_string(length) +
                          (length < 0 ? " is negative" : " makes the sum exceed 2^31 - 1"));
    offsets[i + 1] = static_cast<int32_t>(total += length);
  }
  if (rows >= 0 && total != rows)
    fail(operation, std::string(what) + " must sum to " + std::to_string(rows) + " rows, got " +
                        std::to_string(total));
  return offsets;
}

cpu::Buffer<int32_t> checked_borders(const mx::array& borders, int64_t rows,
                                     std::string_view operation, std::string_view what) {
  const mx::array given = checked_integers(borders, operation, what);
  const int64_t n = static_cast<int64_t>(given.size());
  // Copied first and checked then: writing to the caller's memory cannot change what was checked.
  cpu::Buffer<int64_t> values(n);
  if (n > 0) std::copy_n(given.data<int64_t>(), n, values.begin());
  if (n == 0 || values[0] != 0 || values[n - 1] != rows)
    fail(operation, std::string(what) + " must start with 0 and end with " + std::to_string(rows) +
                        (n == 0 ? ", got none"
                                : ", got " + std::to_string(values[0]) + " and " +
                                      std::to_string(values[n - 1])));
  cpu::Buffer<int32_t> checked(n);
  for (int64_t i = 0; i < n; ++i) {
    if (i > 0 && values[i] < values[i - 1])
      fail(operation, std::string(what) + " must ascend, got " + std::to_string(values[i]) +
                          " after " + std::to_string(values[i - 1]));
    checked[i] = static_cast<int32_t>(values[i]);
  }
  return checked;
}

bool is_float(mx::Dtype dtype) {
  return dtype == mx::float32 || dtype == mx::float16 || dtype == mx::bfloat16;
}

mx::array as_float32(const mx::array& a, mx::StreamOrDevice s) {
  return mx::astype(a, mx::float32, s);
}

}  // namespace lattice

/// @file
/// A point cloud for C++ programs: positions and named columns. Both are either views of memory
/// that the caller owns, or have memory of their own.
///
///     auto cloud = lattice::Cloud::view(std::span(xyzi), 4);            // x y z i x y z i ...
///     cloud.column("intensity", std::span(xyzi).subspan(3), 4);
///
/// A view copies nothing, so its memory must outlive it. This header uses no MLX types.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "lattice/api.h"

namespace lattice {

/// Types of numbers in clouds; the values are those of the C interface.
enum class Number : int32_t {
  boolean = 0,
  uint8 = 1,
  int8 = 2,
  uint16 = 3,
  int16 = 4,
  uint32 = 5,
  int32 = 6,
  uint64 = 7,
  int64 = 8,
  float16 = 9,
  float32 = 10,
  float64 = 11,
};
/// Bytes of a number.
LATTICE_API int64_t number_bytes(Number type);
/// "float32".
LATTICE_API const char* number_name(Number type);

/// The Number of a C++ type.
template <typename T>
constexpr Number number_of() {
  if constexpr (std::is_same_v<T, bool>) return Number::boolean;
  if constexpr (std::is_same_v<T, float>) return Number::float32;
  if constexpr (std::is_same_v<T, double>) return Number::float64;
  static_assert(std::is_arithmetic_v<T> && sizeof(T) <= 8, "a cloud holds numbers");
  constexpr bool kSigned = std::is_signed_v<T>;
  if constexpr (sizeof(T) == 1) return kSigned ? Number::int8 : Number::uint8;
  if constexpr (sizeof(T) == 2) return kSigned ? Number::int16 : Number::uint16;
  if constexpr (sizeof(T) == 4) return kSigned ? Number::int32 : Number::uint32;
  return kSigned ? Number::int64 : Number::uint64;
}

/// Rows of numbers somewhere in memory: value j of row r lies at data + r * row_bytes + j *
/// value_bytes, at any address. `owner` keeps the memory alive, or is empty.
struct LATTICE_API Column {
  Number type = Number::float32;           ///< type of each value
  const void* data = nullptr;              ///< the first value
  int64_t rows = 0;                        ///< number of points
  int64_t width = 1;                       ///< values per point
  int64_t row_bytes = 0;                   ///< bytes from one point to the next
  int64_t value_bytes = 0;                 ///< bytes from one value to the next
  std::shared_ptr<const void> owner = {};  ///< keeps the memory alive

  /// One value as a float64, which holds all but the largest 64-bit integers exactly.
  double at(int64_t row, int64_t value) const;
  /// A view of `span`: a row begins every `stride` values and has `width` values.
  template <typename T>
  static Column view(std::span<T> span, int64_t stride, int64_t width) {
    const auto size = static_cast<int64_t>(span.size()), bytes = int64_t{sizeof(T)};
    const int64_t rows = size < width || stride < 1 ? 0 : (size - width) / stride + 1;
    return {
        number_of<std::remove_const_t<T>>(), span.data(), rows, width, stride * bytes, bytes, {}};
  }
  /// A column with new memory, which the caller fills through `values`.
  template <typename T>
  static Column make(int64_t rows, int64_t width, T** values) {
    std::shared_ptr<T[]> memory(new T[static_cast<size_t>(rows * width)]());
    *values = memory.get();
    return {number_of<T>(),     memory.get(), rows, width, width * int64_t{sizeof(T)},
            int64_t{sizeof(T)}, memory};
  }
};

/// A column and its name.
using NamedColumn = std::pair<std::string, Column>;

/// Points with columns. Cheap to copy: copies share the memory.
class LATTICE_API Cloud {
 public:
  /// No points.
  Cloud() = default;
  /// A cloud with these positions: three values per point, float32 or float64, with any strides.
  /// Throws Error otherwise.
  explicit Cloud(Column points);
  /// A view of float32 or float64 values; a new point begins every `stride` values.
  static Cloud view(std::span<const float> values, int64_t stride = 3);
  static Cloud view(std::span<const double> values, int64_t stride = 3);  ///< the same for float64

  /// Adds or replaces a column. Throws Error unless it has one row for each point.
  Cloud& column(const std::string& name, Column values);
  /// The same from a view of memory: a point every `stride` values, of which the column has
  /// `width`.
  template <typename T>
  Cloud& column(const std::string& name, std::span<T> values, int64_t stride = 1,
                int64_t width = 1) {
    return column(name, Column::view(values, stride, width));
  }

  /// The points and columns of the rows where `keep` is not 0, in memory of their own. Throws Error
  /// unless there is one value for each point.
  Cloud select(std::span<const uint8_t> keep) const;

  /// The number of points.
  int64_t size() const { return points_.rows; }
  /// The positions.
  const Column& points() const { return points_; }
  /// All columns, in the order in which they were added.
  const std::vector<NamedColumn>& columns() const { return columns_; }
  /// The column of a name, or nullptr.
  const Column* find(const std::string& name) const;

 private:
  Column points_{Number::float32, nullptr, 0, 3, 12, 4, {}};
  std::vector<NamedColumn> columns_;
};

}  // namespace lattice

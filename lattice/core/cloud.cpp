#include "lattice/core/cloud.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "lattice/core/errors.h"

namespace lattice {
namespace {

template <typename T>
double read(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(T));  // records have any alignment
  return static_cast<double>(value);
}

double read_half(const std::byte* from) {
  uint16_t bits = 0;
  std::memcpy(&bits, from, sizeof(bits));
  const uint32_t sign = (bits & 0x8000u) << 16;
  uint32_t exponent = (bits >> 10) & 31u, fraction = bits & 1023u;
  if (exponent == 0) {  // subnormal: fraction * 2^-24
    const float value = static_cast<float>(fraction) * 0x1p-24f;
    return sign ? -value : value;
  }
  exponent = exponent == 31 ? 255 : exponent + 112;
  const uint32_t wide = sign | exponent << 23 | fraction << 13;
  float value = 0;
  std::memcpy(&value, &wide, sizeof(value));
  return value;
}

}  // namespace

int64_t number_bytes(Number type) {
  switch (type) {
    case Number::boolean:
    case Number::uint8:
    case Number::int8:
      return 1;
    case Number::uint16:
    case Number::int16:
    case Number::float16:
      return 2;
    case Number::uint32:
    case Number::int32:
    case Number::float32:
      return 4;
    default:
      return 8;
  }
}

const char* number_name(Number type) {
  constexpr const char* kNames[] = {"bool",  "uint8",  "int8",  "uint16",  "int16",   "uint32",
                                    "int32", "uint64", "int64", "float16", "float32", "float64"};
  return kNames[static_cast<int>(type)];
}

double Column::at(int64_t row, int64_t value) const {
  const std::byte* from =
      static_cast<const std::byte*>(data) + row * row_bytes + value * value_bytes;
  switch (type) {
    case Number::boolean:
    case Number::uint8:
      return read<uint8_t>(from);
    case Number::int8:
      return read<int8_t>(from);
    case Number::uint16:
      return read<uint16_t>(from);
    case Number::int16:
      return read<int16_t>(from);
    case Number::uint32:
      return read<uint32_t>(from);
    case Number::int32:
      return read<int32_t>(from);
    case Number::uint64:
      return read<uint64_t>(from);
    case Number::int64:
      return read<int64_t>(from);
    case Number::float16:
      return read_half(from);
    case Number::float32:
      return read<float>(from);
    default:
      return read<double>(from);
  }
}

Cloud::Cloud(Column points) : points_(std::move(points)) {
  const bool floats = points_.type == Number::float32 || points_.type == Number::float64;
  if (points_.width != 3 || points_.rows < 0 || !floats)
    throw Error(ErrorCode::argument,
                "[Cloud] points must be three float32 or float64 each, found " +
                    std::to_string(points_.width) + " " + number_name(points_.type),
                "Cloud", "points");
}

Cloud Cloud::view(std::span<const float> values, int64_t stride) {
  if (stride < 3)
    throw Error(ErrorCode::argument,
                "[Cloud::view] stride must be 3 or more, found " + std::to_string(stride),
                "Cloud::view", "stride");
  return Cloud(Column::view(values, stride, 3));
}

Cloud Cloud::view(std::span<const double> values, int64_t stride) {
  if (stride < 3)
    throw Error(ErrorCode::argument,
                "[Cloud::view] stride must be 3 or more, found " + std::to_string(stride),
                "Cloud::view", "stride");
  return Cloud(Column::view(values, stride, 3));
}

Cloud& Cloud::column(const std::string& name, Column values) {
  if (values.rows != size() || values.width < 1)
    throw Error(ErrorCode::argument,
                "[Cloud::column] \"" + name + "\" has " + std::to_string(values.rows) +
                    " rows of " + std::to_string(values.width) + " values, expected " +
                    std::to_string(size()) + " rows of one or more; check its stride",
                "Cloud::column", name);
  for (auto& [known, column] : columns_)
    if (known == name) {
      column = std::move(values);
      return *this;
    }
  columns_.emplace_back(name, std::move(values));
  return *this;
}

Cloud Cloud::select(std::span<const uint8_t> keep) const {
  if (static_cast<int64_t>(keep.size()) != size())
    throw Error(ErrorCode::argument,
                "[Cloud::select] keep has " + std::to_string(keep.size()) +
                    " values, expected one for each of " + std::to_string(size()) + " points",
                "Cloud::select", "keep");
  const auto kept = static_cast<int64_t>(keep.size() - std::count(keep.begin(), keep.end(), 0));
  const auto part = [&](const Column& from) {
    const int64_t bytes = number_bytes(from.type), row_bytes = from.width * bytes;
    const std::shared_ptr<std::byte[]> memory(new std::byte[static_cast<size_t>(kept * row_bytes)]);
    std::byte* to = memory.get();
    for (int64_t r = 0; r < from.rows; ++r)
      for (int64_t j = 0; keep[r] && j < from.width; ++j, to += bytes)
        std::memcpy(
            to,
            static_cast<const std::byte*>(from.data) + r * from.row_bytes + j * from.value_bytes,
            static_cast<size_t>(bytes));
    return Column{from.type, memory.get(), kept, from.width, row_bytes, bytes, memory};
  };
  Cloud made(part(points_));
  for (const auto& [name, values] : columns_) made.column(name, part(values));
  return made;
}

const Column* Cloud::find(const std::string& name) const {
  for (const auto& [known, column] : columns_)
    if (known == name) return &column;
  return nullptr;
}

}  // namespace lattice

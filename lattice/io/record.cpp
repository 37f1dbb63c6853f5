#include "lattice/io/record.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "lattice/io/table.h"
#include "lattice/io/text_rows.h"

namespace lattice::io {
namespace {

bool is_float(Number type) { return type >= Number::float16; }

struct Range {
  double low = 0, high = 0;
};

// NaN where a value is NaN.
Range range_of(const Column& column) {
  Range range{std::numeric_limits<double>::infinity(), -std::numeric_limits<double>::infinity()};
  for (int64_t r = 0; r < column.rows; ++r)
    for (int64_t j = 0; j < column.width; ++j) {
      const double value = column.at(r, j);
      if (std::isnan(value)) return {value, value};
      range.low = std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  return range;
}

std::string shown(double value) {
  char* at = nullptr;
  const Column one = new_column(Number::float64, 1, 1, &at);
  std::memcpy(at, &value, sizeof(value));
  std::string text;
  append_number(text, one, 0, 0);
  return text;
}

Range bounds_of(Number type) {
  switch (type) {
    case Number::uint8:
      return {0, 255};
    case Number::int32:
      return {-0x1p31, 0x1p31 - 1};
    case Number::uint32:
      return {0, 0x1p32 - 1};
    case Number::int64:
      return {-0x1p63, 0x1p63};
    default:
      return {0, 0x1p64};
  }
}

// The nearest type of the format that holds all values.
Number stored_type(const std::string& name, const Column& column, const std::vector<Number>& types,
                   const char* what) {
  const auto has = [&](Number type) {
    return std::find(types.begin(), types.end(), type) != types.end();
  };
  if (has(column.type)) return column.type;
  if (column.type == Number::boolean) return Number::uint8;
  if (is_float(column.type))
    return column.type == Number::float16 ? Number::float32 : Number::float64;
  const Range range = column.rows ? range_of(column) : Range{};
  for (const Number type : {Number::int32, Number::uint32, Number::int64, Number::uint64})
    if (has(type) && bounds_of(type).low <= range.low && range.high <= bounds_of(type).high)
      return type;
  refuse("column '" + name + "': found values in " + shown(range.low) + ".." + shown(range.high) +
         ", too large for a " + what + " file");
}

template <typename T>
void put(const Column& source, int64_t row, int64_t value, char* to) {
  const double number = source.at(row, value);
  T made;
  if constexpr (sizeof(T) == 8 && std::is_integral_v<T>) {  // beyond 2^53 a double is too short
    const void* from = static_cast<const std::byte*>(source.data) + row * source.row_bytes +
                       value * source.value_bytes;
    if (number_bytes(source.type) == 8 && !is_float(source.type))
      std::memcpy(&made, from, sizeof(made));
    else
      made = static_cast<T>(number);
  } else {
    made = static_cast<T>(number);
  }
  std::memcpy(to, &made, sizeof(made));
}

void put_value(const Out& field, int64_t row, int64_t value, char* to) {
  switch (field.type) {
    case Number::uint8:
      return put<uint8_t>(field.source, row, value, to);
    case Number::int32:
      return put<int32_t>(field.source, row, value, to);
    case Number::uint32:
      return put<uint32_t>(field.source, row, value, to);
    case Number::int64:
      return put<int64_t>(field.source, row, value, to);
    case Number::uint64:
      return put<uint64_t>(field.source, row, value, to);
    case Number::float32:
      return put<float>(field.source, row, value, to);
    default:
      return put<double>(field.source, row, value, to);
  }
}

// Values that keep their type, record after record.
template <size_t kBytes>
void spread(const Column& from, int64_t record, bool swapped, char* to) {
  for (int64_t r = 0; r < from.rows; ++r) {
    const auto* value = static_cast<const char*>(from.data) + r * from.row_bytes;
    char* place = to + r * record;
    for (int64_t j = 0; j < from.width; ++j, value += from.value_bytes, place += kBytes) {
      std::memcpy(place, value, kBytes);
      if (swapped) std::reverse(place, place + kBytes);
    }
  }
}

void spread_as(const Out& field, int64_t record, bool swapped, char* to) {
  const int64_t bytes = number_bytes(field.type);
  for (int64_t r = 0; r < field.source.rows; ++r)
    for (int64_t j = 0; j < field.source.width; ++j) {
      char* place = to + r * record + j * bytes;
      put_value(field, r, j, place);
      if (swapped) std::reverse(place, place + bytes);
    }
}

// Names are unique, ASCII and without spaces.
void check_names(const std::vector<Out>& fields, const char* what) {
  for (const Out& field : fields) {
    const auto twice = std::count_if(fields.begin(), fields.end(),
                                     [&](const Out& other) { return other.name == field.name; });
    const bool plain = std::all_of(field.name.begin(), field.name.end(),
                                   [](char c) { return c > ' ' && c < '\x7f'; });
    if (twice > 1 || field.name.empty() || !plain)
      refuse("column " + quoted(field.name) + " cannot be a field of a " + what +
             " file: names are unique, ASCII and without spaces");
  }
}

}  // namespace

Column one_value(const Column& column, int64_t value) {
  Column made = column;
  made.data = static_cast<const std::byte*>(column.data) + value * column.value_bytes;
  made.width = 1;
  return made;
}

Column color8(const Column& color) {
  if (color.type == Number::uint8 || color.rows == 0 || color.type == Number::boolean) return color;
  const bool floats = is_float(color.type);
  const Range range = range_of(color);
  const double slack = floats ? 1e-3 : 0, most = floats ? 1 : 65535;  // slack for rounding errors
  if (!(range.low >= -slack && range.high <= most + slack))
    refuse("column 'color': found " + std::string(floats ? "floats in " : "") + shown(range.low) +
           ".." + shown(range.high) +
           (floats ? ", expected 0..1; divide them, or convert to uint8" : ", expected 0..65535"));
  char* to = nullptr;
  const Column made = new_column(Number::uint8, color.rows, color.width, &to);
  const bool narrow = color.type != Number::float64;
  for (int64_t r = 0; r < color.rows; ++r)
    for (int64_t j = 0; j < color.width; ++j) {
      double value = color.at(r, j);
      if (floats) {  // rounded once in the type of the values
        value = std::clamp(value, 0.0, 1.0);
        value = narrow ? std::nearbyint(static_cast<float>(value) * 255.0f)
                       : std::nearbyint(value * 255);
      } else if (range.high > 255) {
        value = std::floor(value / 256);
      }
      *to++ = static_cast<char>(static_cast<uint8_t>(value));
    }
  return made;
}

std::vector<Out> scatter(const Cloud& cloud, const std::vector<Number>& types, const char* what,
                         bool flat) {
  std::vector<NamedColumn> parts;
  constexpr const char* kAxes[] = {"x", "y", "z"};
  constexpr const char* kColors[] = {"red", "green", "blue", "alpha"};
  constexpr const char* kNormals[] = {"nx", "ny", "nz"};
  for (int i = 0; i < 3; ++i) parts.emplace_back(kAxes[i], one_value(cloud.points(), i));
  for (const auto& [name, column] : cloud.columns()) {
    if (name == "color" && (column.width == 3 || column.width == 4)) {
      const Column bytes = color8(column);
      for (int64_t j = 0; j < column.width; ++j)
        parts.emplace_back(kColors[j], one_value(bytes, j));
    } else if (name == "normal" && column.width == 3) {
      for (int64_t j = 0; j < 3; ++j) parts.emplace_back(kNormals[j], one_value(column, j));
    } else if (column.width > 1 && flat) {
      for (int64_t j = 0; j < column.width; ++j)
        parts.emplace_back(name + "_" + std::to_string(j), one_value(column, j));
    } else {
      parts.emplace_back(name, column);
    }
  }
  std::vector<Out> fields;
  for (auto& [name, column] : parts)
    fields.push_back({name, column, stored_type(name, column, types, what)});
  check_names(fields, what);
  return fields;
}

int64_t record_bytes(const std::vector<Out>& fields) {
  int64_t bytes = 0;
  for (const Out& field : fields) bytes += field.source.width * number_bytes(field.type);
  return bytes;
}

void append_records(std::string& out, const std::vector<Out>& fields, bool swapped) {
  const int64_t rows = fields[0].source.rows;
  const size_t at = out.size();
  out.resize(at + static_cast<size_t>(rows * record_bytes(fields)));
  char* to = out.data() + at;
  for (const Out& field : fields) {
    const int64_t bytes = number_bytes(field.type), record = record_bytes(fields);
    if (field.source.type != field.type)
      spread_as(field, record, swapped, to);
    else if (bytes == 1)
      spread<1>(field.source, record, swapped, to);
    else if (bytes == 2)
      spread<2>(field.source, record, swapped, to);
    else if (bytes == 4)
      spread<4>(field.source, record, swapped, to);
    else
      spread<8>(field.source, record, swapped, to);
    to += field.source.width * bytes;
  }
}

void append_lines(std::string& out, const std::vector<Out>& fields, const std::string& separator) {
  const int64_t rows = fields[0].source.rows;
  for (int64_t r = 0; r < rows; ++r) {
    bool first = true;
    for (const Out& field : fields)
      for (int64_t j = 0; j < field.source.width; ++j) {
        if (!first) out += separator;
        first = false;
        append_number(out, field.source, r, j);
      }
    out += '\n';
  }
}

}  // namespace lattice::io

#include "lattice/io/table.h"

#include <algorithm>
#include <cstring>

namespace lattice::io {
namespace {

template <size_t kBytes>
void copy_values(const Field& field, const char* from, int64_t rows, char* to) {
  for (int64_t r = 0; r < rows; ++r) {
    const char* value = from + field.at + r * field.row_bytes;
    for (int64_t j = 0; j < field.width; ++j, value += field.value_bytes, to += kBytes) {
      std::memcpy(to, value, kBytes);
      if (field.swapped) std::reverse(to, to + kBytes);
    }
  }
}

}  // namespace

int64_t lay_out(std::vector<Field>& fields) {
  int64_t bytes = 0;
  for (Field& field : fields) {
    field.at = bytes;
    field.value_bytes = number_bytes(field.type);
    bytes += field.width * field.value_bytes;
  }
  for (Field& field : fields) field.row_bytes = bytes;
  return bytes;
}

void check_fits(int64_t count, int64_t row_bytes, int64_t left, const char* what) {
  if (row_bytes > kRowLimit)
    refuse("a row of " + std::to_string(row_bytes) + " bytes, expected at most " +
           std::to_string(kRowLimit));
  const uint64_t needed = static_cast<uint64_t>(count) * static_cast<uint64_t>(row_bytes);
  if (needed > static_cast<uint64_t>(left))
    refuse(std::to_string(count) + " " + what + " of " + std::to_string(row_bytes) +
           " bytes need " + std::to_string(needed) + " bytes, found " + std::to_string(left) +
           ": truncated, or the count is wrong");
}

void check_fits_text(int64_t count, const std::vector<Field>& fields, int64_t left) {
  int64_t values = 0;
  for (const Field& field : fields) values += field.width;
  // A value takes at least two bytes: itself and what separates it from the next value.
  if (count > (left + 1) / (2 * std::max<int64_t>(values, 1)))
    refuse(std::to_string(count) + " points of " + std::to_string(values) +
           " values cannot stand in " + std::to_string(left) +
           " bytes: truncated, or the count is wrong");
}

Column new_column(Number type, int64_t rows, int64_t width, char** values) {
  const int64_t bytes = number_bytes(type);
  const std::shared_ptr<char[]> memory(new char[static_cast<size_t>(rows * width * bytes)]);
  *values = memory.get();
  return {type, memory.get(), rows, width, width * bytes, bytes, memory};
}

void copy_field(const Field& field, const char* from, int64_t rows, char* to) {
  char* const begin = to;
  switch (number_bytes(field.type)) {
    case 1:
      copy_values<1>(field, from, rows, to);
      break;
    case 2:
      copy_values<2>(field, from, rows, to);
      break;
    case 4:
      copy_values<4>(field, from, rows, to);
      break;
    default:
      copy_values<8>(field, from, rows, to);
  }
  if (field.type == Number::boolean)  // a C++ bool may hold only 0 and 1
    for (int64_t i = 0; i < rows * field.width; ++i) begin[i] = begin[i] != 0;
}

}  // namespace lattice::io

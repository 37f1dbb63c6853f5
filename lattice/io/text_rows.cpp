#include "lattice/io/text_rows.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <limits>

namespace lattice::io {
namespace {

template <typename T>
bool parse_float(std::string_view text, char* to) {
  T value = 0;
  const char* end = text.data() + text.size();
  auto found = std::from_chars(text.data(), end, value);
  if (found.ec == std::errc::result_out_of_range) {  // 1e-60 is 0 as float32, 1e60 infinite
    long double wide = 0;
    found = std::from_chars(text.data(), end, wide);
    value = static_cast<T>(wide);
  }
  std::memcpy(to, &value, sizeof(T));
  return found.ec == std::errc() && found.ptr == end;
}

template <typename T>
bool parse_integer(std::string_view text, char* to) {
  T value = 0;
  const char* end = text.data() + text.size();
  const auto found = std::from_chars(text.data(), end, value);
  bool right = found.ec == std::errc() && found.ptr == end;
  if (!right) {  // some programs write 5 as 5.0 or 5e+00
    double wide = 0;
    right = parse_float<double>(text, reinterpret_cast<char*>(&wide)) &&
            wide == std::nearbyint(wide) && std::abs(wide) <= 0x1p53 &&
            wide >= static_cast<double>(std::numeric_limits<T>::min()) &&
            wide <= static_cast<double>(std::numeric_limits<T>::max());
    if (right) value = static_cast<T>(wide);
  }
  std::memcpy(to, &value, sizeof(T));
  return right;
}

bool parse(std::string_view text, Number type, char* to) {
  if (text.size() > 1 && text[0] == '+' && text[1] != '-') text.remove_prefix(1);
  switch (type) {
    case Number::int8:
      return parse_integer<int8_t>(text, to);
    case Number::uint8:
      return parse_integer<uint8_t>(text, to);
    case Number::int16:
      return parse_integer<int16_t>(text, to);
    case Number::uint16:
      return parse_integer<uint16_t>(text, to);
    case Number::int32:
      return parse_integer<int32_t>(text, to);
    case Number::uint32:
      return parse_integer<uint32_t>(text, to);
    case Number::int64:
      return parse_integer<int64_t>(text, to);
    case Number::uint64:
      return parse_integer<uint64_t>(text, to);
    case Number::float32:
      return parse_float<float>(text, to);
    default:
      return parse_float<double>(text, to);
  }
}

bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r'); }

// The next word, or an empty one at the end of the line.
std::string_view next_word(std::string_view* line) {
  size_t at = 0;
  while (at < line->size() && is_space((*line)[at])) ++at;
  size_t end = at;
  while (end < line->size() && !is_space((*line)[end])) ++end;
  const std::string_view word = line->substr(at, end - at);
  line->remove_prefix(end);
  return word;
}

template <typename T>
void append(std::string& out, T value) {
  char digits[64];
  out.append(digits, std::to_chars(digits, digits + sizeof(digits), value).ptr);
}

}  // namespace

void read_text_rows(Lines& lines, const std::vector<Field>& fields, int64_t done, int64_t rows,
                    int64_t total, std::vector<char*> to) {
  for (int64_t r = 0; r < rows;) {
    std::string_view line;
    if (!lines.next(&line))
      refuse("found " + std::to_string(done + r) + " lines of points, expected " +
             std::to_string(total));
    std::string_view word = next_word(&line);
    if (word.empty()) continue;
    for (size_t i = 0; i < fields.size(); ++i)
      for (int64_t j = 0; j < fields[i].width; ++j) {
        if (word.empty() || !parse(word, fields[i].type, to[i]))
          refuse("point " + std::to_string(done + r) + ", " + quoted(fields[i].name) + ": found " +
                 (word.empty() ? "the end of the line" : quoted(word)) +
                 ", expected a number of type " + number_name(fields[i].type));
        to[i] += number_bytes(fields[i].type);
        word = next_word(&line);
      }
    if (!word.empty())
      refuse("point " + std::to_string(done + r) +
             ": found more values than the header names, at " + quoted(word));
    ++r;
  }
}

void append_number(std::string& out, const Column& column, int64_t row, int64_t value) {
  const std::byte* from = static_cast<const std::byte*>(column.data) + row * column.row_bytes +
                          value * column.value_bytes;
  const double number = column.at(row, value);
  if (column.type == Number::float32 || column.type == Number::float16) {
    if (std::isnan(number))
      out += "nan";  // "-nan" is no number for other programs
    else
      append(out, static_cast<float>(number));
  } else if (column.type == Number::float64) {
    if (std::isnan(number))
      out += "nan";
    else
      append(out, number);
  } else if (column.type == Number::uint64) {
    uint64_t wide = 0;
    std::memcpy(&wide, from, sizeof(wide));
    append(out, wide);
  } else if (column.type == Number::int64) {
    int64_t wide = 0;
    std::memcpy(&wide, from, sizeof(wide));
    append(out, wide);
  } else {
    append(out, static_cast<int64_t>(number));
  }
}

}  // namespace lattice::io

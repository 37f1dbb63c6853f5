// NPY of NumPy: (N, C) with x, y, z first, or a structured array with x, y and z. Never pickled
// objects. The header is a Python dict: {'descr': '<f4', 'fortran_order': False, 'shape': (5, 3)}.
#include <cstring>

#include "lattice/io/table.h"

namespace lattice::io {
namespace {

struct Header {
  bool structured = false;
  std::vector<Field> fields;  // one without a name where the array is not structured
  std::vector<int64_t> gaps;  // bytes of padding before each field, and behind the last one
  bool by_column = false;
  std::vector<int64_t> shape;
};

// The few forms of Python that NumPy writes.
class Literal {
 public:
  explicit Literal(std::string text) : text_(std::move(text)) {}

  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  void expect(char c) {
    if (!take(c)) wrong(std::string("'") + c + "'");
  }
  bool begins(char c) {
    skip();
    return at_ < text_.size() && text_[at_] == c;
  }
  std::string text() {
    skip();
    const char quote = at_ < text_.size() ? text_[at_] : '\0';
    const size_t end =
        quote == '\'' || quote == '"' ? text_.find(quote, at_ + 1) : std::string::npos;
    if (end == std::string::npos) wrong("a text");
    std::string made = text_.substr(at_ + 1, end - at_ - 1);
    if (made.find('\\') != std::string::npos) refuse("name " + quoted(made) + " with an escape");
    at_ = end + 1;
    return made;
  }
  bool flag() {
    skip();
    for (const bool value : {true, false}) {
      const std::string word = value ? "True" : "False";
      if (text_.compare(at_, word.size(), word) == 0) {
        at_ += word.size();
        return value;
      }
    }
    wrong("True or False");
  }
  int64_t integer() {
    skip();
    const size_t end = text_.find_first_not_of("-0123456789", at_);
    const std::string digits = text_.substr(at_, end - at_);
    at_ += digits.size();
    if (at_ < text_.size() && text_[at_] == 'L') ++at_;  // of Python 2
    return whole(digits, "shape");
  }
  std::vector<int64_t> tuple() {
    std::vector<int64_t> made;
    expect('(');
    while (!take(')')) {
      made.push_back(integer());
      if (!take(',') && !begins(')')) wrong("a comma");
    }
    return made;
  }
  void end() {
    skip();
    if (at_ != text_.size()) wrong("the end");
  }
  [[noreturn]] void wrong(const std::string& expected) const {
    refuse("header at " + quoted(std::string_view(text_).substr(at_, 20)) + ", expected " +
           expected);
  }

 private:
  void skip() {
    at_ = text_.find_first_not_of(" \t\r\n", at_);
    if (at_ == std::string::npos) at_ = text_.size();
  }
  std::string text_;
  size_t at_ = 0;
};

// "<f4": byte order, kind, bytes.
Field field_of(const std::string& code) {
  if (code.find('O') != std::string::npos) refuse("pickled objects are never loaded");
  constexpr struct {
    const char* code;
    Number type;
  } kTypes[] = {{"b1", Number::boolean}, {"u1", Number::uint8},   {"i1", Number::int8},
                {"u2", Number::uint16},  {"i2", Number::int16},   {"u4", Number::uint32},
                {"i4", Number::int32},   {"u8", Number::uint64},  {"i8", Number::int64},
                {"f2", Number::float16}, {"f4", Number::float32}, {"f8", Number::float64}};
  const bool ordered = !code.empty() && std::strchr("<>|=", code[0]);
  const std::string kind = ordered ? code.substr(1) : code;
  for (const auto& known : kTypes)
    if (kind == known.code) {
      Field field;
      field.type = known.type;
      field.swapped = code[0] == '>';
      return field;
    }
  refuse("found dtype " + quoted(code) + ", expected numbers of 1, 2, 4 or 8 bytes");
}

void read_fields(Literal& text, Header& header) {
  int64_t gap = 0;
  while (!text.take(']')) {
    text.expect('(');
    const std::string name = text.text();
    text.expect(',');
    if (text.begins('[')) refuse("field " + quoted(name) + " is structured, expected numbers");
    const std::string code = text.text();
    std::vector<int64_t> shape;
    if (text.take(',') && text.begins('(')) shape = text.tuple();
    text.expect(')');
    if (!text.take(',') && !text.begins(']')) text.wrong("a comma");
    if (name.empty() && code.size() > 2 && code[1] == 'V') {
      gap += whole(code.substr(2), "padding", 0, kRowLimit);
      continue;
    }
    Field field = field_of(code);
    field.name = name;
    if (shape.size() > 1) refuse("field " + quoted(name) + " with several axes, expected one");
    if (!shape.empty()) field.width = shape[0];
    if (field.width < 1 || field.width > kRowLimit)
      refuse("field " + quoted(name) + " of " + std::to_string(field.width) + " values");
    for (const Field& known : header.fields)
      if (known.name == name) refuse("a field twice: " + quoted(name));
    header.fields.push_back(std::move(field));
    header.gaps.push_back(gap);
    gap = 0;
  }
  header.gaps.push_back(gap);
}

Header parse(std::string text) {
  Literal literal(std::move(text));
  Header header;
  int seen = 0;
  literal.expect('{');
  while (!literal.take('}')) {
    const std::string key = literal.text();
    literal.expect(':');
    if (key == "descr") {
      seen |= 1;
      header.structured = literal.take('[');
      if (header.structured)
        read_fields(literal, header);
      else
        header.fields = {field_of(literal.text())};
    } else if (key == "fortran_order") {
      seen |= 2;
      header.by_column = literal.flag();
    } else if (key == "shape") {
      seen |= 4;
      header.shape = literal.tuple();
    } else {
      refuse("header with the key " + quoted(key));
    }
    if (!literal.take(',') && !literal.begins('}')) literal.wrong("a comma");
  }
  literal.end();
  if (seen != 7) refuse("header without descr, fortran_order or shape");
  return header;
}

std::string shape_of(const Header& header) {
  std::string text = "(";
  for (size_t i = 0; i < header.shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(header.shape[i]);
  return text + (header.shape.size() == 1 ? ",)" : ")");
}

// Bytes of all numbers; more than the file holds is an error.
void check_size(const Header& header, int64_t item_bytes, int64_t left) {
  double bytes = static_cast<double>(item_bytes);
  for (const int64_t extent : header.shape) bytes *= static_cast<double>(extent);
  if (bytes <= static_cast<double>(left)) return;
  const std::string needed = bytes < 0x1p53 ? std::to_string(static_cast<int64_t>(bytes))
                                            : "more than " + std::to_string(left);
  refuse("shape " + shape_of(header) + " of " +
         (header.structured ? "records" : number_name(header.fields[0].type)) + " needs " + needed +
         " bytes, found " + std::to_string(left) + ": truncated, or the shape is wrong");
}

Header read_header(InputFile& file, int64_t* begin) {
  const std::string magic("\x93NUMPY");
  const std::string head = file.read(0, std::min<int64_t>(file.size(), 12));
  if (head.size() < 10 || head.compare(0, magic.size(), magic) != 0)
    refuse("it does not begin with the magic bytes of NPY");
  const int major = head[6], minor = head[7];
  if (major < 1 || major > 3 || minor != 0)
    refuse("format (" + std::to_string(major) + ", " + std::to_string(minor) +
           "), expected 1.0, 2.0 or 3.0");
  uint32_t length = 0;
  const int64_t bytes = major == 1 ? 2 : 4;
  file.read(8, reinterpret_cast<char*>(&length), bytes);
  if (length > kHeaderLimit)
    refuse("header longer than " + std::to_string(kHeaderLimit) + " bytes");
  *begin = 8 + bytes + length;
  if (*begin > file.size())
    refuse("header of " + std::to_string(length) + " bytes, found " +
           std::to_string(file.size() - 8 - bytes) + ": truncated");
  const std::string text = file.read(8 + bytes, length);
  return parse(major < 3 ? utf8(text) : text);
}

}  // namespace

Table read_npy_header(InputFile& file) {
  Table table;
  Header header = read_header(file, &table.begin);
  const int64_t left = file.size() - table.begin;
  if (header.structured) {
    if (header.shape.size() != 1)
      refuse("structured array of shape " + shape_of(header) + ", expected (N,)");
    if (header.fields.empty()) refuse("structured array without fields");
    int64_t bytes = 0;
    for (size_t i = 0; i < header.fields.size(); ++i) {
      Field& field = header.fields[i];
      field.value_bytes = number_bytes(field.type);
      field.at = bytes += header.gaps[i];
      bytes += field.width * field.value_bytes;
    }
    bytes += header.gaps.back();
    for (Field& field : header.fields) field.row_bytes = bytes;
    check_fits(0, bytes, 0, "points");
    check_size(header, bytes, left);
    table.fields = std::move(header.fields);
    table.finish = [](std::vector<NamedColumn> c) {
      return gather(std::move(c), "structured array");
    };
  } else {
    const int64_t item = number_bytes(header.fields[0].type);
    check_size(header, item, left);
    if (header.shape.size() != 2 || header.shape[1] < 3)
      refuse("found an array of shape " + shape_of(header) +
             ", expected (N, C) with C >= 3: x, y, z first");
    const int64_t n = header.shape[0], c = header.shape[1];
    const int64_t row = header.by_column ? item : c * item,
                  value = header.by_column ? n * item : item;
    if (!header.by_column) check_fits(0, row, 0, "points");
    for (const auto& [name, first, width] :
         {std::tuple("x", 0, int64_t{1}), std::tuple("y", 1, int64_t{1}),
          std::tuple("z", 2, int64_t{1}), std::tuple("features", 3, c - 3)})
      if (width > 0)
        table.fields.push_back({name, header.fields[0].type, width, first * value, row, value,
                                header.fields[0].swapped});
    if (header.by_column)
      table.unpacked = std::make_shared<const std::string>(file.read(table.begin, n * c * item));
    table.finish = [](std::vector<NamedColumn> columns) {
      return gather(std::move(columns), "array");
    };
  }
  table.rows = header.shape[0];
  return table;
}

}  // namespace lattice::io

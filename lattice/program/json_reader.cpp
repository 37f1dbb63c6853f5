#include "lattice/program/json_reader.h"

#include <charconv>
#include <cstdio>

#include "lattice/core/errors.h"

namespace lattice::program {

void JsonReader::fail(const std::string& what) const {
  throw Error(ErrorCode::file,
              "[Program.load] byte " + std::to_string(at_ + 8) + " of the header: " + what,
              "Program.load", "path");
}

void JsonReader::space() {
  while (at_ < text_.size() &&
         (text_[at_] == ' ' || text_[at_] == '\n' || text_[at_] == '\r' || text_[at_] == '\t'))
    ++at_;
}

bool JsonReader::take(char sign) {
  space();
  if (at_ >= text_.size() || text_[at_] != sign) return false;
  ++at_;
  space();
  return true;
}

bool JsonReader::take_null() {
  space();
  if (!text_.substr(at_).starts_with("null")) return false;
  at_ += 4;
  space();
  return true;
}

void JsonReader::expect(char sign) {
  if (!take(sign)) fail(std::string("expected `") + sign + "`");
}

uint32_t JsonReader::hex4() {
  uint32_t value = 0;
  if (text_.size() - at_ < 4) fail("a \\u needs four digits");
  const char* begin = text_.data() + at_;
  const auto [end, error] = std::from_chars(begin, begin + 4, value, 16);
  if (error != std::errc() || end != begin + 4) fail("a \\u needs four digits");
  at_ += 4;
  return value;
}

void JsonReader::put_utf8(std::string& out, uint32_t code) const {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | (code >> 6));
    put(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

std::string JsonReader::text() {
  space();
  if (at_ >= text_.size() || text_[at_] != '"') fail("expected a text in quotes");
  ++at_;
  std::string out;
  while (at_ < text_.size() && text_[at_] != '"') {
    const char c = text_[at_++];
    if (static_cast<unsigned char>(c) < 0x20) fail("a text must not hold control characters");
    if (c != '\\') {
      out += c;
      continue;
    }
    if (at_ >= text_.size()) fail("the text does not end");
    static constexpr std::string_view kNames = "\"\\/bfnrt", kSigns = "\"\\/\b\f\n\r\t";
    const char name = text_[at_++];
    if (const size_t found = kNames.find(name); found != std::string_view::npos) {
      out += kSigns[found];
    } else if (name == 'u') {
      uint32_t code = hex4();
      if (code >= 0xD800 && code < 0xDC00) {
        if (text_.substr(at_, 2) != "\\u") fail("half of a surrogate pair");
        at_ += 2;
        const uint32_t low = hex4();
        if (low < 0xDC00 || low >= 0xE000) fail("half of a surrogate pair");
        code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00);
      }
      put_utf8(out, code);
    } else {
      fail("unknown escape");
    }
  }
  if (at_ >= text_.size()) fail("the text does not end");
  ++at_;
  space();
  return out;
}

int64_t JsonReader::integer() {
  space();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text_.data() + at_, text_.data() + text_.size(), value);
  if (error != std::errc()) fail("expected an integer");
  at_ = static_cast<size_t>(end - text_.data());
  space();
  return value;
}

std::vector<int64_t> JsonReader::integers() {
  std::vector<int64_t> values;
  expect('[');
  while (!take(']')) {
    if (!values.empty()) expect(',');
    values.push_back(integer());
    if (values.size() > 16) fail("more than 16 numbers");
  }
  return values;
}

void JsonReader::end() {
  space();
  if (at_ != text_.size()) fail("something stands behind the end");
}

std::string json_text(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (c == '\n') {
      out += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char code[8];
      std::snprintf(code, sizeof(code), "\\u%04x", static_cast<unsigned>(c));
      out += code;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace lattice::program

#include "lattice/program/text_cursor.h"

#include <charconv>
#include <cmath>
#include <limits>

namespace lattice::program {

namespace {

bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

}  // namespace

void TextCursor::fail(const std::string& what, ErrorCode code) const {
  throw Error(code,
              "[Program.load] line " + std::to_string(number_) + ", column " +
                  std::to_string(at_ + 1) + ": " + what,
              "Program.load", "graph");
}

void TextCursor::space() {
  while (peek() == ' ') ++at_;
}

bool TextCursor::take(std::string_view text) {
  if (line_.substr(at_, text.size()) != text) return false;
  at_ += text.size();
  return true;
}

void TextCursor::expect(std::string_view text) {
  if (!take(text))
    fail("expected `" + std::string(text) + "`, found " +
         (done() ? "the end of the line" : "`" + std::string(line_.substr(at_, 20)) + "`"));
}

std::string TextCursor::name(const char* what) {
  const size_t begin = at_;
  if (is_letter(peek()))
    while (is_letter(peek()) || is_digit(peek()) || peek() == '.') ++at_;
  if (begin == at_ || line_.substr(begin, at_ - begin) == "_") {
    at_ = begin;
    fail("expected " + std::string(what) + ", found " +
         (done() ? "the end of the line" : "`" + std::string(line_.substr(at_, 20)) + "`"));
  }
  return std::string(line_.substr(begin, at_ - begin));
}

std::string TextCursor::quoted() {
  expect("\"");
  std::string text;
  while (!done() && peek() != '"') {
    if (peek() == '\\') {
      ++at_;
      if (peek() != '"' && peek() != '\\') fail("only \\\" and \\\\ may stand in a text");
    }
    if (static_cast<unsigned char>(peek()) < 0x20) fail("a text must not hold control characters");
    text += peek();
    ++at_;
  }
  expect("\"");
  return text;
}

std::string_view TextCursor::word() const {
  size_t end = at_;
  while (end < line_.size() && (is_letter(line_[end]) || is_digit(line_[end]) ||
                                line_[end] == '.' || line_[end] == '-' || line_[end] == '+'))
    ++end;
  return line_.substr(at_, end - at_);
}

bool TextCursor::at_number() const {
  const std::string_view text = word();
  return !text.empty() && (is_digit(text[0]) || text[0] == '-' || text == "inf" || text == "nan");
}

int64_t TextCursor::integer(const char* what) {
  const std::string_view text = word();
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size())
    fail(std::string(what) + " must be an integer of 64 bits, found `" + std::string(text) + "`");
  at_ += text.size();
  return value;
}

double TextCursor::number(const char* what) {
  const std::string_view text = word();
  double value = 0;
  if (text == "inf" || text == "-inf" || text == "nan") {
    value = text == "nan" ? std::numeric_limits<double>::quiet_NaN()
                          : (text[0] == '-' ? -1 : 1) * std::numeric_limits<double>::infinity();
  } else {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value))
      fail(std::string(what) + " must be a number, found `" + std::string(text) + "`");
  }
  at_ += text.size();
  return value;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char text[64];
  const auto result = std::to_chars(text, text + sizeof(text), value);
  return {text, result.ptr};
}

std::string quoted_text(std::string_view text) {
  std::string made = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') made += '\\';
    made += c;
  }
  return made + "\"";
}

}  // namespace lattice::program

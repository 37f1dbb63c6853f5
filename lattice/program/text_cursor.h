// A cursor over one line of a graph. Errors name the line and the column.
#pragma once

#include <string>
#include <string_view>

#include "lattice/core/errors.h"

namespace lattice::program {

class TextCursor {
 public:
  TextCursor(std::string_view line, int number) : line_(line), number_(number) {}

  int number() const { return number_; }
  bool done() const { return at_ == line_.size(); }
  char peek() const { return done() ? '\0' : line_[at_]; }
  // Skips spaces.
  void space();
  // Whether `text` comes next, which is then skipped.
  bool take(std::string_view text);
  // The same; otherwise an error that says so.
  void expect(std::string_view text);
  // A name: a letter or `_`, then letters, digits, `_` and `.`.
  std::string name(const char* what);
  // A text in quotes, with \" and \\ inside.
  std::string quoted();
  // A whole number, and a number as a decimal, inf, -inf or nan.
  int64_t integer(const char* what);
  double number(const char* what);
  // Whether a number comes next.
  bool at_number() const;

  [[noreturn]] void fail(const std::string& what, ErrorCode code = ErrorCode::file) const;

 private:
  std::string_view word() const;
  std::string_view line_;
  int number_;
  size_t at_ = 0;
};

// The shortest decimal that reads back as the same number.
std::string number_text(double value);
// In quotes.
std::string quoted_text(std::string_view text);

}  // namespace lattice::program

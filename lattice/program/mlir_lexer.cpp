#include "lattice/program/mlir_lexer.h"

#include <cctype>

#include "lattice/program/mlir_error.h"

namespace lattice::program::mlir {
namespace {

constexpr size_t kLongestText = size_t{64} << 20;

bool is_letter(char c) { return std::isalpha(static_cast<unsigned char>(c)) || c == '_'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool in_name(char c) { return is_letter(c) || is_digit(c) || c == '$' || c == '.'; }

// The length of the character of UTF-8 that begins here; 0: none does.
size_t character(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const size_t length = byte(0) < 0x80             ? 1
                        : (byte(0) & 0xE0) == 0xC0 ? 2
                        : (byte(0) & 0xF0) == 0xE0 ? 3
                        : (byte(0) & 0xF8) == 0xF0 ? 4
                                                   : 0;
  if (length == 0 || length > text.size() || byte(0) == 0) return 0;
  for (size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xC0) != 0x80) return 0;
  return length;
}

// Messages repeat parts of the text, so all of it must be readable.
void check_characters(std::string_view text) {
  int line = 1;
  for (size_t i = 0, length = 0; i < text.size(); i += length) {
    length = character(text.substr(i));
    if (length == 0) fail_at(line, "found a byte that is no character of UTF-8");
    line += text[i] == '\n';
  }
}

class Lexer {
 public:
  explicit Lexer(std::string_view text) : text_(text) {}

  std::vector<Token> run() {
    std::vector<Token> found;
    do {
      skip_space();
      found.push_back(next());
    } while (found.back().kind != Token::Kind::end);
    return found;
  }

 private:
  char at(size_t ahead = 0) const {
    return here_ + ahead < text_.size() ? text_[here_ + ahead] : 0;
  }

  void skip_space() {
    while (here_ < text_.size()) {
      if (text_[here_] == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(text_[here_])))
        ++here_;
      else if (at() == '/' && at(1) == '/')
        while (here_ < text_.size() && text_[here_] != '\n') ++here_;
      else
        return;
    }
  }

  Token token(Token::Kind kind, size_t begin) const {
    return {kind, std::string(text_.substr(begin, here_ - begin)), line_};
  }

  Token name(Token::Kind kind, size_t begin) {
    while (in_name(at())) ++here_;
    if (here_ == begin)
      fail_at(line_, "a name is missing behind '" + std::string(1, text_[begin - 1]) + "'");
    return token(kind, begin);
  }

  // Floats have a point: 1e-05 is the integer 1 and the word e-05.
  Token number() {
    const size_t begin = here_;
    if (at() == '-') ++here_;
    if (at() == '0' && at(1) == 'x')  // shapes, such as 0x4xf32, are read elsewhere
      fail_at(line_, "hexadecimal numbers are not read; write a decimal number");
    while (is_digit(at())) ++here_;
    if (at() != '.') return token(Token::Kind::integer, begin);
    ++here_;
    while (is_digit(at())) ++here_;
    if (at() == 'e' || at() == 'E') {
      const size_t sign = at(1) == '-' || at(1) == '+' ? 2 : 1;
      if (is_digit(at(sign))) {
        here_ += sign;
        while (is_digit(at())) ++here_;
      }
    }
    return token(Token::Kind::real, begin);
  }

  Token string() {
    const int begin = line_;
    std::string value;
    for (++here_; at() != '"'; ++here_) {
      if (here_ >= text_.size() || at() == '\n')
        fail_at(begin, "a string has no end; expected '\"'");
      if (at() == '\\') {
        ++here_;
        if (at() != '"' && at() != '\\')
          fail_at(line_, "strings know only the escapes \\\" and \\\\");
      }
      value += at();
    }
    ++here_;
    return {Token::Kind::string, value, begin};
  }

  // The shape of a tensor holds words such as ?x4xi32: one token from < to >. MLIR also reads
  // spaces around an x.
  Token shape() {
    Token made{Token::Kind::word, "", line_};
    for (bool apart = false; is_digit(at()) || is_letter(at()) || at() == '?';) {
      if (apart && at() != 'x' && made.text.back() != 'x') break;
      made.text += text_[here_++];
      const size_t before = here_;
      skip_space();
      apart = here_ != before;
    }
    return made;
  }

  Token next() {
    const char c = at();
    if (here_ >= text_.size()) return {Token::Kind::end, "", line_};
    if (after_tensor_) {
      after_tensor_ = false;
      if (c == '<') {
        in_shape_ = true;
        ++here_;
        return {Token::Kind::sign, "<", line_};
      }
    }
    if (in_shape_) {
      in_shape_ = false;
      if (is_digit(c) || is_letter(c) || c == '?') return shape();
    }
    if (is_letter(c)) {
      Token word = name(Token::Kind::word, here_);
      after_tensor_ = word.text == "tensor";
      return word;
    }
    if (is_digit(c) || (c == '-' && is_digit(at(1)))) return number();
    ++here_;
    switch (c) {
      case '%':
        return name(Token::Kind::value, here_);
      case '@':
        if (at() == '"') return {Token::Kind::symbol, string().text, line_};
        return name(Token::Kind::symbol, here_);
      case '!':
        return name(Token::Kind::type, here_);
      case '#':
        return name(Token::Kind::tag, here_);
      case '"':
        --here_;
        return string();
      case '-':
        if (at() == '>') {
          ++here_;
          return {Token::Kind::sign, "->", line_};
        }
        break;
      default:
        if (std::string_view("{}()[]<>:,=?").find(c) != std::string_view::npos)
          return {Token::Kind::sign, std::string(1, c), line_};
    }
    const std::string found(text_.substr(here_ - 1, character(text_.substr(here_ - 1))));
    fail_at(line_, "found the character '" + found + "', which has no place here");
  }

  std::string_view text_;
  size_t here_ = 0;
  int line_ = 1;
  bool after_tensor_ = false, in_shape_ = false;
};

}  // namespace

std::vector<Token> tokens(std::string_view text) {
  if (text.size() > kLongestText) fail_at(1, "the text is longer than 64 MB");
  check_characters(text);
  return Lexer(text).run();
}

std::string told(const Token& token) {
  switch (token.kind) {
    case Token::Kind::end:
      return "the end of the text";
    case Token::Kind::value:
      return "%" + token.text;
    case Token::Kind::symbol:
      return "@" + token.text;
    case Token::Kind::type:
      return "!" + token.text;
    case Token::Kind::tag:
      return "#" + token.text;
    case Token::Kind::string:
      return "the string \"" + token.text + "\"";
    default:
      return "'" + token.text + "'";
  }
}

}  // namespace lattice::program::mlir

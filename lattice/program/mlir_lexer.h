// Words of the older package's graph text.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace lattice::program::mlir {

struct Token {
  // word: letters, digits, `_ $ .`; value: %name; symbol: @name; type: !name; tag: #name.
  enum class Kind { end, word, value, symbol, type, tag, string, integer, real, sign };
  Kind kind = Kind::end;
  std::string text;  // without its first character for values, symbols, types and tags
  int line = 1;
};

// All tokens, the last of kind `end`. Throws Error that names the line.
std::vector<Token> tokens(std::string_view text);

// The name of a token in messages.
std::string told(const Token& token);

}  // namespace lattice::program::mlir

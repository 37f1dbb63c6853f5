#include "lattice/program/mlir_text.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

#include "lattice/program/mlir_error.h"
#include "lattice/program/mlir_lexer.h"

namespace lattice::program::mlir {
namespace {

using Kind = Token::Kind;

// Attributes of a module that verify() reads.
constexpr std::string_view kOfModules[] = {
    "lattice.ir_version",   "lattice.schema_digest", "lattice.input_names", "lattice.input_roles",
    "lattice.output_names", "lattice.output_roles",  "lattice.weight_file"};

class Parser {
 public:
  explicit Parser(std::string_view text) : tokens_(tokens(text)) {}

  Module run() {
    expect_word("module");
    if (is(Kind::symbol)) ++here_;
    expect_word("attributes");
    module_.attributes = dictionary(true);
    expect("{");
    if (!is_word("func.func"))
      wrong("exactly one function, func.func @forward; a lattice artifact has nothing else");
    function();
    if (is_word("func.func")) wrong("'}', because a lattice artifact has exactly one function");
    expect("}");
    if (!is(Kind::end)) wrong("the end of the text");
    return std::move(module_);
  }

 private:
  const Token& now() const { return tokens_[here_]; }
  bool is(Kind kind) const { return now().kind == kind; }
  bool is(const char* sign) const { return is(Kind::sign) && now().text == sign; }
  bool is_word(const char* word) const { return is(Kind::word) && now().text == word; }
  [[noreturn]] void wrong(const std::string& expected) const {
    fail_at(now().line, "found " + told(now()) + ", expected " + expected);
  }
  void expect(const char* sign) {
    if (!is(sign)) wrong("'" + std::string(sign) + "'");
    ++here_;
  }
  void expect_word(const char* word) {
    if (!is_word(word)) wrong("'" + std::string(word) + "'");
    ++here_;
  }
  bool take(const char* sign) {
    if (!is(sign)) return false;
    ++here_;
    return true;
  }
  std::string take(Kind kind, const char* expected) {
    if (!is(kind)) wrong(expected);
    return tokens_[here_++].text;
  }

  // [a, b, c] without its brackets, up to `end`.
  template <typename F>
  void list(const char* end, const F& item) {
    if (take(end)) return;
    do item();
    while (take(","));
    expect(end);
  }

  int64_t integer() {
    const Token found = now();
    const std::string text = take(Kind::integer, "an integer");
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size())
      fail_at(found.line, "found " + told(found) + ", expected an integer that fits 64 bits");
    return value;
  }
  double real() {
    const Token found = now();
    if (is(Kind::integer)) wrong("a number with a point, such as 1.0");
    const std::string text = take(Kind::real, "a number with a point, such as 1.0");
    double value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = end == text.data() + text.size() || *end == '.';
    if (error != std::errc() || !whole || !std::isfinite(value))
      fail_at(found.line, "found " + told(found) + ", expected a number that fits float64");
    return value;
  }

  Attribute array() {
    Attribute made;
    expect("<");
    made.suffix = take(Kind::word, "i64 or f64");
    if (made.suffix == "i64")
      made.kind = Attribute::Kind::integers;
    else if (made.suffix == "f64")
      made.kind = Attribute::Kind::reals;
    else
      fail_at(now().line, "found array<" + made.suffix +
                              ">, expected array<i64: ...> or "
                              "array<f64: ...>");
    if (take(">")) return made;
    expect(":");
    list(">", [&] {
      if (made.kind == Attribute::Kind::integers)
        made.integers.push_back(integer());
      else
        made.reals.push_back(real());
    });
    return made;
  }

  // #lattice.name<word>, and the fields of a packing behind it.
  Attribute tag() {
    Attribute made;
    made.kind = Attribute::Kind::word;
    const std::string name = take(Kind::tag, "an attribute");
    if (!name.starts_with("lattice."))
      fail_at(now().line, "found #" + name + ", expected an attribute of lattice");
    made.suffix = name.substr(8);
    expect("<");
    made.text = is(Kind::string) ? take(Kind::string, "") : take(Kind::word, "a word");
    while (take(",")) {
      const std::string key = take(Kind::word, "the name of a field");
      expect("=");
      std::string value = is(Kind::integer)  ? tokens_[here_++].text
                          : is(Kind::string) ? tokens_[here_++].text
                                             : take(Kind::word, "a word or an integer");
      if (!made.fields.emplace(key, std::move(value)).second)
        fail_at(now().line, "the field " + key + " is given twice");
    }
    expect(">");
    return made;
  }

  Attribute attribute() {
    Attribute made;
    if (is(Kind::string)) {
      made.text = take(Kind::string, "");
    } else if (is(Kind::integer)) {
      made.kind = Attribute::Kind::integer;
      made.integer = integer();
      made.suffix = "i64";
      if (take(":")) made.suffix = take(Kind::word, "the type of an integer, such as i64");
      if (made.suffix[0] == 'f' || made.suffix[0] == 'b')
        fail_at(now().line, "found an integer of type " + made.suffix +
                                ", expected a number with a point, such as 1.0");
    } else if (is(Kind::real)) {
      made.kind = Attribute::Kind::real;
      made.real = real();
      made.suffix = "f64";
      if (take(":")) made.suffix = take(Kind::word, "the type of a number, such as f32");
    } else if (take("[")) {
      made.kind = Attribute::Kind::strings;
      list("]", [&] { made.strings.push_back(take(Kind::string, "a string")); });
    } else if (is_word("array")) {
      ++here_;
      made = array();
    } else {
      made = tag();
    }
    return made;
  }

  // A module may have further attributes, of any form that MLIR knows; they mean nothing here.
  Attributes dictionary(bool of_module = false) {
    Attributes made;
    expect("{");
    list("}", [&] {
      const int line = now().line;
      const std::string key =
          is(Kind::string) ? take(Kind::string, "") : take(Kind::word, "the name of an attribute");
      const auto [place, fresh] = made.emplace(key, Attribute());
      if (!fresh) fail_at(line, "the attribute " + key + " is given twice");
      if (of_module &&
          std::find(std::begin(kOfModules), std::end(kOfModules), key) == std::end(kOfModules)) {
        skip_value();
        return;
      }
      expect("=");
      place->second = attribute();
    });
    return made;
  }

  // Up to the comma or the brace behind an attribute.
  void skip_value() {
    const auto any = [&](std::string_view signs) {
      return is(Kind::sign) && now().text.size() == 1 && signs.find(now().text) != signs.npos;
    };
    for (int depth = 0; depth > 0 || !any(",}"); ++here_) {
      if (is(Kind::end)) wrong("'}'");
      depth += any("{[(<") ? 1 : any("}])>") ? -1 : 0;
      if (depth < 0) wrong("',' or '}'");
    }
  }

  // "key = word" of a sparse type; the order is fixed.
  std::string field(const char* key) {
    expect_word(key);
    expect("=");
    if (is(Kind::integer)) return tokens_[here_++].text;
    return take(Kind::word, "a word");
  }
  Type sparse() {
    Type made;
    made.kind = Type::Kind::sparse;
    const int line = now().line;
    expect("<");
    const auto check = [&](const char* key, const std::string& found, const std::string& expected) {
      if (found != expected)
        fail_at(line, "a sparse tensor has " + std::string(key) + " = " + found + ", expected " +
                          expected);
    };
    check("rank", field("rank"), "3");
    expect(",");
    check("coord", field("coord"), "batch_x_y_z");
    expect(",");
    check("feature", field("feature"), "row_channel");
    expect(",");
    made.dtype = field("dtype");
    expect(">");
    return made;
  }
  Type weight() {
    Type made;
    made.kind = Type::Kind::weight;
    expect("<");
    made.family = take(Kind::word, "the family of a weight");
    expect(",");
    made.dtype = take(Kind::word, "a dtype");
    expect(">");
    return made;
  }
  Type tensor() {
    Type made;
    expect("<");
    const int line = now().line;
    const std::string text = take(Kind::word, "a shape, such as ?x4xi32");
    size_t at = 0;
    while (at < text.size() && (text[at] == '?' || (text[at] >= '0' && text[at] <= '9'))) {
      size_t end = text.find('x', at);
      if (end == std::string::npos) end = text.size();
      int64_t size = -1;
      if (text[at] != '?') {
        const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, size);
        if (error != std::errc() || stop != text.data() + end || size > INT32_MAX)
          fail_at(line, "found the shape " + text + ", expected sizes below 2^31");
      } else if (end != at + 1) {
        fail_at(line, "found the shape " + text + ", expected '?' or a size between two 'x'");
      }
      made.shape.push_back(size);
      at = std::min(end + 1, text.size());
    }
    made.dtype = text.substr(at);
    if (made.dtype.empty() || made.shape.size() > 8)
      fail_at(line, "found the tensor type " + text + ", expected sizes and a dtype");
    expect(">");
    return made;
  }
  // `hint`: what a type without its name is, as MLIR's printer writes it.
  Type type(std::optional<Type::Kind> hint = std::nullopt) {
    if (is("<") && hint) return *hint == Type::Kind::sparse ? sparse() : weight();
    if (is_word("tensor")) {
      ++here_;
      return tensor();
    }
    const Token found = now();
    const std::string name = take(Kind::type, "a type");
    if (name == "lattice.sparse_tensor") return sparse();
    if (name == "lattice.weight") return weight();
    fail_at(found.line, "found the type !" + name +
                            ", expected tensor, !lattice.sparse_tensor or !lattice.weight");
  }
  std::vector<Type> type_list() {
    std::vector<Type> made;
    expect("(");
    list(")", [&] { made.push_back(type()); });
    return made;
  }

  int define(const std::string& name, const Type& type, int line) {
    const int number = static_cast<int>(module_.types.size());
    if (!numbers_.emplace(name, number).second)
      fail_at(line, "%" + name + " is defined twice; give the second value a name of its own");
    module_.types.push_back(type);
    module_.names.push_back(name);
    return number;
  }
  int used() {
    const Token found = now();
    const std::string name = take(Kind::value, "a value, such as %x");
    const auto at = numbers_.find(name);
    if (at == numbers_.end())
      fail_at(found.line,
              "%" + name + " is used before it is defined; define it on an earlier line");
    return at->second;
  }
  void check_types(int line, const std::vector<int>& values, const std::vector<Type>& types,
                   const std::string& what) {
    if (values.size() != types.size())
      fail_at(line, what + " has " + std::to_string(values.size()) + " values and " +
                        std::to_string(types.size()) + " types");
    for (size_t i = 0; i < values.size(); ++i)
      if (module_.types[values[i]] != types[i])
        fail_at(line, "%" + module_.names[values[i]] + " is " + module_.types[values[i]].text() +
                          " where it is defined, and " + types[i].text() + " in " + what);
  }

  void function() {
    ++here_;
    const Token name = now();
    if (take(Kind::symbol, "@forward") != "forward")
      fail_at(name.line, "found " + told(name) + ", expected the function @forward");
    expect("(");
    list(")", [&] {
      const Token argument = now();
      take(Kind::value, "an argument, such as %x");
      expect(":");
      define(argument.text, type(), argument.line);
      if (is("{")) wrong("',' or ')'; attributes of arguments are not read");
    });
    module_.arguments = static_cast<int>(module_.types.size());
    std::vector<Type> results;
    if (take("->")) {
      if (is("("))
        results = type_list();
      else
        results.push_back(type());
    }
    expect("{");
    while (!is_word("return") && !is_word("func.return")) operation();
    returned(results);
    expect("}");
  }

  void returned(const std::vector<Type>& declared) {
    module_.return_line = now().line;
    ++here_;
    std::vector<Type> types;
    if (is(Kind::value)) {
      do module_.outputs.push_back(used());
      while (take(","));
      expect(":");
      do types.push_back(type());
      while (take(","));
    }
    check_types(module_.return_line, module_.outputs, types, "return");
    check_types(module_.return_line, module_.outputs, declared, "the result of @forward");
  }

  void operation() {
    Operation made;
    std::vector<Token> names;
    if (is(Kind::value)) {
      do {
        names.push_back(now());
        take(Kind::value, "a value, such as %x");
      } while (take(","));
      expect("=");
    }
    made.line = now().line;
    if (is(Kind::string)) wrong("an operation; the generic form of MLIR is not read");
    const std::string name = take(Kind::word, "an operation of lattice, or return");
    if (!name.starts_with("lattice."))
      fail_at(made.line,
              "found the operation " + name +
                  "; a lattice artifact may contain only operations of lattice and return",
              name);
    made.name = name.substr(8);
    if (made.name == "weight")
      take(Kind::symbol, "the symbol of the weight, such as @w");
    else if (is(Kind::value))
      do made.operands.push_back(used());
      while (take(","));
    if (is("{")) made.attributes = dictionary();
    expect(":");
    define_results(made, names, signature(made));
    module_.operations.push_back(std::move(made));
  }

  // The types of the results; those of the operands are compared.
  std::vector<Type> signature(const Operation& made) {
    if (made.name == "weight") return {type(Type::Kind::weight)};
    const std::string what = "the signature of lattice." + made.name;
    if (made.name == "sparse.decompose") {
      check_types(made.line, made.operands, {type(Type::Kind::sparse)}, what);
      expect("->");
      return type_list();
    }
    check_types(made.line, made.operands, type_list(), what);
    expect("->");
    return {type()};
  }
  void define_results(Operation& made, const std::vector<Token>& names,
                      const std::vector<Type>& types) {
    if (names.size() != types.size())
      fail_at(made.line, "lattice." + made.name + " has " + std::to_string(types.size()) +
                             " results, found " + std::to_string(names.size()) + " names");
    for (size_t i = 0; i < names.size(); ++i)
      made.results.push_back(define(names[i].text, types[i], names[i].line));
  }

  std::vector<Token> tokens_;
  size_t here_ = 0;
  Module module_;
  std::map<std::string, int> numbers_;
};

}  // namespace

std::string Type::text() const {
  if (kind == Kind::weight) return "!lattice.weight<" + family + ", " + dtype + ">";
  if (kind == Kind::sparse)
    return "!lattice.sparse_tensor<rank = 3, coord = batch_x_y_z, feature = row_channel, dtype = " +
           dtype + ">";
  std::string made = "tensor<";
  for (const int64_t size : shape) made += (size < 0 ? "?" : std::to_string(size)) + "x";
  return made + dtype + ">";
}

Module parse(std::string_view text) { return Parser(text).run(); }

}  // namespace lattice::program::mlir

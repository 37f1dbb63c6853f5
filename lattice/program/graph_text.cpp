// The text of graphs: parsing, printing, names of dtypes.
#include "lattice/program/graph.h"

#include <algorithm>
#include <array>
#include <unordered_map>

#include "lattice/program/operation.h"
#include "lattice/program/text_cursor.h"

namespace lattice::program {

namespace {

constexpr std::string_view kHead = "lattice-program ";
constexpr int64_t kVersion = 1;
constexpr size_t kMostValues = 1 << 20;

struct DtypeName {
  std::string_view name;
  mx::Dtype dtype;
};
const std::array<DtypeName, 12> kDtypes{{{"f32", mx::float32},
                                         {"f16", mx::float16},
                                         {"bf16", mx::bfloat16},
                                         {"i8", mx::int8},
                                         {"i16", mx::int16},
                                         {"i32", mx::int32},
                                         {"i64", mx::int64},
                                         {"u8", mx::uint8},
                                         {"u16", mx::uint16},
                                         {"u32", mx::uint32},
                                         {"u64", mx::uint64},
                                         {"bool", mx::bool_}}};

// Reads one graph: names of values, and the lines one by one.
class Parser {
 public:
  Graph parse(std::string_view text) {
    int number = 0;
    while (!text.empty()) {
      const size_t end = text.find('\n');
      if (end == std::string_view::npos)
        TextCursor(text, number + 1).fail("the last line must end with a line break");
      TextCursor line(text.substr(0, end), ++number);
      text.remove_prefix(end + 1);
      read_line(line);
    }
    if (number == 0) TextCursor("", 1).fail("the graph is empty; expected `lattice-program 1`");
    if (graph_.outputs.empty())
      TextCursor("", number).fail("the graph has no output; expected `output NAME = VALUE`");
    return std::move(graph_);
  }

 private:
  void read_line(TextCursor& line) {
    if (line.number() == 1) {
      line.expect(kHead);
      if (const int64_t found = line.integer("the version"); found != kVersion)
        line.fail("version must be 1, found " + std::to_string(found) +
                      "; a newer mlx-lattice reads this program",
                  ErrorCode::version);
    } else if (line.take("input ")) {
      read_input(line);
    } else if (line.take("output ")) {
      read_output(line);
    } else {
      read_node(line);
    }
    if (!line.done()) line.fail("expected the end of the line");
  }

  void read_input(TextCursor& line) {
    if (!graph_.nodes.empty()) line.fail("inputs must stand before the operations");
    ProgramPort port{define(line, line.name("the name of an input")), {}};
    line.expect(": ");
    if (line.take("sparse ")) port.type.kind = "sparse";
    port.type.dtype = read_dtype(line);
    line.expect("[");
    while (!line.take("]")) {
      if (!port.type.shape.empty()) line.expect(", ");
      port.type.shape.push_back(line.take("?") ? -1 : line.integer("a size"));
      if (port.type.shape.back() < -1 || port.type.shape.back() >= (int64_t{1} << 31))
        line.fail("a size must be in 0..2147483647");
      if (port.type.shape.size() > 8) line.fail("an input has at most 8 axes");
    }
    if (port.type.kind == "sparse") {
      if (port.type.shape.size() != 2 || port.type.shape[0] != -1 || port.type.shape[1] < 0)
        line.fail("a sparse input has the shape [?, channels] of its features");
      line.expect(" stride=");
      const auto stride =
          read_list<int64_t>(line, {"stride", AttributeType::integers, false, 3, 1});
      port.type.stride = {stride[0], stride[1], stride[2]};
    } else if (line.take(" lengths of ")) {
      port.type.lengths_of = line.name("an input");
      const auto found = numbers_.find(port.type.lengths_of);
      if (found == numbers_.end() || port.type.lengths_of == port.name)
        line.fail("`" + port.type.lengths_of + "` must be an input that stands before");
      if (port.type.shape != std::vector<int64_t>{-1} || port.type.dtype != mx::int32)
        line.fail("lengths must be i32[?]");
    }
    graph_.inputs.push_back(std::move(port));
    graph_.input_lines.push_back(line.number());
  }

  mx::Dtype read_dtype(TextCursor& line) {
    const std::string name = line.name("a dtype");
    const auto found = dtype_named(name);
    if (!found) line.fail("unknown dtype `" + name + "`", ErrorCode::version);
    return *found;
  }

  void read_output(TextCursor& line) {
    const std::string name = line.name("the name of an output");
    for (const auto& [other, value] : graph_.outputs)
      if (other == name) line.fail("output `" + name + "` stands twice");
    line.expect(" = ");
    graph_.outputs.emplace_back(name, use(line));
    graph_.output_lines.push_back(line.number());
  }

  void read_node(TextCursor& line) {
    if (!graph_.outputs.empty()) line.fail("outputs must stand behind the operations");
    std::vector<std::string> results;
    do {
      results.push_back(line.name("the name of a value, `input` or `output`"));
    } while (line.take(", "));
    line.expect(" = ");
    Node node;
    node.line = line.number();
    node.operation = read_operation(line);
    read_operands(line, node);
    read_attributes(line, node);
    if (!has_many_results(*node.operation) && results.size() != node.operation->results.size())
      line.fail(std::string(node.operation->name) + " gives " +
                std::to_string(node.operation->results.size()) + " values, found " +
                std::to_string(results.size()) + " names");
    for (const std::string& name : results) {
      define(line, name);
      node.results.push_back(static_cast<int>(graph_.names.size()) - 1);
    }
    graph_.nodes.push_back(std::move(node));
  }

  const Operation* read_operation(TextCursor& line) {
    const std::string name = line.name("an operation");
    line.expect("@");
    const int64_t version = line.integer("the version of an operation");
    const Operation* latest = latest_operation(name);
    if (!latest)
      line.fail("unknown operation `" + name + "`; a newer mlx-lattice may know it",
                ErrorCode::version);
    const Operation* found = version > 0 && version <= latest->version
                                 ? find_operation(name, static_cast<int>(version))
                                 : nullptr;
    if (!found)
      line.fail("unknown version " + std::to_string(version) + " of `" + name +
                    "`; this library knows versions up to " + std::to_string(latest->version),
                ErrorCode::version);
    return found;
  }

  void read_operands(TextCursor& line, Node& node) {
    line.expect("(");
    for (const Operand& operand : node.operation->operands) {
      if (!node.operands.empty()) line.expect(", ");
      node.operands.push_back(read_reference(line, operand));
    }
    line.expect(")");
  }

  Reference read_reference(TextCursor& line, const Operand& operand) {
    const bool list = operand.form == Operand::Form::list;
    Reference made;
    if (list) {
      line.expect("[");
      made.kind = Reference::Kind::list;
      while (!line.take("]")) {
        if (!made.items.empty()) line.expect(", ");
        made.items.push_back(read_item(line));
        if (made.items.size() > 1024) line.fail("a list has at most 1024 items");
      }
      return made;
    }
    if (line.take("_")) {
      if (operand.form != Operand::Form::optional)
        line.fail("`" + std::string(operand.name) + "` must be given, found `_`");
      return made;
    }
    return read_item(line);
  }

  Reference read_item(TextCursor& line) {
    Reference made;
    if (line.peek() == '"') {
      made.kind = Reference::Kind::tensor;
      made.tensor = line.quoted();
    } else if (line.at_number()) {
      made.kind = Reference::Kind::number;
      made.number = line.number("an operand");
    } else {
      made.kind = Reference::Kind::value;
      made.value = use(line);
    }
    return made;
  }

  void read_attributes(TextCursor& line, Node& node) {
    const Operation& operation = *node.operation;
    for (const Attribute& attribute : operation.attributes) {
      if (!line.take(" ")) line.fail(std::string("missing attribute `") + attribute.name + "`");
      const std::string name = line.name("an attribute");
      if (name != attribute.name) wrong_attribute(line, operation, name, attribute.name);
      line.expect("=");
      node.attributes.push_back(read_value(line, attribute));
    }
    if (line.take(" ")) {
      const std::string name = line.name("an attribute");
      wrong_attribute(line, operation, name, nullptr);
    }
  }

  [[noreturn]] static void wrong_attribute(const TextCursor& line, const Operation& operation,
                                           const std::string& found, const char* expected) {
    for (const Attribute& attribute : operation.attributes)
      if (found == attribute.name)
        line.fail("attribute `" + found + "` stands in the wrong place" +
                  (expected ? std::string("; expected `") + expected + "`" : ""));
    std::string known;
    for (const Attribute& attribute : operation.attributes)
      known += (known.empty() ? "" : ", ") + std::string(attribute.name);
    line.fail("unknown attribute `" + found + "` of " + operation.name + "@" +
                  std::to_string(operation.version) +
                  ", which has: " + (known.empty() ? "none" : known) +
                  "; remove it, or load the file with the mlx-lattice that wrote it",
              ErrorCode::version);
  }

  AttributeValue read_value(TextCursor& line, const Attribute& attribute) {
    const char* name = attribute.name;
    if (attribute.optional && line.take("none")) return {};
    switch (attribute.type) {
      case AttributeType::flag: {
        const int64_t value = line.integer(name);
        if (value != 0 && value != 1) line.fail(std::string(name) + " must be 0 or 1");
        return value == 1;
      }
      case AttributeType::integer:
        return read_integer(line, attribute);
      case AttributeType::number:
        return line.number(name);
      case AttributeType::text:
        return line.quoted();
      case AttributeType::integers:
        return read_list<int64_t>(line, attribute);
      case AttributeType::numbers:
        return read_list<double>(line, attribute);
    }
    line.fail("unknown kind of attribute");
  }

  static int64_t read_integer(TextCursor& line, const Attribute& attribute) {
    const int64_t value = line.integer(attribute.name);
    if (value < attribute.least || value > attribute.most)
      line.fail(std::string(attribute.name) + " must be in " + std::to_string(attribute.least) +
                ".." + std::to_string(attribute.most) + ", found " + std::to_string(value));
    return value;
  }

  template <typename T>
  std::vector<T> read_list(TextCursor& line, const Attribute& attribute) {
    line.expect("[");
    std::vector<T> values;
    while (!line.take("]")) {
      if (!values.empty()) line.expect(",");
      if constexpr (std::is_same_v<T, int64_t>)
        values.push_back(read_integer(line, attribute));
      else
        values.push_back(line.number(attribute.name));
    }
    if (attribute.length >= 0 && static_cast<int64_t>(values.size()) != attribute.length)
      line.fail(std::string(attribute.name) + " must have " + std::to_string(attribute.length) +
                " numbers, found " + std::to_string(values.size()));
    return values;
  }

  std::string define(const TextCursor& line, const std::string& name) {
    if (name == "input" || name == "output") line.fail("a value must not be called `" + name + "`");
    if (!numbers_.emplace(name, static_cast<int>(graph_.names.size())).second)
      line.fail("value `" + name + "` is defined twice");
    if (graph_.names.size() >= kMostValues) line.fail("a graph has at most 1048576 values");
    graph_.names.push_back(name);
    return name;
  }

  int use(TextCursor& line) {
    const std::string name = line.name("a value");
    const auto found = numbers_.find(name);
    if (found == numbers_.end())
      line.fail("value `" + name +
                "` is used before its definition; define it on an earlier line: operations stand in"
                " the order in which they run, so that a cycle cannot be written");
    return found->second;
  }

  Graph graph_;
  std::unordered_map<std::string, int> numbers_;
};

std::string reference_text(const Graph& graph, const Reference& reference) {
  switch (reference.kind) {
    case Reference::Kind::none:
      return "_";
    case Reference::Kind::value:
      return graph.names[static_cast<size_t>(reference.value)];
    case Reference::Kind::tensor:
      return quoted_text(reference.tensor);
    case Reference::Kind::number:
      return number_text(reference.number);
    case Reference::Kind::list:
      break;
  }
  std::string text = "[";
  for (const Reference& item : reference.items)
    text += (text.size() > 1 ? ", " : "") + reference_text(graph, item);
  return text + "]";
}

template <typename T>
std::string list_text(const std::vector<T>& values) {
  std::string text = "[";
  for (const T& value : values) {
    if (text.size() > 1) text += ",";
    if constexpr (std::is_same_v<T, int64_t>)
      text += std::to_string(value);
    else
      text += number_text(value);
  }
  return text + "]";
}

struct AttributeText {
  std::string operator()(std::monostate) const { return "none"; }
  std::string operator()(bool value) const { return value ? "1" : "0"; }
  std::string operator()(int64_t value) const { return std::to_string(value); }
  std::string operator()(double value) const { return number_text(value); }
  std::string operator()(const std::string& value) const { return quoted_text(value); }
  std::string operator()(const std::vector<int64_t>& values) const { return list_text(values); }
  std::string operator()(const std::vector<double>& values) const { return list_text(values); }
};

}  // namespace

std::optional<mx::Dtype> dtype_named(std::string_view name) {
  for (const DtypeName& known : kDtypes)
    if (known.name == name) return known.dtype;
  return std::nullopt;
}

std::string_view name_of(mx::Dtype dtype) {
  for (const DtypeName& known : kDtypes)
    if (known.dtype == dtype) return known.name;
  return "unknown";
}

std::string type_text(const ProgramType& type) {
  if (type.kind != "array" && type.kind != "sparse") return type.kind;
  std::string text = type.kind == "sparse" ? "sparse " : "";
  text += std::string(name_of(type.dtype)) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i)
    text += (i ? ", " : "") + (type.shape[i] < 0 ? "?" : std::to_string(type.shape[i]));
  text += "]";
  if (type.kind == "sparse")
    text += " stride=" + list_text<int64_t>({type.stride[0], type.stride[1], type.stride[2]});
  if (!type.lengths_of.empty()) text += " lengths of " + type.lengths_of;
  return text;
}

Graph parse_graph(std::string_view text) { return Parser().parse(text); }

std::string print_graph(const Graph& graph) {
  std::string text = std::string(kHead) + std::to_string(kVersion) + "\n";
  for (const ProgramPort& input : graph.inputs)
    text += "input " + input.name + ": " + type_text(input.type) + "\n";
  for (const Node& node : graph.nodes) {
    for (size_t i = 0; i < node.results.size(); ++i)
      text += (i ? ", " : "") + graph.names[static_cast<size_t>(node.results[i])];
    text += " = " + std::string(node.operation->name) + "@" +
            std::to_string(node.operation->version) + "(";
    for (size_t i = 0; i < node.operands.size(); ++i)
      text += (i ? ", " : "") + reference_text(graph, node.operands[i]);
    text += ")";
    for (size_t i = 0; i < node.attributes.size(); ++i)
      text += std::string(" ") + node.operation->attributes[i].name + "=" +
              std::visit(AttributeText(), node.attributes[i]);
    text += "\n";
  }
  for (const auto& [name, value] : graph.outputs)
    text += "output " + name + " = " + graph.names[static_cast<size_t>(value)] + "\n";
  return text;
}

}  // namespace lattice::program

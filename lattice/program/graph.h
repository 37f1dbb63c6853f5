// A graph as data: inputs, nodes in the order in which they run, outputs; and its text.
//
//   lattice-program 1
//   input x: sparse f32[N, 4]
//   a = conv3d@1(x, "stem.weight", _, _) kernel_size=[3,3,3] stride=[2,2,2] ...
//   b, c = to_slots@1(...) ...
//   output y = a
//
// docs/programs.md describes the text. Equal graphs have equal texts: print(parse(text)) is the
// canonical form.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "lattice/api.h"
#include "lattice/program/value.h"

namespace lattice::program {

// An argument in the brackets of a node: nothing (`_`), a value by its number, a tensor of the file
// by its name, or a number. `items` holds the elements of a list.
struct Reference {
  enum class Kind { none, value, tensor, number, list };
  Kind kind = Kind::none;
  int value = -1;
  std::string tensor;
  double number = 0;
  std::vector<Reference> items;
};

// none: an optional attribute that is absent.
using AttributeValue = std::variant<std::monostate, bool, int64_t, double, std::string,
                                    std::vector<int64_t>, std::vector<double>>;

struct Operation;

struct Node {
  const Operation* operation = nullptr;    // of the table, which also names and types the rest
  std::vector<Reference> operands;         // in the order of the table
  std::vector<AttributeValue> attributes;  // in the order of the table
  std::vector<int> results;                // numbers of values
  int line = 0;                            // of the text; 0: not from a text
};

struct Graph {
  std::vector<ProgramPort> inputs;  // input i is value i
  std::vector<Node> nodes;
  std::vector<std::pair<std::string, int>> outputs;  // name and value
  std::vector<std::string> names;                    // of the values, by number
  std::vector<int> input_lines, output_lines;
};

// Throws Error that names the line. Checks everything that can be checked from the text alone:
// operations, versions, attributes and their types, definition before use, names that occur twice.
Graph parse_graph(std::string_view text);
std::string print_graph(const Graph& graph);

// The dtype of "f32", "i32" and so on; nothing for an unknown name.
std::optional<mx::Dtype> dtype_named(std::string_view name);
LATTICE_API std::string_view name_of(mx::Dtype dtype);
// "sparse f32[N, 4]".
LATTICE_API std::string type_text(const ProgramType& type);

}  // namespace lattice::program

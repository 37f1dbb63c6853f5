// The text of the older package's artifact, version 2 (graph.mlir), as data: a small part of MLIR,
// in the spelling of its builder and in that of MLIR's printer. docs/from/older.md says what is
// read.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace lattice::program::mlir {

// tensor<?x4xi32>, !lattice.sparse_tensor<..., dtype = f32> or !lattice.weight<conv3d, f32>.
struct Type {
  enum class Kind { tensor, sparse, weight };
  Kind kind = Kind::tensor;
  std::string dtype;
  std::vector<int64_t> shape;  // of a tensor; -1: any size
  std::string family;          // of a weight
  bool operator==(const Type&) const = default;
  std::string text() const;
};

// "words" are lists of strings. `suffix` is the type that an integer or real names ("i64", "f32"),
// the element type of an array, and the name of a word ("pool_mode").
struct Attribute {
  enum class Kind { string, integer, real, strings, integers, reals, word };
  Kind kind = Kind::string;
  std::string text;
  int64_t integer = 0;
  double real = 0;
  std::vector<std::string> strings;
  std::vector<int64_t> integers;
  std::vector<double> reals;
  std::string suffix;
  std::map<std::string, std::string> fields;  // of #lattice.packing: group_size and others
};
using Attributes = std::map<std::string, Attribute>;

// Values are numbered in the order of their definition, arguments first.
struct Operation {
  std::string name;  // without "lattice."
  int line = 0;
  std::vector<int> operands, results;
  Attributes attributes;
};

struct Module {
  Attributes attributes;
  std::vector<Type> types;         // of the values
  std::vector<std::string> names;  // of the values, without %
  int arguments = 0;
  std::vector<Operation> operations;
  std::vector<int> outputs;
  int return_line = 0;
};

// Throws Error with the code `file` that names the line, what was found and what is expected. Types
// are compared wherever they are written again, and values are defined once and before their use.
Module parse(std::string_view text);

// Throws Error that names the line: everything that the older package's verifier and loader refuse.
void verify(const Module& module);

}  // namespace lattice::program::mlir

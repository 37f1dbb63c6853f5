// The table of operations: the name, operands and results of each, and how it is checked and run.
//
// An operation has the name, and its operands and attributes have the names, of the function of the
// extension that Python calls (python/bindings). So the recorder of an export needs no code for a
// single operation: a function is exportable when a row of this table has its name. One file for
// each group: ops_<topic>.cpp defines <topic>_operations(), and operation.cpp lists them.
//
// There is no second description of shapes and dtypes: a program is checked on load by a dry run on
// a few rows, in which every operation checks its own arguments and nothing is computed.
//
// A new meaning is a new version: another row with the same name and the next number. Rows are
// never removed, so that old files load.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "lattice/ops/conv.h"
#include "lattice/program/graph.h"

namespace lattice::program {

enum class AttributeType { flag, integer, number, text, integers, numbers };

struct Attribute {
  const char* name;
  AttributeType type;
  bool optional = false;                // `none` stands for its absence
  int64_t length = -1;                  // of integers and numbers: how many; -1: any
  int64_t least = -(int64_t{1} << 31);  // of integers
  int64_t most = (int64_t{1} << 31) - 1;
};

struct Operand {
  enum class Form { one, optional, list };
  const char* name;
  // "array", "sparse", "weight" (a tensor of the file, dense or packed), or the kind of an object;
  // several are separated by "|". An array may also be a number, which then has the dtype of the
  // other operand.
  const char* kind;
  Form form = Form::one;
};

// The tensors of a file.
using Tensors = std::map<std::string, Weight>;

// A node and its attributes by name.
class NodeView {
 public:
  explicit NodeView(const Node& node) : node_(node) {}
  bool has(const char* attribute) const;
  bool flag(const char* attribute) const;
  int64_t integer(const char* attribute) const;
  double number(const char* attribute) const;
  const std::string& text(const char* attribute) const;
  const std::vector<int64_t>& integers(const char* attribute) const;
  const std::vector<double>& numbers(const char* attribute) const;
  Triple triple(const char* attribute) const;
  std::optional<int64_t> optional_integer(const char* attribute) const;
  std::optional<float> optional_number(const char* attribute) const;
  const Node& node() const { return node_; }
  // "line 7: conv3d@1".
  std::string place() const;
  size_t operand_index(const char* operand) const;

 private:
  const AttributeValue& attribute(const char* name) const;
  const Node& node_;
};

// A node while it runs: values of its operands.
class Call : public NodeView {
 public:
  using Values = std::vector<std::vector<const ProgramValue*>>;  // of each operand; absent: empty
  using Weights = std::vector<const Weight*>;                    // of each operand
  Call(const Node& node, Values values, Weights weights)
      : NodeView(node), values_(std::move(values)), weights_(std::move(weights)) {}
  bool given(const char* operand) const;
  const mx::array& array(const char* operand) const;
  std::optional<mx::array> optional_array(const char* operand) const;
  std::vector<mx::array> arrays(const char* operand) const;
  const SparseTensor& sparse(const char* operand) const;
  std::optional<SparseTensor> optional_sparse(const char* operand) const;
  std::vector<SparseTensor> sparse_list(const char* operand) const;
  const ProgramValue& value(const char* operand) const;
  const Weight& weight(const char* operand) const;
  // The object of a kind, as object_value() made it.
  template <typename T>
  const T& object(const char* operand, const char* kind) const {
    return *static_cast<const T*>(held(operand, kind));
  }

 private:
  const void* held(const char* operand, const char* kind) const;
  Values values_;
  Weights weights_;
};

// When an operation can run, and under which heading its time is counted.
enum class Phase {
  features,  // lazy: reads coordinates now and values later
  geometry,  // depends on coordinates alone and is computed at once: `prepare` keeps the results
  decision,  // computed at once from values of features: ends what can be prepared
  voxelize,  // geometry that makes voxels of points
  points,    // features back onto points
};

struct Operation {
  const char* name;
  int version;
  std::vector<Operand> operands;
  std::vector<Attribute> attributes;
  std::vector<const char*> results;  // their kinds; {"array*"}: any number of arrays
  Phase phase;
  std::function<std::vector<ProgramValue>(const Call&)> run;
};

inline bool has_many_results(const Operation& row) {
  return row.results.size() == 1 && std::string_view(row.results[0]) == "array*";
}

// The row, or nullptr. `latest`: the newest version of the name.
const Operation* find_operation(std::string_view name, int version);
const Operation* latest_operation(std::string_view name);
// All rows by name and version.
LATTICE_API const std::vector<Operation>& operations();

// A value that is an object; Call::object<T> reads it. T may be a shared pointer.
template <typename T>
ProgramValue object_value(const char* kind, T held) {
  return ProgramObject{kind, std::make_shared<const T>(std::move(held))};
}

std::vector<Operation> array_operations();
std::vector<Operation> conv_operations();
std::vector<Operation> detection_operations();
std::vector<Operation> feature_operations();
std::vector<Operation> integer_operations();
std::vector<Operation> layout_operations();
std::vector<Operation> older_operations();
std::vector<Operation> point_operations();
std::vector<Operation> pool_operations();
std::vector<Operation> scan_operations();
std::vector<Operation> tensor_operations();

}  // namespace lattice::program

// A program after loading: the graph, its prepared tensors, and everything else that is known
// before it runs.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/program/operation.h"
#include "lattice/program/safetensors.h"

namespace lattice::program {

struct Loaded {
  Graph graph;
  std::string text;                          // of the graph, canonical
  std::map<std::string, std::string> notes;  // of the file, without the graph
  std::vector<ProgramPort> outputs;
  TensorFile example;  // names without "example."

  std::map<std::string, Weight> tensors;  // evaluated
  // The values of tensors and numbers in the arguments of nodes, by node, operand and item.
  struct Operands {
    std::vector<std::vector<ProgramValue>> values;  // monostate: a value of the graph
    std::vector<const Weight*> weights;             // of operands of kind "weight"
  };
  std::vector<Operands> operands;                    // of each node
  std::vector<std::shared_ptr<const Weight>> owned;  // what `weights` points to: packed kernels
  // Values that depend on tensors alone; the others are nothing. Their nodes do not run.
  std::vector<ProgramValue> constants;
  std::vector<int> last_use;   // node behind which a value is not read again; -1: never read
  std::vector<bool> prepared;  // nodes whose results `prepare` keeps
};

// From the contents of a file. Throws Error that names the line.
std::shared_ptr<const Loaded> load_program(TensorFile file);
// From a graph and its tensors, as the older format has them. `trials`: inputs of the dry run
// instead of few_rows(), at least two of different sizes; none: no dry run.
std::shared_ptr<const Loaded> load_graph(
    Graph graph, std::map<std::string, Weight> tensors,
    std::map<std::string, std::string> notes = {},
    const std::optional<std::vector<ProgramValues>>& trials = std::nullopt);

// The contents of a file: the graph in its canonical form, with its checksum.
LATTICE_API TensorFile program_file(const std::string& graph,
                                    std::map<std::string, mx::array> tensors,
                                    std::map<std::string, std::string> notes);

}  // namespace lattice::program

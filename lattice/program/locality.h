// Finds from the graph of a program which rows of the input a row of the output depends on.
//
// The network is walked backwards with half-open intervals, one axis at a time, in steps of the
// lattice of each value. Operations that are not known to be local are refused by name.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <vector>

#include "lattice/program/loaded.h"
#include "lattice/program/tile_box.h"

namespace lattice::program {

// low <= c < high; nothing where high <= low.
struct Interval {
  int64_t low = 0, high = 0;
  bool empty() const { return high <= low; }
  auto operator<=>(const Interval&) const = default;
  // The smallest interval around both.
  void include(const Interval& other);
};
using Box = std::array<Interval, 3>;

// How the rows of a result depend on those of its operands.
enum class Reach {
  none,     // the result has no rows: it depends on tensors alone
  rows,     // row r from row r of each operand
  gather,   // out * stride + offset - padding = in
  scatter,  // in * stride + offset - padding = out
};

struct Local {
  Reach reach = Reach::none;
  KernelSpec spec = {};
  bool centered = true;     // offsets of an odd size lie around 0
  std::vector<int> inputs;  // values that are gathered or scattered
  std::vector<int> beside;  // values that are read row by row
  int target = -1;          // the value whose coordinates the result has
  bool same_rows = true;    // the result has the coordinates of its operands
};

// A stage is a part of the network on one set of coordinates: it begins where coordinates are made
// or chosen, and values of earlier stages are cut to it where they enter it, such as the skips of a
// U-Net.
struct LocalGraph {
  std::vector<Local> nodes;
  std::vector<int> stage;     // of each value; -1: no rows
  std::vector<Triple> ratio;  // of each stage: steps of the input in one of its own
  std::vector<bool> ordered;  // of each stage: its rows are floor(input / ratio), first seen first
  int input = 0, output = 0;  // values
  // Whether the order of the output follows from that of the input by halving alone.
  bool keeps_order() const {
    return ordered[static_cast<size_t>(stage[static_cast<size_t>(output)])];
  }
  int64_t stages() const { return static_cast<int64_t>(ratio.size()); }
  const Triple& output_ratio() const {
    return ratio[static_cast<size_t>(stage[static_cast<size_t>(output)])];
  }
};

// Throws Error that names the operation which is not local, or why the program cannot be cut.
LocalGraph local_graph(const Loaded& program);

// The rows that are needed so that the rows inside of `own`, in steps of the output, equal those of
// the whole run.
struct Needs {
  std::vector<Box> stage;                // the rows of each stage
  std::vector<std::vector<Box>> enters;  // [from][to]: the rows of a stage that make another
};
Needs needs_of(const LocalGraph& graph, const Loaded& program, const Box& own);

// Corners of an axis that is not cut.
constexpr int64_t kFar = int64_t{1} << 40;

// The largest multiple of step that is not above value.
int64_t floor_to(int64_t value, int64_t step);
// A tile in steps of the output. Throws Error unless its corners are multiples of the ratio.
Box box_of(const TileBox& tile, const Triple& ratio);
// The rows of the input that a tile needs.
TileBox tile_input(const Loaded& program, const LocalGraph& graph, const TileBox& own);

}  // namespace lattice::program

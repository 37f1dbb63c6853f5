// Runs the nodes of a program in their order.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "lattice/program/loaded.h"
#include "lattice/program/program.h"

namespace lattice::program {

// The inputs of a frame, and the results of nodes that `prepare` kept.
struct Frame {
  std::shared_ptr<const Loaded> program;
  std::vector<ProgramValue> values;   // by number; nothing where it is not known
  double voxelize = 0, geometry = 0;  // milliseconds that preparing took
};

// Inputs by number. Throws Error for missing, unknown and wrong ones, and above max_points.
Frame frame_of(const std::shared_ptr<const Loaded>& program, const ProgramValues& inputs,
               const ProgramLimits& limits);

struct Execution {
  const ProgramLimits& limits;
  ProgramStats& stats;
  bool prepare_only = false;          // build what depends on coordinates; evaluate nothing
  const std::vector<int>* keep = {};  // values that stay beside the outputs
  // Features get no values. Operations that decide from features see zeros, so that no features are
  // computed.
  bool without_values = false;
  // Counts bytes as if the inputs had this many rows. No level has more rows, except where rows are
  // made.
  int64_t bound_rows = 0;
};
// All values that outputs and `keep` name, by number; lazy. Frees what is not read again.
std::vector<ProgramValue> execute(const Frame& frame, const Execution& execution);

// The results of one node on the values of a frame. Throws Error.
std::vector<ProgramValue> run_node(const Loaded& program, size_t index,
                                   const std::vector<ProgramValue>& values);

// Arrays of a value.
void append_arrays(const ProgramValue& value, std::vector<mx::array>& arrays);
// Inside a catch: the exception as Error, whose text begins with `place`.
[[noreturn]] void rethrow_at(const std::string& place, const char* operation);

// An upper bound of the bytes that values hold at once when the inputs have `rows` rows.
int64_t memory_bound(const std::shared_ptr<const Loaded>& program, int64_t rows);

// Inputs of a few rows, for the dry run: one cloud of two rows, or clouds of three and two.
ProgramValues few_rows(const std::vector<ProgramPort>& inputs, bool more);
// Runs the program on these inputs without computing it; sets the types of the outputs.
void dry_run(const std::shared_ptr<Loaded>& program, const std::vector<ProgramValues>& trials);

}  // namespace lattice::program

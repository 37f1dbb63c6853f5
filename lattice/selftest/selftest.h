// Runs every route of an available device, and every operation that needs no route, on cases with
// known answers.
#pragma once

#include <functional>

#include "lattice/api.h"
#include "lattice/selftest/cases.h"

namespace lattice {

// One line of selftest().
struct SelftestRow {
  std::string operation, route, device;  // an operation without routes: its device twice
  std::string label = {};
  double error = 0;          // oracle_error
  bool tf32 = false;         // the tolerance is that of TF32 products
  std::string failure = {};  // what was thrown, if anything
  bool unsupported = false;  // the device refused the kernel, as one without matrix units does
  uint64_t bits = 0;         // a hash of the result: the same for the same bits
  double seconds = 0;        // building, compiling if it is the first of its kind, and evaluating
  bool ok() const { return failure.empty() && error <= 1; }
};
// Whether this is the text of an error by which a GPU refuses a kernel that it has no units for.
LATTICE_API bool is_refusal(const std::string& error, const std::string& gpu);

// Runs every route of an available device, or of one device ("cpu", "gpu"), against the oracle. A
// GPU that a test stands in for counts as available. `prefix` keeps only routes whose name begins
// with it. `every`: of each route run the first case and then every so-many-th one. `tell` is
// called with the share that is done, 0..1.
LATTICE_API std::vector<SelftestRow> selftest(const std::string& device = "",
                                              const std::string& prefix = "", int every = 1,
                                              const std::function<void(double)>& tell = {});

}  // namespace lattice

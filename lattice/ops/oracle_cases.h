// Cases with known answers for every operation in the route table: what selftest() and the route tests run.
//
// The answer is computed edge by edge in float64 from the relation's public edges, which no fast kernel reads.
#pragma once

#include <string>
#include <vector>

#include "lattice/ops/routes.h"

namespace lattice {

struct OracleCase {
  std::string label;              // "submanifold 5 -> 7 float16"
  Call call;                      // device and stream are set by whoever runs it
  std::vector<double> expected;   // of the result, row-major
  std::vector<double> magnitude;  // sum of |terms|, to bound the float32 rounding of a sum
};

// All relation kinds, float32, float16 and bfloat16, odd channel counts, groups, bias, empty sets. The same on every machine.
std::vector<OracleCase> oracle_cases();

// Largest |result - expected| / tolerance over all elements, where tolerance = half a unit in the last place of one final
// rounding + 2^-20 * magnitude. At most 1 is right. Evaluates the result.
double oracle_error(const OracleCase& test, const mx::array& result);

// One line of selftest().
struct SelftestRow {
  std::string operation, route, device, label;
  double error = 0;     // oracle_error
  std::string failure;  // what was thrown, if anything
  bool ok() const { return failure.empty() && error <= 1; }
};
// Every route of an available device against the oracle.
std::vector<SelftestRow> selftest();

}  // namespace lattice

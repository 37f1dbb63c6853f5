// Cases with known answers for apply_each and outer_each; see oracle_cases.h.
#pragma once

#include "lattice/ops/oracle_cases.h"

namespace lattice {

void add_triplets_cases(std::vector<OracleCase>& cases);

}  // namespace lattice

// Cases with known answers for per_edge_apply and per_edge_outer; see oracle_cases.h.
#pragma once

#include "lattice/ops/oracle_cases.h"

namespace lattice {

void add_triplets_cases(std::vector<OracleCase>& cases);

}  // namespace lattice

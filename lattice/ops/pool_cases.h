// Cases with known answers for pool, segments and gather; see oracle_cases.h.
#pragma once

#include <vector>

#include "lattice/ops/oracle_cases.h"

namespace lattice {

void add_pool_cases(std::vector<OracleCase>& cases);

}  // namespace lattice

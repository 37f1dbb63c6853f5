// Rows of the route table for distance, all pairs of float32 rows a (N, C) and b (M, C) -> (N, M),
// and its cases with known answers.
#pragma once

#include "lattice/ops/oracle_cases.h"

namespace lattice {

// mode: "euclidean", "squared_euclidean" or "cosine".
Call distance_call(const mx::array& a, const mx::array& b, const std::string& mode,
                   mx::StreamOrDevice s);

void add_distance_routes(std::vector<Route>& rows);
void add_distance_cases(std::vector<OracleCase>& cases);

}  // namespace lattice

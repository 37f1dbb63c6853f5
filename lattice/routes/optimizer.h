// The question of a training step whether all its gradients are finite.
#pragma once

#include <mlx/array.h>

#include <string>
#include <vector>

#include "lattice/graph/output_spec.h"
#include "lattice/routes/decide.h"

namespace lattice::routes {

struct FiniteAsked {
  graph::Arrays arrays;
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};

const Table<FiniteAsked, mx::array>& all_finite_rows();
std::vector<FiniteAsked> probe_cases(const FiniteAsked& like);

// A scalar, true or false.
mx::array all_finite_with_metal(const FiniteAsked& asked);
mx::array all_finite_with_mlx(const FiniteAsked& asked);

}  // namespace lattice::routes

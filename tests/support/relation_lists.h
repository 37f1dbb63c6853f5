// Relations that tests of convolution run on.
#pragma once

#include <memory>

#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {

inline RelationLists submanifold(const support::Coords& coords) {
  const CoordSpan span{coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
  return relate_same(std::make_shared<const CoordIndex>(index_coords(span)), Kernel{});
}

// Every row with itself: a pointwise layer.
inline RelationLists identity(int64_t n) {
  RelationLists lists;
  lists.n_in = lists.n_out = lists.n_edges = n;
  lists.lists.push_back({nullptr, nullptr, n});
  return lists;
}

}  // namespace lattice::cpu

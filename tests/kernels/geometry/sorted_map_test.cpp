// The rows of a tile, sorted by their masks: how much of a tile's work belongs to an edge. A GPU
// multiplies 16 rows by an offset where one of them has it.
#include "lattice/kernels/cpu/geometry/sorted_map.h"

#include <gtest/gtest.h>

#include <bit>
#include <memory>
#include <vector>

#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Coords;

CoordSpan span(const Coords& c) { return {c.data(), static_cast<int64_t>(c.size()) / 4, false}; }

RelationLists strided(const Coords& c, const Kernel& kernel) {
  MadeCoords made;
  return relate_downscaled(span(c), std::make_shared<const CoordIndex>(index_coords(span(c))),
                           kernel, &made);
}

// Edges for each row that tiles multiply.
double share_sorted(const RelationLists& lists) {
  const auto n_out = static_cast<size_t>(lists.n_out), n_k = static_cast<size_t>(lists.n_k());
  std::vector<int32_t> map(n_out * n_k), order(n_out);
  std::vector<uint32_t> masks((n_out + 63) / 64 * 4);
  EXPECT_TRUE(sorted_map(lists, map.data(), order.data(), masks.data()));
  int64_t multiplied = 0;
  for (const uint32_t mask : masks) multiplied += 16 * std::popcount(mask);
  return static_cast<double>(lists.n_edges) / static_cast<double>(multiplied);
}

// docs/metal.md has the shares. Reversed, each input of the strided kernel meets few outputs.
TEST(SortedMap, ReversedRelationsFillTheirTiles) {
  const Kernel halved{.size = {2, 2, 2}, .stride = {2, 2, 2}};
  const Kernel wide{.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}};
  const auto check = [&](const Coords& coords, double down, double third, double reversed_third) {
    const RelationLists lists = strided(coords, wide);
    EXPECT_NEAR(share_sorted(strided(coords, halved)), down, 0.001);
    EXPECT_NEAR(share_sorted(lists), third, 0.001);
    EXPECT_NEAR(share_sorted(reversed(lists)), reversed_third, 0.001);
  };
  check(support::lidar(), 0.947, 0.626, 0.972);
  check(support::room(), 0.983, 0.728, 0.993);
}

}  // namespace
}  // namespace lattice::cpu

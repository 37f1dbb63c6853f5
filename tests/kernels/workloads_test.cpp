// The shared workloads are what their header says: rows and edges to the number, no duplicates, the
// same every time, not sorted.
#include "tests/support/workloads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <set>

#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/cases.h"

namespace lattice::support {
namespace {

cpu::CoordIndex index_of(const Coords& coords) {
  return cpu::index_coords({coords.data(), static_cast<int64_t>(coords.size()) / 4, false});
}

int64_t submanifold_edges(const Coords& coords) {
  return cpu::relate_same(std::make_shared<const cpu::CoordIndex>(index_of(coords)), cpu::Kernel{})
      .n_edges;
}

TEST(Workloads, RowsAndEdges) {
  const Scene l = scene("lidar"), r = scene("room"), b = scene("dense_block");
  EXPECT_EQ(l.rows(), 57738);
  EXPECT_EQ(submanifold_edges(l.coords), 487092);
  EXPECT_EQ(r.rows(), 172802);
  EXPECT_EQ(submanifold_edges(r.coords), 2774838);
  EXPECT_EQ(submanifold_edges(b.coords), 118 * 118 * 118);  // (3 * 40 - 2)^3
}

TEST(Workloads, DistinctShuffledRepeatable) {
  for (const Scene& s : scenes()) {
    EXPECT_EQ(index_of(s.coords).duplicate, -1) << s.name;
    EXPECT_EQ(s.coords, scene(s.name).coords) << s.name;
    const std::vector<Coordinate> all = rows(s.coords.data(), s.rows());
    EXPECT_EQ(std::is_sorted(all.begin(), all.end()), s.name == "empty") << s.name;
  }
  EXPECT_NE(lidar(1), lidar(2));
  EXPECT_NE(room(1), room(2));
}

TEST(Workloads, RandomSetFillsItsBox) {
  const auto all = rows(random_set(250, 4, 2).data(), 250);
  std::set<int64_t> batches, xs;
  for (const Coordinate& c : all) {
    batches.insert(c[0]);
    xs.insert(c[1]);
  }
  EXPECT_EQ(batches, (std::set<int64_t>{0, 1}));
  EXPECT_EQ(xs, (std::set<int64_t>{-4, -3, -2, -1, 0, 1, 2, 3}));
  EXPECT_THROW(random_set(1000, 4, 2), std::invalid_argument);
  EXPECT_THROW(scene("nowhere"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice::support

// The walks behind relations where ordinary kernels do not go, against the oracle. Cases: long z
// runs, which are split into groups, wide dilation, repeated targets, a kernel of many offsets.
// Keys are packed and wide; threads are one and two.
#include "lattice/kernels/cpu/geometry/merge.h"

#include <gtest/gtest.h>

#include <ctime>

#include "lattice/kernels/cpu/geometry/edges.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/cases.h"
#include "tests/support/random.h"

namespace lattice::cpu {
namespace {

using support::Coordinate;
using support::Edge;
using support::Kind;

// A tall thin set; with `far` a second place that makes keys wide.
std::vector<Coordinate> tall_set(int64_t n, uint64_t seed, bool far) {
  support::Random random(seed);
  std::vector<Coordinate> rows;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t place = far && random.chance(0.5) ? int64_t{1} << 60 : 0;
    rows.push_back({0, place + random.between(-1, 1), place + random.between(-1, 1),
                    place + random.between(-40, 40)});
  }
  return rows;
}

std::vector<Coordinate> distinct(std::vector<Coordinate> rows) {
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  std::rotate(rows.begin(), rows.begin() + static_cast<std::ptrdiff_t>(rows.size() / 3),
              rows.end());
  return rows;
}

std::vector<Edge> edges_of(const RelationLists& lists) {
  std::vector<int32_t> offsets(static_cast<size_t>(lists.n_out + 1));
  std::vector<int32_t> in(static_cast<size_t>(lists.n_edges)), out(in.size()), k(in.size());
  edge_arrays(lists, offsets.data(), in.data(), out.data(), k.data());
  std::vector<Edge> edges;
  for (size_t e = 0; e < in.size(); ++e) edges.push_back({in[e], out[e], k[e]});
  return edges;
}

std::shared_ptr<const CoordIndex> index_of(const std::vector<int64_t>& flat) {
  return std::make_shared<CoordIndex>(
      index_coords({flat.data(), static_cast<int64_t>(flat.size() / 4), true}));
}

void check(Kind kind, const support::Spec& spec, bool far, int threads) {
  const auto in = distinct(tall_set(500, 1, far));
  const auto target = tall_set(400, 2, far);  // with repeats
  const auto want = support::relate(kind, in, spec, true, target);
  const auto in_flat = support::flat<int64_t>(in), target_flat = support::flat<int64_t>(target);
  const Kernel kernel{spec.size, spec.stride, spec.padding, spec.dilation,
                      kind != Kind::target_transposed};
  const int before = thread_count();
  set_thread_count(threads);
  const auto from = index_of(in_flat), to = index_of(target_flat);
  const RelationLists lists = kind == Kind::submanifold ? relate_same(from, kernel)
                              : kind == Kind::target    ? relate_gather(from, to, kernel)
                                                        : relate_scatter(from, to, kernel);
  set_thread_count(before);
  ASSERT_EQ(lists.n_edges, static_cast<int64_t>(want.edges.size()));
  ASSERT_EQ(edges_of(lists), want.edges);
}

TEST(Merge, LongRunsAndDilation) {
  for (bool far : {false, true})
    for (int threads : {1, 2})
      for (int64_t dilation : {1, 2, 5})
        for (int64_t z : {1, 3, 15, 17, 19, 33, 35}) {  // 35: two full groups and one of three
          SCOPED_TRACE(testing::Message()
                       << "z " << z << " dilation " << dilation << " far " << far);
          support::Spec spec{{3, 3, z}, {1, 1, 1}, {0, 0, 0}, {1, 1, dilation}};
          check(Kind::submanifold, spec, far, threads);
          spec.padding = {1, 0, 2};
          check(Kind::target, spec, far, threads);
          spec.stride = {1, 1, 2};
          check(Kind::target_transposed, spec, far, threads);
        }
}

TEST(Merge, ManyOffsetsNeedLittleMemory) {
  // 2^18 offsets on 6,000 rows: lists are made in batches. Only the center has edges.
  std::vector<int32_t> flat;
  for (int32_t i = 0; i < 6000; ++i) flat.insert(flat.end(), {i, 0, 0, 0});
  const auto index = std::make_shared<CoordIndex>(index_coords({flat.data(), 6000, false}));
  const RelationLists lists =
      relate_same(index, Kernel{{63, 63, 65}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}, true});
  EXPECT_EQ(lists.n_edges, 6000);
  EXPECT_EQ(lists.n_k(), 63 * 63 * 65);
}

TEST(Merge, WideDilationIsLinear) {
  // Every key lies between an anchor and its dilated neighbor: a walk over the window would take
  // 10^10 steps.
  std::vector<int32_t> flat;
  for (int32_t i = 0; i < 100000; ++i) flat.insert(flat.end(), {0, 0, 0, i});
  const auto index = std::make_shared<CoordIndex>(index_coords({flat.data(), 100000, false}));
  const std::clock_t begin = std::clock();
  const RelationLists lists =
      relate_same(index, Kernel{{1, 1, 3}, {1, 1, 1}, {0, 0, 0}, {1, 1, 1000000}, true});
  EXPECT_EQ(lists.n_edges, 100000);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 2.0);
}

}  // namespace
}  // namespace lattice::cpu

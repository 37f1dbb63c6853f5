// Relations against the oracle: output coordinates, lists, public edges and views, for every kind.
// There are hundreds of random cases at every end of int32 and int64, and scenes large enough for
// several blocks of work.
#include "lattice/kernels/cpu/geometry/relations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "lattice/kernels/cpu/geometry/edges.h"
#include "tests/support/cases.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Case;
using support::Coordinate;
using support::Edge;
using support::Kind;

struct Built {
  RelationLists lists;
  std::vector<Coordinate> out;
};

template <typename T>
Built build_as(const Case& c) {
  const bool is64 = sizeof(T) == 8;
  const std::vector<T> in_flat = support::flat<T>(c.in), target_flat = support::flat<T>(c.target);
  const CoordSpan coords{in_flat.data(), static_cast<int64_t>(c.in.size()), is64};
  const auto index = [](const CoordSpan& span) {
    return std::make_shared<const CoordIndex>(index_coords(span));
  };
  const auto in = index(coords);
  const auto target = index({target_flat.data(), static_cast<int64_t>(c.target.size()), is64});
  const bool up =
      c.kind == Kind::transposed || c.kind == Kind::generative || c.kind == Kind::target_transposed;
  const Kernel kernel{c.spec.size, c.spec.stride, c.spec.padding, c.spec.dilation, !up};
  const bool in_place = c.spec.stride == Triple{1, 1, 1} && c.spec.padding == Triple{0, 0, 0};
  MadeCoords made;
  Built built;
  switch (c.kind) {
    case Kind::submanifold:
      return {relate_same(in, kernel), c.in};
    case Kind::forward:
      if (in_place) return {relate_same(in, kernel), c.in};
      built.lists = relate_downscaled(coords, in, kernel, &made);
      break;
    case Kind::target:
      return {relate_gather(in, target, kernel), c.target};
    case Kind::target_transposed:
      return {relate_scatter(in, target, kernel), c.target};
    default:
      built.lists = relate_generated(coords, in, kernel, &made);
  }
  built.out = support::rows(reinterpret_cast<const T*>(made.data.data()), made.rows);
  return built;
}

Built build(const Case& c) { return c.is64 ? build_as<int64_t>(c) : build_as<int32_t>(c); }

std::vector<Edge> public_edges(const RelationLists& lists) {
  const size_t n = static_cast<size_t>(lists.n_edges);
  std::vector<int32_t> offsets(static_cast<size_t>(lists.n_out) + 1), in(n), out(n), k(n);
  edge_arrays(lists, offsets.data(), in.data(), out.data(), k.data());
  EXPECT_EQ(offsets.front(), 0);
  EXPECT_EQ(offsets.back(), lists.n_edges);
  std::vector<Edge> edges;
  for (size_t e = 0; e < n; ++e) {
    edges.push_back({in[e], out[e], k[e]});
    EXPECT_TRUE(offsets[static_cast<size_t>(out[e])] <= static_cast<int64_t>(e) &&
                static_cast<int64_t>(e) < offsets[static_cast<size_t>(out[e]) + 1]);
  }
  return edges;
}

void expect_permutation(const std::shared_ptr<const Buffer<int32_t>>& order, int64_t n) {
  if (!order) return;
  ASSERT_EQ(order->size(), n);
  std::vector<char> seen(static_cast<size_t>(n));
  for (int32_t row : *order) {
    ASSERT_TRUE(row >= 0 && row < n && !seen[static_cast<size_t>(row)]);
    seen[static_cast<size_t>(row)] = 1;
  }
}

// What relation_lists.h promises: orders, ranges, ascending lists.
void expect_valid(const RelationLists& r) {
  expect_permutation(r.in_order, r.n_in);
  expect_permutation(r.out_order, r.n_out);
  int64_t total = 0;
  for (const OffsetList& list : r.lists) {
    total += list.size;
    ASSERT_EQ(list.in == nullptr, list.out == nullptr);
    for (int64_t e = 0; e < list.size; ++e) {
      ASSERT_TRUE(list.in_at(e) >= 0 && list.in_at(e) < r.n_in && list.out_at(e) >= 0 &&
                  list.out_at(e) < r.n_out);
      if (e == 0) continue;
      ASSERT_GE(list.out_at(e), list.out_at(e - 1));
      ASSERT_TRUE(!r.monotone || list.in_at(e) >= list.in_at(e - 1));
    }
  }
  ASSERT_EQ(total, r.n_edges);
}

void expect_views(const RelationLists& r, const std::vector<Edge>& edges) {
  const size_t n_k = r.lists.size(), words = (n_k + 31) / 32, n_out = static_cast<size_t>(r.n_out);
  std::vector<int32_t> map(n_out * n_k, 7), expected_map(n_out * n_k, -1);
  std::vector<uint32_t> masks(n_out * words, 7), expected_masks(n_out * words);
  std::vector<char> in_used(static_cast<size_t>(r.n_in)), out_used(n_out);
  bool one_each = true;
  for (const Edge& e : edges) {
    const size_t o = static_cast<size_t>(e.out), k = static_cast<size_t>(e.k);
    one_each = one_each && expected_map[o * n_k + k] < 0;
    expected_map[o * n_k + k] = static_cast<int32_t>(e.in);
    expected_masks[o * words + k / 32] |= 1u << (k % 32);
    in_used[static_cast<size_t>(e.in)] = out_used[o] = 1;
  }
  ASSERT_EQ(implicit_map(r, map.data(), masks.data()), one_each);
  if (one_each) {
    EXPECT_EQ(map, expected_map);
    EXPECT_EQ(masks, expected_masks);
  }
  const Coverage c = coverage(r);
  EXPECT_EQ(c.unused_inputs, std::count(in_used.begin(), in_used.end(), 0));
  EXPECT_EQ(c.empty_outputs, std::count(out_used.begin(), out_used.end(), 0));
}

void expect_same_bits(const RelationLists& a, const RelationLists& b) {
  ASSERT_EQ(a.lists.size(), b.lists.size());
  ASSERT_EQ(a.monotone, b.monotone);
  for (auto order : {&RelationLists::in_order, &RelationLists::out_order}) {
    ASSERT_EQ(!(a.*order), !(b.*order));
    ASSERT_TRUE(!(a.*order) || std::ranges::equal((a.*order)->span(), (b.*order)->span()));
  }
  for (size_t k = 0; k < a.lists.size(); ++k) {
    ASSERT_EQ(a.lists[k].size, b.lists[k].size);
    for (int64_t e = 0; e < a.lists[k].size; ++e) {
      ASSERT_EQ(a.lists[k].in_at(e), b.lists[k].in_at(e));
      ASSERT_EQ(a.lists[k].out_at(e), b.lists[k].out_at(e));
    }
  }
}

class Threads {
 public:
  explicit Threads(int n) : before_(thread_count()) { set_thread_count(n); }
  ~Threads() { set_thread_count(before_); }

 private:
  int before_;
};

// Returns the number of edges, -1 for an overflow.
int64_t check(const Case& c) {
  SCOPED_TRACE(c.text());
  const auto expected = support::relate(c.kind, c.in, c.spec, c.is64, c.target);
  if (expected.overflow) {
    try {
      build(c);
      ADD_FAILURE() << "no overflow, expected axis " << expected.overflow->axis << " value "
                    << expected.overflow->value;
    } catch (const std::overflow_error& e) {
      EXPECT_TRUE(std::string(e.what()).find(" = ") != std::string::npos) << e.what();
    }
    return -1;
  }
  const Built built = build(c);
  EXPECT_EQ(built.lists.n_in, static_cast<int64_t>(c.in.size()));
  EXPECT_EQ(built.lists.n_out, static_cast<int64_t>(expected.out.size()));
  EXPECT_EQ(built.lists.n_k(), c.spec.volume());
  EXPECT_EQ(built.out, expected.out);
  EXPECT_EQ(built.lists.n_edges, static_cast<int64_t>(expected.edges.size()));
  expect_valid(built.lists);
  if (testing::Test::HasFatalFailure() || testing::Test::HasNonfatalFailure()) return 0;
  EXPECT_EQ(public_edges(built.lists), expected.edges);
  expect_views(built.lists, expected.edges);

  const RelationLists back = reversed(built.lists);
  expect_valid(back);
  std::vector<Edge> turned = expected.edges;
  for (Edge& e : turned) std::swap(e.in, e.out);
  std::vector<Edge> found = public_edges(back);
  std::sort(turned.begin(), turned.end());
  std::sort(found.begin(), found.end());
  EXPECT_EQ(found, turned);
  return static_cast<int64_t>(expected.edges.size());
}

TEST(Relations, RandomCases) {
  int64_t overflows = 0, with_edges = 0;
  for (uint64_t seed = 0; seed < 1500 && !HasFailure(); ++seed) {
    const int64_t edges = check(support::random_case(seed));
    overflows += edges < 0;
    with_edges += edges > 0;
  }
  EXPECT_GT(overflows, 50);
  EXPECT_GT(with_edges, 900);
}

// Every kind on sets of several blocks, with targets derived from the input.
std::vector<Case> large_cases() {
  std::vector<Case> cases;
  const auto add = [&](const support::Coords& coords, Kind kind, const support::Spec& spec,
                       bool is64 = false) {
    Case c{cases.size(), kind,
           is64,         support::rows(coords.data(), static_cast<int64_t>(coords.size()) / 4),
           {},           spec};
    if (kind == Kind::target || kind == Kind::target_transposed)
      for (size_t i = 0; i < c.in.size(); i += 2)
        c.target.push_back({c.in[i][0], c.in[i][1] + 1, c.in[i][2] / 2, c.in[i][3]});
    cases.push_back(c);
  };
  const auto scattered = support::random_set(20000, 16, 2);
  const auto block = support::dense_block(24, 20, 22);
  add(scattered, Kind::submanifold, {});
  add(block, Kind::submanifold, {.size = {5, 3, 3}, .dilation = {1, 2, 1}}, true);
  add(support::line(9000, -4000), Kind::submanifold, {.size = {7, 1, 1}});
  add(scattered, Kind::forward, {.size = {2, 2, 2}, .stride = {2, 2, 2}});
  add(block, Kind::forward, {.size = {3, 3, 3}, .stride = {2, 2, 2}, .padding = {1, 1, 1}}, true);
  add(block, Kind::forward, {.size = {2, 2, 4}});
  add(scattered, Kind::target, {.size = {3, 2, 3}, .stride = {1, 2, 1}});
  add(scattered, Kind::transposed, {.size = {2, 2, 2}, .stride = {2, 2, 2}});
  add(block, Kind::transposed, {.size = {3, 3, 2}, .stride = {2, 2, 1}, .padding = {1, 0, 0}},
      true);
  add(block, Kind::generative, {.size = {2, 2, 2}, .stride = {2, 2, 2}});
  add(scattered, Kind::target_transposed,
      {.size = {3, 3, 3}, .stride = {2, 1, 1}, .padding = {1, 1, 1}});
  return cases;
}

TEST(Relations, SetsOfSeveralBlocks) {
  for (const Case& c : large_cases()) EXPECT_GT(check(c), 1000) << c.text();
}

TEST(Relations, SameBitsForAnyNumberOfThreads) {
  std::vector<Case> cases = large_cases();
  for (uint64_t seed = 5000; seed < 5300; ++seed) cases.push_back(support::random_case(seed));
  for (const Case& c : cases) {
    SCOPED_TRACE(c.text());
    if (support::relate(c.kind, c.in, c.spec, c.is64, c.target).overflow) continue;
    const auto with = [&](int n) {
      Threads threads(n);
      return build(c);
    };
    const Built one = with(1);
    for (int n : {2, 3}) {
      const Built several = with(n);
      ASSERT_EQ(one.out, several.out);
      expect_same_bits(one.lists, several.lists);
    }
  }
}

TEST(Relations, SubmanifoldMirrorsShareMemory) {
  Case c{0, Kind::submanifold, false, support::rows(support::dense_block(6, 5, 4).data(), 120), {},
         {}};
  const RelationLists r = build(c).lists;
  for (size_t k = 0; k < 27; ++k) {
    EXPECT_EQ(r.lists[k].in, r.lists[26 - k].out);
    EXPECT_EQ(r.lists[k].size, r.lists[26 - k].size);
  }
  EXPECT_EQ(r.lists[13].in, nullptr);
  EXPECT_EQ(r.lists[13].size, 120);
}

TEST(Relations, TooManyEdges) {
  Case c{0, Kind::generative, false, {{0, 0, 0, 0}}, {}, {.size = {1 << 11, 1 << 11, 1 << 10}}};
  EXPECT_THROW(build(c), std::length_error);
}

TEST(Relations, OverflowNamesAxisAndValue) {
  Case c{0,     Kind::generative,
         false, {{0, 0, 5, INT32_MAX / 2 + 1}},
         {},    {.size = {2, 2, 2}, .stride = {2, 2, 2}}};
  try {
    build(c);
    FAIL() << "no overflow";
  } catch (const std::overflow_error& e) {
    EXPECT_TRUE(std::string(e.what()).find("z = 2147483649") != std::string::npos) << e.what();
    EXPECT_TRUE(std::string(e.what()).find("int32") != std::string::npos) << e.what();
  }
}

}  // namespace
}  // namespace lattice::cpu

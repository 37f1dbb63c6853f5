// When rows for Metal are taken: sizes, relation and storage of a call. Nothing is launched.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "lattice/graph/gpu_call.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/decide.h"
#include "lattice/selftest/selftest.h"

namespace lattice::routes {
namespace {

// As if there were a GPU with Metal.
struct AsOnMetal {
  AsOnMetal() {
    graph::stand_in().run = [](const graph::GpuCall& call, const auto&,
                               const auto&) -> std::vector<mx::array> {
      throw std::logic_error(call.name + " must not run");
    };
  }
  ~AsOnMetal() { graph::stand_in() = {}; }
};

// Questions without arrays: only their shape is read.
const mx::array& nothing() {
  static const mx::array zero(0.0f);
  return zero;
}

ConvAsked conv_of(Relation::Ptr relation, int64_t c_in, int64_t c_out, int64_t groups = 1,
                  Packing packing = {}) {
  ConvAsked asked{{std::move(relation), c_in, c_out, groups}, nothing(), {nothing()}};
  if (packing.bits) asked.weight.codes = {nothing(), nothing(), packing};
  asked.stream = mx::Device(mx::Device::cpu);
  return asked;
}
OuterAsked outer_of(Relation::Ptr relation, int64_t c_in, int64_t c_out, int64_t groups = 1) {
  return {{std::move(relation), c_in, c_out, groups},
          nothing(),
          nothing(),
          mx::Device(mx::Device::cpu)};
}
PerEdgeAsked per_edge_of(Relation::Ptr relation, int64_t c_in, int64_t c_out) {
  return {{std::move(relation), c_in, c_out, 1}, nothing(), nothing(), mx::Device(mx::Device::cpu)};
}

// Why the row refuses; fails the test when there is no such row.
template <class Asked>
Rejection refusal(const char* route, const Table<Asked, mx::array>& table, const Asked& asked) {
  for (const auto& row : table.rows)
    if (row.name == route) return row.refusal(asked);
  ADD_FAILURE() << "no route " << route;
  return {};
}
Rejection refusal(const char* route, const ConvAsked& asked) {
  return refusal(route, conv_rows(), asked);
}

// The row that serves.
template <class Asked>
std::string decided(const Table<Asked, mx::array>& table, const Asked& asked) {
  return first_fit(table, asked, Frame(table, asked.stream)).name;
}
std::string decided(const ConvAsked& asked) { return decided(conv_rows(), asked); }

Relation::Ptr relation_of(RelationKind kind) {
  Random random{7};
  return make_relation(random, kind, 40);
}

constexpr RelationKind kSortable[] = {RelationKind::forward, RelationKind::target,
                                      RelationKind::submanifold};
constexpr RelationKind kScattering[] = {RelationKind::transposed, RelationKind::generative,
                                        RelationKind::target_transposed};

TEST(MetalRoutes, TakenInOrder) {
  const AsOnMetal metal;
  for (const RelationKind kind : kSortable) {
    const Relation::Ptr r = relation_of(kind);
    EXPECT_EQ(decided(conv_of(r, 16, 16)), "metal.sorted") << kind_name(kind);
    const bool mirror = kind == RelationKind::submanifold;
    EXPECT_EQ(decided(conv_of(r->reversed(), 16, 16)), mirror ? "metal.mirrored" : "metal.sorted")
        << kind_name(kind);
    EXPECT_EQ(decided(conv_of(r, 16, 16, 1, {4, 32, false})), "metal.packed_sorted")
        << kind_name(kind);
    EXPECT_EQ(decided(conv_of(r->reversed(), 16, 16, 1, {4, 32, true})),
              mirror ? "metal.packed_mirrored" : "metal.packed_sorted")
        << kind_name(kind);
    EXPECT_EQ(decided(conv_of(r, 3, 16)), "metal.sorted") << kind_name(kind);
    EXPECT_EQ(decided(conv_of(r, 3, 7)), "metal.rows") << kind_name(kind);
    EXPECT_EQ(decided(conv_of(r, 3, 7, 1, {4, 32, false})), "metal.rows") << kind_name(kind);
  }
  for (const RelationKind kind : kScattering)
    for (const Relation::Ptr& r : {relation_of(kind), relation_of(kind)->reversed()}) {
      const bool one = kind == RelationKind::generative && !r->is_reversed();
      EXPECT_EQ(decided(conv_of(r, 16, 16)), one ? "metal.lists" : "metal.sorted") << r->text();
      EXPECT_EQ(decided(conv_of(r, 16, 16, 1, {8, 64, true})),
                one ? "metal.packed_lists" : "metal.packed_sorted")
          << r->text();
    }
  EXPECT_EQ(decided(conv_of(relation_of(RelationKind::custom), 16, 16)), "metal.buckets");
  EXPECT_EQ(decided(conv_of(relation_of(RelationKind::custom), 16, 16, 1, {4, 32, false})),
            "metal.rows");
  EXPECT_EQ(decided(outer_rows(), outer_of(relation_of(RelationKind::custom), 16, 16)),
            "metal.outer");
  EXPECT_EQ(decided(outer_rows(), outer_of(relation_of(RelationKind::custom), 7, 7)), "metal.rows");
  EXPECT_EQ(decided(linear_rows(), conv_of(Relation::identity(5), 16, 16)), "gpu.mlx");
  EXPECT_EQ(decided(linear_rows(), conv_of(Relation::identity(5), 3, 1, 1, {4, 32, false})),
            "metal.packed");
  // 240 edges, 4 matrices.
  EXPECT_EQ(decided(per_edge_apply_rows(), per_edge_of(relation_of(RelationKind::custom), 16, 16)),
            "metal.buckets");
  EXPECT_EQ(decided(per_edge_outer_rows(), outer_of(relation_of(RelationKind::custom), 16, 16)),
            "metal.outer");
  EXPECT_EQ(decided(per_edge_apply_rows(), per_edge_of(relation_of(RelationKind::custom), 7, 7)),
            "metal.rows");
  EXPECT_EQ(decided(per_edge_outer_rows(), outer_of(relation_of(RelationKind::custom), 7, 7)),
            "metal.rows");
}

TEST(MetalRoutes, AllKindsButCustomAreSorted) {
  const AsOnMetal metal;
  for (const RelationKind kind : kScattering)
    EXPECT_TRUE(refusal("metal.sorted", conv_of(relation_of(kind), 16, 16)).fits());
  const Rejection why = refusal("metal.sorted", conv_of(relation_of(RelationKind::custom), 16, 16));
  EXPECT_EQ(why.step, Step::relation);
}

TEST(MetalRoutes, OnlyAReversedSubmanifoldIsMirrored) {
  const AsOnMetal metal;
  for (const RelationKind kind :
       {RelationKind::forward, RelationKind::target, RelationKind::submanifold,
        RelationKind::transposed, RelationKind::generative}) {
    const Relation::Ptr r = relation_of(kind);
    EXPECT_EQ(refusal("metal.mirrored", conv_of(r, 16, 16)).step, Step::relation);
    const bool fits = refusal("metal.mirrored", conv_of(r->reversed(), 16, 16)).fits();
    EXPECT_EQ(fits, kind == RelationKind::submanifold) << kind_name(kind);
  }
  const Relation::Ptr back = relation_of(RelationKind::submanifold)->reversed();
  EXPECT_EQ(refusal("metal.mirrored", conv_of(back, 7, 7)).step, Step::shape);
  EXPECT_EQ(refusal("metal.mirrored", conv_of(back, 16, 16, 1, {4, 32, false})).step,
            Step::storage);
}

TEST(MetalRoutes, MoreThan32OffsetsAreNotSorted) {
  const AsOnMetal metal;
  Random random{7};
  const auto with_size = [&](const Triple& size) {
    return relate(RelationKind::submanifold, random_coords(random, 40, 3),
                  KernelSpec(size, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), std::nullopt, "test");
  };
  EXPECT_TRUE(refusal("metal.sorted", conv_of(with_size({3, 3, 3}), 8, 8)).fits());
  const ConvAsked many = conv_of(with_size({3, 3, 5}), 8, 8);
  EXPECT_EQ(refusal("metal.sorted", many).step, Step::relation);
  EXPECT_NE(refusal("metal.sorted", many).text.find("45 offsets"), std::string::npos);
  EXPECT_EQ(decided(many), "metal.tiles");
  EXPECT_EQ(decided(conv_of(many.relation->reversed(), 8, 8)), "metal.tiles");
}

TEST(MetalRoutes, TilesNeedEightChannelsOfAGroup) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::submanifold);
  for (const char* route : {"metal.sorted", "metal.tiles"}) {
    EXPECT_TRUE(refusal(route, conv_of(r, 16, 24, 2)).fits());
    for (const ConvAsked& call : {conv_of(r, 7, 7), conv_of(r, 16, 16, 4)})
      EXPECT_EQ(refusal(route, call).step, Step::shape) << route;
  }
  EXPECT_TRUE(refusal("metal.outer", outer_rows(), outer_of(r, 16, 24, 2)).fits());
  EXPECT_EQ(refusal("metal.outer", outer_rows(), outer_of(r, 24, 24, 24)).step, Step::shape);
  EXPECT_EQ(refusal("metal.packed_tiles", conv_of(r, 4, 4, 1, {4, 32, false})).step, Step::shape);
}

TEST(MetalRoutes, ListsNeedOneEdgeForEveryRow) {
  const AsOnMetal metal;
  const auto made = [](std::vector<int32_t> out, int64_t n_out) {
    const int n = static_cast<int>(out.size());
    return Relation::from_edges(mx::zeros({n}, mx::int32), mx::array(out.begin(), {n}, mx::int32),
                                mx::zeros({n}, mx::int32), 1, n_out, 1);
  };
  EXPECT_TRUE(refusal("metal.lists", conv_of(made({1, 0, 2}, 3), 8, 8)).fits());
  // Fewer edges than rows, more, and as many with a row that has none.
  for (const auto& r : {made({1, 0}, 3), made({1, 0, 2, 2}, 3), made({1, 2, 2}, 3)})
    EXPECT_EQ(refusal("metal.lists", conv_of(r, 8, 8)).step, Step::relation);
  EXPECT_EQ(refusal("metal.lists", conv_of(made({0}, 1), 7, 7)).step, Step::shape);
}

TEST(MetalRoutes, TilesOfListsNeedEdges) {
  const AsOnMetal metal;
  // One edge for each of 4,000 rows, 63 tiles: 63 lists for an offset.
  const auto made = [](int64_t n_k) {
    return Relation::from_edges(mx::zeros({4000}, mx::int32), mx::arange(4000),
                                mx::zeros({4000}, mx::int32), 1, 4000, n_k);
  };
  EXPECT_TRUE(refusal("metal.buckets", conv_of(made(318), 8, 8)).fits());
  EXPECT_EQ(refusal("metal.buckets", conv_of(made(320), 8, 8)).step, Step::relation);
  EXPECT_EQ(refusal("metal.buckets", conv_of(made(1), 7, 7)).step, Step::shape);
  EXPECT_EQ(refusal("metal.buckets", conv_of(made(1), 8, 8, 1, {4, 32, false})).step,
            Step::storage);
}

TEST(MetalRoutes, StorageDecides) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::submanifold), same = Relation::identity(9);
  const Packing packing{4, 32, false};
  for (const char* route : {"metal.sorted", "metal.tiles"})
    EXPECT_EQ(refusal(route, conv_of(r, 16, 16, 1, packing)).step, Step::storage);
  EXPECT_EQ(refusal("metal.packed_tiles", conv_of(r, 16, 16)).step, Step::storage);
  EXPECT_EQ(refusal("metal.packed", linear_rows(), conv_of(same, 16, 16)).step, Step::storage);
}

TEST(MetalRoutes, AMapHoldsOneEdgeForAnOffset) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::custom);
  for (const char* route : {"metal.sorted", "metal.tiles"})
    EXPECT_EQ(refusal(route, conv_of(r, 16, 16)).step, Step::relation);
  EXPECT_EQ(refusal("metal.packed_tiles", conv_of(r, 16, 16, 1, {4, 32, false})).step,
            Step::relation);
}

// 2^30 rows are 2^24 tiles of 128 threads: one thread more than MLX counts.
TEST(MetalRoutes, OneLaunchHasFewerThan2To31Threads) {
  const AsOnMetal metal;
  const Packing packing{4, 32, false};
  const auto linear = [&](int64_t rows) {
    return conv_of(Relation::identity(rows), 16, 16, 1, packing);
  };
  EXPECT_EQ(decided(linear_rows(), linear(1 << 29)), "metal.packed");
  EXPECT_EQ(refusal("metal.packed", linear_rows(), linear(1 << 30)).step, Step::shape);
  EXPECT_EQ(decided(linear_rows(), linear(1 << 30)), "gpu.mlx");
  EXPECT_EQ(decided(linear_rows(), linear(2'000'000'000)), "gpu.mlx");
  const ConvAsked conv = conv_of(Relation::identity(1 << 30), 16, 16);
  EXPECT_EQ(refusal("metal.buckets", conv).step, Step::shape);
  EXPECT_TRUE(refusal("metal.rows", conv).fits());
}

TEST(MetalRoutes, AreNotTakenWithoutMetal) {
  if (mx::metal::is_available()) GTEST_SKIP() << "this machine has Metal";
  int metal_rows = 0;
  for (const OracleCase& test : oracle_cases())
    for (const Route* route : test.routes()) {
      if (!route->name.starts_with("metal.")) continue;
      EXPECT_FALSE(test.question->refusal(*route).fits())
          << route->operation << " " << route->name << " " << test.label;
      ++metal_rows;
    }
  EXPECT_GT(metal_rows, 100);
  const ConvAsked call = conv_of(relation_of(RelationKind::submanifold), 3, 3);
  EXPECT_EQ(refusal("metal.rows", call).step, Step::capability);
}

}  // namespace
}  // namespace lattice::routes

// When rows for Metal are taken: sizes, relation and storage of a call. Nothing is launched.
#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include "lattice/graph/gpu_call.h"
#include "lattice/routes/decide.h"
#include "lattice/selftest/selftest.h"

namespace lattice {
namespace {

// As if there were a GPU with Metal.
struct AsOnMetal {
  AsOnMetal() {
    graph::set_gpu_host([](const graph::GpuLaunch& launch,
                           const std::vector<mx::array>&) -> std::vector<mx::array> {
      throw std::logic_error(launch.name + " must not run");
    });
  }
  ~AsOnMetal() { graph::set_gpu_host({}); }
};

Call conv_call(Operation operation, Relation::Ptr relation, int64_t c_in, int64_t c_out,
               int64_t groups = 1, Packing packing = {}) {
  Call call;
  call.operation = operation;
  call.relation = std::move(relation);
  call.c_in = c_in, call.c_out = c_out, call.groups = groups;
  call.payload = Weights{packing};
  call.stream = mx::Device(mx::Device::cpu);
  return call;
}

// Why the row refuses; fails the test when there is no such row.
Rejection refusal(const char* route, const Call& call) {
  for (const Route& row : routes())
    if (row.operation == call.operation && row.name == route) return row.refusal(call);
  ADD_FAILURE() << "no route " << name(call.operation) << " " << route;
  return {};
}

Relation::Ptr relation_of(RelationKind kind) {
  Random random{7};
  return make_relation(random, kind, 40);
}

constexpr RelationKind kSortable[] = {RelationKind::forward, RelationKind::target,
                                      RelationKind::submanifold};
constexpr RelationKind kUnsorted[] = {RelationKind::transposed, RelationKind::generative,
                                      RelationKind::target_transposed};

TEST(MetalRoutes, TakenInOrder) {
  const AsOnMetal metal;
  const auto chosen = [](const Call& call) { return decide(call).chosen->name; };
  for (const RelationKind kind : kSortable) {
    const Relation::Ptr r = relation_of(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16)), "metal.sorted") << kind_name(kind);
    const bool mirror = kind == RelationKind::submanifold;
    EXPECT_EQ(chosen(conv_call(Operation::conv, r->reversed(), 16, 16)),
              mirror ? "metal.mirrored" : "metal.tiles")
        << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16, 1, {4, 32, false})),
              "metal.packed_sorted")
        << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r->reversed(), 16, 16, 1, {4, 32, true})),
              mirror ? "metal.packed_mirrored" : "metal.packed_tiles")
        << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 3, 16)), "metal.rows") << kind_name(kind);
    EXPECT_EQ(chosen(conv_call(Operation::conv, r, 3, 16, 1, {4, 32, false})), "metal.rows")
        << kind_name(kind);
  }
  for (const RelationKind kind : kUnsorted)
    for (const Relation::Ptr& r : {relation_of(kind), relation_of(kind)->reversed()}) {
      const bool one = kind == RelationKind::generative && !r->is_reversed();
      EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16)), one ? "metal.lists" : "metal.tiles")
          << r->text();
      EXPECT_EQ(chosen(conv_call(Operation::conv, r, 16, 16, 1, {8, 64, true})),
                one ? "metal.packed_lists" : "metal.packed_tiles")
          << r->text();
    }
  EXPECT_EQ(chosen(conv_call(Operation::conv, relation_of(RelationKind::custom), 16, 16)),
            "metal.buckets");
  EXPECT_EQ(chosen(conv_call(Operation::conv, relation_of(RelationKind::custom), 16, 16, 1,
                             {4, 32, false})),
            "metal.rows");
  EXPECT_EQ(chosen(conv_call(Operation::outer, relation_of(RelationKind::custom), 16, 16)),
            "metal.outer");
  EXPECT_EQ(chosen(conv_call(Operation::outer, relation_of(RelationKind::custom), 16, 7)),
            "metal.rows");
  EXPECT_EQ(chosen(conv_call(Operation::linear, Relation::identity(5), 16, 16)), "gpu.mlx");
  EXPECT_EQ(chosen(conv_call(Operation::linear, Relation::identity(5), 3, 1, 1, {4, 32, false})),
            "metal.packed");
  // 240 edges, 4 matrices.
  EXPECT_EQ(chosen(conv_call(Operation::per_edge_apply, relation_of(RelationKind::custom), 16, 16)),
            "metal.buckets");
  EXPECT_EQ(chosen(conv_call(Operation::per_edge_outer, relation_of(RelationKind::custom), 16, 16)),
            "metal.outer");
  for (const Operation operation : {Operation::per_edge_apply, Operation::per_edge_outer})
    EXPECT_EQ(chosen(conv_call(operation, relation_of(RelationKind::custom), 16, 7)), "metal.rows");
}

TEST(MetalRoutes, OnlyThreeKindsAreSorted) {
  const AsOnMetal metal;
  for (const RelationKind kind : kUnsorted) {
    const Rejection why =
        refusal("metal.sorted", conv_call(Operation::conv, relation_of(kind), 16, 16));
    EXPECT_EQ(why.step, Rejection::Step::relation);
    EXPECT_NE(why.text.find(kind_name(kind)), std::string::npos) << why.text;
    EXPECT_FALSE(
        refusal("metal.sorted", conv_call(Operation::conv, relation_of(kind)->reversed(), 16, 16))
            .fits());
  }
  for (const RelationKind kind : kSortable) {
    const Rejection why =
        refusal("metal.sorted", conv_call(Operation::conv, relation_of(kind)->reversed(), 16, 16));
    EXPECT_EQ(why.step, Rejection::Step::relation);
    EXPECT_NE(why.text.find("reversed"), std::string::npos) << why.text;
  }
}

TEST(MetalRoutes, OnlyAReversedSubmanifoldIsMirrored) {
  const AsOnMetal metal;
  for (const RelationKind kind :
       {RelationKind::forward, RelationKind::target, RelationKind::submanifold,
        RelationKind::transposed, RelationKind::generative}) {
    const Relation::Ptr r = relation_of(kind);
    EXPECT_EQ(refusal("metal.mirrored", conv_call(Operation::conv, r, 16, 16)).step,
              Rejection::Step::relation);
    const bool fits =
        refusal("metal.mirrored", conv_call(Operation::conv, r->reversed(), 16, 16)).fits();
    EXPECT_EQ(fits, kind == RelationKind::submanifold) << kind_name(kind);
  }
  const Relation::Ptr back = relation_of(RelationKind::submanifold)->reversed();
  EXPECT_EQ(refusal("metal.mirrored", conv_call(Operation::conv, back, 16, 7)).step,
            Rejection::Step::shape);
  EXPECT_EQ(
      refusal("metal.mirrored", conv_call(Operation::conv, back, 16, 16, 1, {4, 32, false})).step,
      Rejection::Step::storage);
}

TEST(MetalRoutes, MoreThan32OffsetsAreNotSorted) {
  const AsOnMetal metal;
  Random random{7};
  const auto with_size = [&](const Triple& size) {
    return relate(RelationKind::submanifold, random_coords(random, 40, 3),
                  KernelSpec(size, {1, 1, 1}, {0, 0, 0}, {1, 1, 1}), std::nullopt, "test");
  };
  EXPECT_TRUE(
      refusal("metal.sorted", conv_call(Operation::conv, with_size({3, 3, 3}), 8, 8)).fits());
  const Call many = conv_call(Operation::conv, with_size({3, 3, 5}), 8, 8);
  EXPECT_EQ(refusal("metal.sorted", many).step, Rejection::Step::relation);
  EXPECT_NE(refusal("metal.sorted", many).text.find("45 offsets"), std::string::npos);
  EXPECT_EQ(decide(many).chosen->name, "metal.tiles");
  EXPECT_EQ(decide(conv_call(Operation::conv, many.relation->reversed(), 8, 8)).chosen->name,
            "metal.tiles");
}

TEST(MetalRoutes, TilesNeedEightChannelsOfAGroup) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::submanifold);
  for (const char* route : {"metal.sorted", "metal.tiles"}) {
    EXPECT_TRUE(refusal(route, conv_call(Operation::conv, r, 16, 24, 2)).fits());
    for (const Call& call :
         {conv_call(Operation::conv, r, 7, 8), conv_call(Operation::conv, r, 8, 7),
          conv_call(Operation::conv, r, 16, 16, 4)})
      EXPECT_EQ(refusal(route, call).step, Rejection::Step::shape) << route;
  }
  EXPECT_TRUE(refusal("metal.outer", conv_call(Operation::outer, r, 16, 24, 2)).fits());
  EXPECT_EQ(refusal("metal.outer", conv_call(Operation::outer, r, 24, 24, 24)).step,
            Rejection::Step::shape);
  EXPECT_EQ(
      refusal("metal.packed_tiles", conv_call(Operation::conv, r, 16, 4, 1, {4, 32, false})).step,
      Rejection::Step::shape);
}

TEST(MetalRoutes, ListsNeedOneEdgeForEveryRow) {
  const AsOnMetal metal;
  const auto made = [](std::vector<int32_t> out, int64_t n_out) {
    const int n = static_cast<int>(out.size());
    return Relation::from_edges(mx::zeros({n}, mx::int32), mx::array(out.begin(), {n}, mx::int32),
                                mx::zeros({n}, mx::int32), 1, n_out, 1);
  };
  EXPECT_TRUE(refusal("metal.lists", conv_call(Operation::conv, made({1, 0, 2}, 3), 8, 8)).fits());
  // Fewer edges than rows, more, and as many with a row that has none.
  for (const Relation::Ptr& r : {made({1, 0}, 3), made({1, 0, 2, 2}, 3), made({1, 2, 2}, 3)})
    EXPECT_EQ(refusal("metal.lists", conv_call(Operation::conv, r, 8, 8)).step,
              Rejection::Step::relation);
  EXPECT_EQ(refusal("metal.lists", conv_call(Operation::conv, made({0}, 1), 8, 7)).step,
            Rejection::Step::shape);
}

TEST(MetalRoutes, TilesOfListsNeedEdges) {
  const AsOnMetal metal;
  // One edge for each of 4,000 rows, 63 tiles: 63 lists for an offset.
  const auto made = [](int64_t n_k) {
    return Relation::from_edges(mx::zeros({4000}, mx::int32), mx::arange(4000),
                                mx::zeros({4000}, mx::int32), 1, 4000, n_k);
  };
  EXPECT_TRUE(refusal("metal.buckets", conv_call(Operation::conv, made(318), 8, 8)).fits());
  EXPECT_EQ(refusal("metal.buckets", conv_call(Operation::conv, made(320), 8, 8)).step,
            Rejection::Step::relation);
  EXPECT_EQ(refusal("metal.buckets", conv_call(Operation::conv, made(1), 8, 7)).step,
            Rejection::Step::shape);
  EXPECT_EQ(
      refusal("metal.buckets", conv_call(Operation::conv, made(1), 8, 8, 1, {4, 32, false})).step,
      Rejection::Step::storage);
}

TEST(MetalRoutes, StorageDecides) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::submanifold), same = Relation::identity(9);
  const Packing packing{4, 32, false};
  for (const char* route : {"metal.sorted", "metal.tiles"})
    EXPECT_EQ(refusal(route, conv_call(Operation::conv, r, 16, 16, 1, packing)).step,
              Rejection::Step::storage);
  EXPECT_EQ(refusal("metal.packed_tiles", conv_call(Operation::conv, r, 16, 16)).step,
            Rejection::Step::storage);
  EXPECT_EQ(refusal("metal.packed", conv_call(Operation::linear, same, 16, 16)).step,
            Rejection::Step::storage);
}

TEST(MetalRoutes, AMapHoldsOneEdgeForAnOffset) {
  const AsOnMetal metal;
  const Relation::Ptr r = relation_of(RelationKind::custom);
  for (const char* route : {"metal.sorted", "metal.tiles"})
    EXPECT_EQ(refusal(route, conv_call(Operation::conv, r, 16, 16)).step,
              Rejection::Step::relation);
  EXPECT_EQ(
      refusal("metal.packed_tiles", conv_call(Operation::conv, r, 16, 16, 1, {4, 32, false})).step,
      Rejection::Step::relation);
}

// 2^30 rows are 2^24 tiles of 128 threads: one thread more than MLX counts.
TEST(MetalRoutes, OneLaunchHasFewerThan2To31Threads) {
  const AsOnMetal metal;
  const Packing packing{4, 32, false};
  const auto linear = [&](int64_t rows) {
    return conv_call(Operation::linear, Relation::identity(rows), 16, 16, 1, packing);
  };
  EXPECT_EQ(decide(linear(1 << 29)).chosen->name, "metal.packed");
  EXPECT_EQ(refusal("metal.packed", linear(1 << 30)).step, Rejection::Step::shape);
  EXPECT_EQ(decide(linear(1 << 30)).chosen->name, "gpu.mlx");
  EXPECT_EQ(decide(linear(2'000'000'000)).chosen->name, "gpu.mlx");
  const Call conv = conv_call(Operation::conv, Relation::identity(1 << 30), 16, 16);
  EXPECT_EQ(refusal("metal.buckets", conv).step, Rejection::Step::shape);
  EXPECT_TRUE(refusal("metal.rows", conv).fits());
}

TEST(MetalRoutes, AreNotTakenWithoutMetal) {
  if (mx::metal::is_available()) GTEST_SKIP() << "this machine has Metal";
  int metal_rows = 0;
  for (const OracleCase& test : oracle_cases())
    for (const Route& route : routes()) {
      if (route.operation != test.call.operation || !route.name.starts_with("metal.")) continue;
      EXPECT_FALSE(route.refusal(test.call).fits())
          << name(route.operation) << " " << route.name << " " << test.label;
      ++metal_rows;
    }
  EXPECT_GT(metal_rows, 100);
  const Call call = conv_call(Operation::conv, relation_of(RelationKind::submanifold), 3, 3);
  EXPECT_EQ(refusal("metal.rows", call).step, Rejection::Step::capability);
}

}  // namespace
}  // namespace lattice

// Results have the same bits on every instruction set with a fused multiply-add: AVX2, AVX-512 and
// NEON. The checksums below were recorded with AVX2; `make test-arm` compares NEON with them.
//
// Exceptions. Without a fused multiply-add (SCALAR, SSE2, SSE4) a product is rounded before it is
// added. AVX-512 adds even and odd input channels of a convolution apart where it has at most 32
// output columns (conv.h).
#include <gtest/gtest.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "lattice/kernels/cpu/base/checksum.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/features/attention.h"
#include "lattice/kernels/cpu/features/conv.h"
#include "lattice/kernels/cpu/features/neighbor_attention.h"
#include "lattice/kernels/cpu/features/norm.h"
#include "lattice/kernels/cpu/features/outer.h"
#include "lattice/kernels/cpu/features/pool.h"
#include "lattice/kernels/cpu/geometry/relations.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using Values = std::vector<float>;

Values values(int64_t n, uint64_t seed) {
  support::Random random(seed);
  Values out(static_cast<size_t>(n));
  for (float& v : out) v = static_cast<float>(random.below(2001)) / 1000.0f - 1.0f;
  return out;
}

uint32_t checksum(const Values& v) {
  return crc32c({reinterpret_cast<const uint8_t*>(v.data()), v.size() * sizeof(float)});
}

struct Problem {
  RelationLists lists, back;
  TileBounds bounds, back_bounds;
  Problem() {
    const support::Coords coords = support::random_set(3000, 10);
    const CoordSpan span{coords.data(), static_cast<int64_t>(coords.size()) / 4, false};
    lists = relate_same(std::make_shared<const CoordIndex>(index_coords(span)), Kernel{});
    back = reversed(lists);
    bounds = tile_bounds(lists, conv_tile(lists));
    back_bounds = tile_bounds(back, conv_tile(back));
  }
};
const Problem& problem() {
  static const Problem made;
  return made;
}

// Weights (27, c_in, c_out); `transposed` is the input gradient.
uint32_t conv_bits(int64_t c_in, int64_t c_out, bool transposed) {
  const Problem& p = problem();
  const Values w = values(27 * c_in * c_out, 2);
  DenseWeight weight({c_in, c_out}, w.data());
  if (transposed) {
    weight.shape = weight.shape.reversed();
    std::swap(weight.stride_in, weight.stride_out);
  }
  const Values x = values(p.lists.n_in * weight.shape.c_in, 1);
  Values y(static_cast<size_t>(p.lists.n_out * weight.shape.c_out));
  const ConvArgs args{weight.shape, x.data(), &weight, nullptr, y.data()};
  conv(transposed ? p.back : p.lists, transposed ? p.back_bounds : p.bounds, args);
  return checksum(y);
}

uint32_t outer_bits(int64_t c_in, int64_t c_out) {
  const Problem& p = problem();
  const Values x = values(p.lists.n_in * c_in, 1), y = values(p.lists.n_out * c_out, 2);
  Values u(static_cast<size_t>(27 * c_in * c_out));
  outer(p.lists, p.bounds, {{c_in, c_out}, x.data(), y.data(), u.data()});
  return checksum(u);
}

uint32_t pool_bits(PoolMode mode) {
  const Problem& p = problem();
  const Values x = values(p.lists.n_in * 20, 1);
  Values y(static_cast<size_t>(p.lists.n_out * 20));
  pool(p.lists, p.bounds, {FloatType::f32, x.data(), p.lists.n_in, 20}, mode, nullptr, y.data());
  return checksum(y);
}

uint32_t norm_bits() {
  const Rows shape{FloatType::f32, 1000, 20};
  const Values x = values(20000, 1), scale = values(20, 2), shift = values(20, 3);
  Values mean(20), var(20), y(x.size());
  moments(shape, x.data(), mean.data(), var.data());
  norm_rows(shape, {x.data(), mean.data(), scale.data(), shift.data(), nullptr, true, y.data()});
  y.insert(y.end(), mean.begin(), mean.end());
  y.insert(y.end(), var.begin(), var.end());
  return checksum(y);
}

// Results and gradients of segments of 50, 0 and 150 rows with a table by position.
uint32_t attention_bits(int64_t size) {
  const std::vector<int32_t> offsets = {0, 50, 50, 200};
  std::vector<int32_t> positions(200);
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int32_t>(i * 7 % 13);
  const int64_t n = 200 * 2 * size;
  const Values q = values(n, 1), k = values(n, 2), v = values(n, 3), g = values(n, 4),
               table = values(2 * 9, 5);
  Attention a;
  a.segments = 3;
  a.q_offsets = a.k_offsets = offsets.data();
  a.heads = a.kv_heads = 2, a.size = size;
  a.q = q.data(), a.k = k.data(), a.v = v.data();
  a.positions.table = table.data(), a.positions.size = 9, a.positions.axes = 1;
  a.positions.bounds[0] = 4;
  a.positions.q_positions = a.positions.k_positions = positions.data();
  Values all(static_cast<size_t>(4 * n + 400 + 18));
  float* out = all.data();
  float* lse = out + 4 * n;
  attention(a, out, lse);
  attention_gradients(a,
                      {out, lse, g.data(), out + n, out + 2 * n, out + 3 * n, nullptr, lse + 400});
  return checksum(all);
}

// 60 queries with 5 edges each into 40 rows.
uint32_t neighbor_attention_bits() {
  constexpr int64_t kQueries = 60, kSources = 40, kEdges = 5 * kQueries, kRow = 2 * 21;
  std::vector<int32_t> offsets, rows, queries, back_offsets(kSources + 1), back;
  for (int32_t i = 0; i <= kQueries; ++i) offsets.push_back(5 * i);
  for (int32_t e = 0; e < kEdges; ++e) {
    rows.push_back(e * 7 % kSources);
    queries.push_back(e / 5);
  }
  for (int32_t j = 0; j < kSources; ++j) {
    for (int32_t e = 0; e < kEdges; ++e)
      if (rows[static_cast<size_t>(e)] == j) back.push_back(e);
    back_offsets[static_cast<size_t>(j) + 1] = static_cast<int32_t>(back.size());
  }
  const Values q = values(kQueries * kRow, 1), k = values(kSources * kRow, 2),
               v = values(kSources * kRow, 3), g = values(kQueries * kRow, 4),
               bias = values(kEdges * 2, 5);
  NeighborAttention a;
  a.queries = kQueries, a.sources = kSources, a.offsets = offsets.data(), a.rows = rows.data();
  a.heads = 2, a.size = 21, a.q = q.data(), a.k = k.data(), a.v = v.data(), a.bias = bias.data();
  Values all(
      static_cast<size_t>(2 * kQueries * kRow + 2 * kSources * kRow + kEdges * 2 + kQueries * 2));
  float* out = all.data();
  float* dq = out + kQueries * kRow;
  float* dk = dq + kQueries * kRow;
  float* dv = dk + kSources * kRow;
  float* dbias = dv + kSources * kRow;
  float* lse = dbias + kEdges * 2;
  neighbor_attention(a, out, lse);
  neighbor_attention_gradients(
      a, {out, lse, g.data(), back_offsets.data(), back.data(), queries.data(), dq, dk, dv, dbias});
  return checksum(all);
}

bool has_fma(const std::string& name) {
  return name.starts_with("AVX") || name.starts_with("NEON");
}

// What `bits` gives is `expected` on every instruction set but those that are left out.
void expect_bits(const char* what, uint32_t expected, const std::function<uint32_t()>& bits,
                 bool narrow_conv = false) {
  SCOPED_TRACE(what);
  support::on_each_target([&] {
    const std::string name = simd_name();
    if (!has_fma(name) || (narrow_conv && name.starts_with("AVX3"))) return;
    EXPECT_EQ(bits(), expected) << what << " on " << name << ": 0x" << std::hex << bits();
  });
}

TEST(Bits, Convolution) {
  expect_bits("conv 64 -> 64", 0x50ce1f99, [] { return conv_bits(64, 64, false); });
  expect_bits("conv 33 -> 48", 0x56fee9e6, [] { return conv_bits(33, 48, false); });
  expect_bits("conv 16 -> 16", 0x4d71ff69, [] { return conv_bits(16, 16, false); }, true);
  expect_bits("input gradient 64 -> 32", 0x70563624, [] { return conv_bits(64, 32, true); });
}

TEST(Bits, WeightGradient) {
  expect_bits("outer 64 -> 64", 0x372266ac, [] { return outer_bits(64, 64); });
  expect_bits("outer 16 -> 16", 0xf73b057d, [] { return outer_bits(16, 16); });
  expect_bits("outer 33 -> 7", 0xff5090a9, [] { return outer_bits(33, 7); });
}

TEST(Bits, Pooling) {
  expect_bits("sum", 0x6baccb31, [] { return pool_bits(PoolMode::sum); });
  expect_bits("mean", 0x4eed80b1, [] { return pool_bits(PoolMode::mean); });
  expect_bits("max", 0xcf1379f7, [] { return pool_bits(PoolMode::max); });
}

TEST(Bits, Attention) {
  expect_bits("attention of size 64", 0x532cf0bf, [] { return attention_bits(64); });
  // Whole vectors with AVX2 and NEON, not with AVX-512.
  expect_bits("attention of size 24", 0xfe98c900, [] { return attention_bits(24); });
  expect_bits("attention of size 21", 0xb9e4db29, [] { return attention_bits(21); });
  expect_bits("neighbor attention", 0x97af9bb2, neighbor_attention_bits);
}

TEST(Bits, Norm) { expect_bits("norm", 0x5349067f, norm_bits); }

}  // namespace
}  // namespace lattice::cpu

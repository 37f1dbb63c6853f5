// Results have the same bits on every instruction set with a fused multiply-add: AVX2, AVX-512 and
// NEON. The checksums below were recorded with AVX2; `make test-arm` compares NEON with them.
//
// Exceptions. Without a fused multiply-add (SSE2, SSE4) a product is rounded before it is added.
// AVX-512 adds even and odd input channels of a convolution apart where it has at most 32 output
// columns (conv.h).
#include <gtest/gtest.h>
#include <hwy/highway.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lattice/kernels/cpu/base/checksum.h"
#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/features/conv.h"
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
  DenseWeight weight;
  weight.data = w.data();
  weight.rows = transposed ? c_out : c_in;
  weight.group_columns = transposed ? c_in : c_out;
  weight.stride_k = c_in * c_out;
  weight.stride_in = transposed ? 1 : c_out;
  weight.stride_out = transposed ? c_out : 1;
  const Values x = values(p.lists.n_in * weight.rows, 1);
  Values y(static_cast<size_t>(p.lists.n_out * weight.group_columns));
  ConvArgs args;
  args.x = x.data();
  args.weight = &weight;
  args.y = y.data();
  args.c_in = weight.rows;
  args.c_out = weight.group_columns;
  conv(transposed ? p.back : p.lists, transposed ? p.back_bounds : p.bounds, args);
  return checksum(y);
}

uint32_t outer_bits(int64_t c_in, int64_t c_out) {
  const Problem& p = problem();
  const Values x = values(p.lists.n_in * c_in, 1), y = values(p.lists.n_out * c_out, 2);
  Values u(static_cast<size_t>(27 * c_in * c_out));
  OuterArgs args;
  args.x = x.data();
  args.y = y.data();
  args.u = u.data();
  args.c_in = c_in;
  args.c_out = c_out;
  outer(p.lists, p.bounds, args);
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

bool has_fma(const std::string& name) {
  return name != "SCALAR" && name != "EMU128" && name != "SSE2" && name != "SSSE3" &&
         name != "SSE4";
}

// What `bits` gives is `expected` on every instruction set but those that are left out.
void expect_bits(const char* what, uint32_t expected, const std::function<uint32_t()>& bits,
                 bool narrow_conv = false) {
  SCOPED_TRACE(what);
  support::on_each_target([&] {
    // What the library runs: it has no kernels of its own for AVX3_DL and others.
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

TEST(Bits, Norm) { expect_bits("norm", 0x5349067f, norm_bits); }

}  // namespace
}  // namespace lattice::cpu

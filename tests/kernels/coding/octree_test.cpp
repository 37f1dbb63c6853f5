// Octree coding: every set comes back in Morton order, the format is frozen, other bytes are
// refused.
#include "lattice/kernels/cpu/coding/octree.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Coords;

Coords sorted(const Coords& rows) {
  const CoordSpan span{rows.data(), static_cast<int64_t>(rows.size()) / 4, false};
  Coords out(rows.size());
  take_rows(span, morton_order(span).span(), out.data());
  return out;
}
std::vector<uint8_t> encode(const Coords& rows) {
  return encode_octree({rows.data(), static_cast<int64_t>(rows.size()) / 4, false}, "test");
}

TEST(Octree, GivesEverySceneBack) {
  for (const support::Scene& scene : support::scenes()) {
    const Coords rows = sorted(scene.coords);
    EXPECT_EQ(decode_octree(encode(rows), "test"), rows) << scene.name;
  }
}

TEST(Octree, EndsOfInt32AndBatches) {
  constexpr int32_t lo = INT32_MIN, hi = INT32_MAX;
  for (const Coords& rows : {
           Coords{0, 0, 0, 0},
           Coords{hi, lo, hi, lo},
           Coords{0, lo, lo, lo, 0, hi, hi, hi},
           Coords{0, hi, hi, hi, 0, hi - 1, hi, hi, 5, lo, lo, lo + 1},
           Coords{0, -1, -1, -1, 0, 0, 0, 0, 1, -1, -1, -1, 7, 3, -4, 5, 1 << 30, 3, -4, 5},
           Coords{3, 1000000, -2000000, 7, 3, 1000001, -2000000, 7, 3, 1000001, -1999999, 7},
       }) {
    const Coords expected = sorted(rows);
    EXPECT_EQ(decode_octree(encode(expected), "test"), expected);
  }
  const Coords batches = sorted(support::random_set(3000, 100, 5, 9));
  EXPECT_EQ(decode_octree(encode(batches), "test"), batches);
}

TEST(Octree, RefusesDuplicates) {
  EXPECT_THROW(encode({0, 1, 2, 3, 0, 1, 2, 3}), std::invalid_argument);
}

// Bits a voxel and the very bytes of a large scene: the model is part of the format.
TEST(Octree, Golden) {
  const std::vector<uint8_t> room = encode(sorted(support::scene("room").coords));
  EXPECT_LT(8.0 * static_cast<double>(room.size()) / 172802, 1.06);
  EXPECT_EQ(crc32c(room), 1566325153u);
}

TEST(Octree, RefusesTruncatedAndClaimingBytes) {
  const std::vector<uint8_t> data = encode(sorted(support::random_set(200, 20, 2)));
  for (size_t n = 0; n < data.size(); ++n)
    EXPECT_THROW(decode_octree(Bytes(data).first(n), "test"), std::invalid_argument) << n;
  std::vector<uint8_t> longer = data;
  longer.insert(longer.end(), 4, 0);
  EXPECT_THROW(decode_octree(longer, "test"), std::invalid_argument);
  std::vector<uint8_t> many = data;
  many[3] = 0x10;  // 2^28 rows
  EXPECT_THROW(decode_octree(many, "test"), std::invalid_argument);
}

}  // namespace
}  // namespace lattice::cpu

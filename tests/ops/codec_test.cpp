// The file of a voxel cloud: rows, attributes and grid come back; every flipped bit and every cut
// is refused.
#include "lattice/ops/codec.h"

#include <gtest/gtest.h>
#include <mlx/ops.h>
#include <mlx/random.h>
#include <mlx/transforms.h>

#include <algorithm>
#include <cstdlib>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/ops/coords.h"
#include "tests/support/errors.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice {
namespace {

bool same(const mx::array& a, const mx::array& b) {
  return a.dtype() == b.dtype() && a.shape() == b.shape() && mx::array_equal(a, b).item<bool>();
}
mx::array rows(const support::Coords& c) {
  return mx::array(c.data(), {static_cast<int>(c.size() / 4), 4}, mx::int32);
}

VoxelCloud sample(int64_t n) {
  VoxelCloud cloud{rows(support::random_set(n, 20, 2))};
  const int rows = static_cast<int>(n);
  for (const mx::Dtype t : {mx::uint8, mx::int8, mx::uint16, mx::int16, mx::uint32, mx::int32,
                            mx::float16, mx::float32})
    cloud.attributes.emplace_back(
        std::to_string(cloud.attributes.size()),
        mx::astype(mx::random::randint(0, 100, {rows, 3}, mx::int32, mx::random::key(1)), t));
  cloud.attributes.emplace_back(
      "intensity", mx::random::normal({rows}, mx::float32, 0.0f, 1.0f, mx::random::key(2)));
  cloud.voxel_size = 0.04;
  cloud.origin = {1.5, -2e6, 0};
  return cloud;
}

TEST(Codec, GivesEverythingBackInMortonOrder) {
  for (const int64_t n : {0, 1, 500}) {
    const VoxelCloud cloud = sample(n);
    const VoxelCloud back = decode_points(encode_points(cloud));
    const CoordinateOrdering order = morton_sort_coords(cloud.coords);
    EXPECT_TRUE(same(back.coords, order.coords));
    EXPECT_EQ(back.voxel_size, cloud.voxel_size);
    EXPECT_EQ(back.origin, cloud.origin);
    ASSERT_EQ(back.attributes.size(), cloud.attributes.size());
    for (size_t i = 0; i < back.attributes.size(); ++i) {
      EXPECT_EQ(back.attributes[i].first, cloud.attributes[i].first);
      EXPECT_TRUE(
          same(back.attributes[i].second, mx::take(cloud.attributes[i].second, order.order, 0)))
          << i;
    }
  }
}

TEST(Codec, RefusesEveryFlippedBitAndEveryCut) {
  VoxelCloud cloud{rows(support::random_set(30, 10))};
  cloud.attributes.emplace_back("color", mx::ones({30, 3}, mx::uint8));
  const ByteString data = encode_points(cloud);
  for (size_t n = 0; n < data.size(); ++n)
    EXPECT_THROW(decode_points(ByteSpan(data).first(n)), std::invalid_argument) << n;
  for (size_t bit = 0; bit < 8 * data.size(); ++bit) {
    ByteString flipped = data;
    flipped[bit / 8] ^= static_cast<uint8_t>(1u << bit % 8);
    EXPECT_THROW(decode_points(flipped), std::invalid_argument) << bit;
  }
  ByteString longer = data;
  longer.push_back(0);
  EXPECT_THROW(decode_points(longer), std::invalid_argument);
}

// Hostile files: bytes are overwritten and the checksums of the sections made right again. Whatever
// is accepted is consistent. `make fuzz` runs more of them.
TEST(Codec, HostileFiles) {
  const ByteString octree = encode_points(sample(40));
  const ByteString lidar = encode_points(sample(90), {}, {}, {"lidar", false, {}});
  support::Random random(1);
  const char* wanted = std::getenv("LATTICE_FUZZ_INPUTS");
  const int files = wanted ? std::max(std::atoi(wanted) / 50, 100) : 1500;
  int accepted = 0;
  for (int i = 0; i < files; ++i) {
    ByteString data = i % 2 ? lidar : octree;
    for (int64_t k = random.between(1, 3); k > 0; --k)
      data[static_cast<size_t>(random.below(static_cast<int64_t>(data.size())))] =
          static_cast<uint8_t>(random.bits());
    for (size_t at = 8; at + 16 <= data.size();) {
      const uint64_t length = cpu::get<uint64_t>(&data[at + 4]);
      if (length > data.size() - at - 16) break;
      const uint32_t sum = cpu::crc32c(ByteSpan(data).subspan(at + 16, length),
                                       cpu::crc32c(ByteSpan(data).subspan(at, 12)));
      for (size_t b = 0; b < 4; ++b) data[at + 12 + b] = static_cast<uint8_t>(sum >> (8 * b));
      at += 16 + length;
    }
    try {
      const VoxelCloud cloud = decode_points(data);
      ++accepted;
      for (const auto& [name, values] : cloud.attributes)
        ASSERT_EQ(values.shape(0), cloud.coords.shape(0)) << name;
    } catch (const std::invalid_argument&) {
    }
  }
  EXPECT_GT(accepted, 0);  // other values, not other shapes
  EXPECT_LT(accepted, files);
}

TEST(Codec, ModelsGiveTheSameRows) {
  const VoxelCloud cloud = sample(700);
  const VoxelCloud expected = decode_points(encode_points(cloud));
  for (const EncodeOptions& options :
       {EncodeOptions{"lidar", false, {}}, {"lidar", true, {1, -2, 3}}, {"auto", false, {}}}) {
    const ByteString data = encode_points(cloud, {}, {}, options);
    EXPECT_EQ(encoded_rows(data), 700);
    const VoxelCloud back = decode_points(data);
    EXPECT_TRUE(same(back.coords, expected.coords));
    for (size_t i = 0; i < back.attributes.size(); ++i)
      EXPECT_TRUE(same(back.attributes[i].second, expected.attributes[i].second));
  }
  EXPECT_EQ(encoded_rows(encode_points(cloud)), 700);
  EXPECT_EQ(encoded_rows(encode_points(sample(0), {}, {}, {"lidar", false, {}})), 0);
}

TEST(Codec, ProgressGoesUp) {
  const VoxelCloud cloud{rows(support::scene("lidar").coords)};
  for (const char* model : {"lidar", "auto"}) {
    double last = 0;
    int told = 0;
    const OnProgress tell = [&](double share) {
      EXPECT_GE(share, last);
      EXPECT_LE(share, 1);
      last = share;
      ++told;
    };
    const ByteString data = encode_points(cloud, {}, tell, {model, false, {}});
    EXPECT_GT(told, 1) << model;
    last = 0, told = 0;
    decode_points(data, {}, tell);
    EXPECT_GT(told, 1) << model;
  }
}

using support::message;

TEST(Codec, Errors) {
  VoxelCloud cloud{rows({0, 1, 2, 3, 0, 1, 2, 3})};
  EXPECT_EQ(message([&] { encode_points(cloud); }),
            "[encode_points] coords found (0, 1, 2, 3) twice, expected distinct rows");
  cloud.coords = mx::zeros({1, 4}, mx::int64);
  EXPECT_EQ(message([&] { encode_points(cloud); }),
            "[encode_points] coords must be int32, got int64");
  cloud.coords = mx::zeros({1, 4}, mx::int32);
  cloud.attributes.emplace_back("a", mx::zeros({2, 3}));
  EXPECT_EQ(message([&] { encode_points(cloud); }),
            "[encode_points] attribute 'a' must have shape (1,) or (1, C) with 1 <= C <= 65535, "
            "got (2, 3)");
  cloud.attributes[0].second = mx::zeros({1}, mx::int64);
  EXPECT_NE(message([&] { encode_points(cloud); }).find("got int64"), std::string::npos);
  cloud.attributes = {{"a", mx::zeros({1})}, {"a", mx::zeros({1})}};
  EXPECT_EQ(message([&] { encode_points(cloud); }), "[encode_points] attribute 'a' is given twice");
  cloud.attributes.clear();
  cloud.voxel_size = 0;
  EXPECT_NE(message([&] { encode_points(cloud); }).find("voxel_size"), std::string::npos);
}

}  // namespace
}  // namespace lattice

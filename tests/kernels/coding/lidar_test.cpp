// Version 2 of the codec: every set comes back, the network is what its header says, and files and
// clouds have the same bits on every instruction set and for any number of threads.
#include "lattice/kernels/cpu/coding/lidar.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/geometry/coords.h"
#include "lattice/kernels/cpu/geometry/curves.h"
#include "tests/support/errors.h"
#include "tests/support/hwy_targets.h"
#include "tests/support/random.h"
#include "tests/support/workloads.h"

namespace lattice::cpu {
namespace {

using support::Coords;
using support::message;

Coords sorted(const Coords& rows) {
  const CoordSpan span{rows.data(), static_cast<int64_t>(rows.size()) / 4, false};
  Coords out(rows.size());
  take_rows(span, morton_order(span).span(), out.data());
  return out;
}
LidarOptions options(bool fast, std::array<int32_t, 3> sensor = {}) {
  return {&LidarNet::shipped(), fast, sensor};
}
std::vector<uint8_t> encode(const Coords& rows, const LidarOptions& how) {
  return encode_lidar({rows.data(), static_cast<int64_t>(rows.size()) / 4, false}, how, "test");
}
Coords scene(const std::string& name) { return sorted(support::scene(name).coords); }

TEST(Lidar, GivesEverySceneBack) {
  for (const char* name : {"lidar", "random", "line", "dense_block", "empty"})
    for (const bool fast : {false, true}) {
      const Coords rows = scene(name);
      EXPECT_EQ(decode_lidar(encode(rows, options(fast)), options(fast), "test"), rows) << name;
    }
}

TEST(Lidar, EndsOfInt32AndBatchesAndSensors) {
  constexpr int32_t lo = INT32_MIN, hi = INT32_MAX;
  for (const Coords& rows :
       {Coords{0, 0, 0, 0}, Coords{hi, lo, hi, lo}, Coords{0, lo, lo, lo, 0, hi, hi, hi},
        Coords{0, hi, hi, hi, 0, hi - 1, hi, hi, 5, lo, lo, lo + 1},
        sorted(support::random_set(3000, 1000, 5, 9)),
        sorted(support::random_set(1500, 1 << 30, 3))})
    for (const std::array<int32_t, 3>& sensor :
         {std::array<int32_t, 3>{}, {lo, lo, lo}, {hi, hi, lo}, {3, -4, 500}})
      for (const bool fast : {false, true}) {
        const LidarOptions how = options(fast, sensor);
        const Coords expected = sorted(rows);
        EXPECT_EQ(decode_lidar(encode(expected, how), how, "test"), expected);
      }
}

TEST(Lidar, RefusesDuplicates) {
  EXPECT_THROW(encode({0, 1, 2, 3, 0, 1, 2, 3}, options(false)), std::invalid_argument);
}

TEST(Lidar, RefusesTruncatedAndClaimingBytes) {
  for (const bool fast : {false, true}) {
    const std::vector<uint8_t> data =
        encode(sorted(support::random_set(200, 20, 2)), options(fast));
    const auto refused = [&](const std::vector<uint8_t>& other) {
      EXPECT_THROW(decode_lidar(other, options(fast), "test"), std::invalid_argument);
    };
    for (size_t n = 0; n < data.size(); ++n) refused({data.begin(), data.begin() + n});
    std::vector<uint8_t> longer = data;
    longer.insert(longer.end(), 4, 0);
    refused(longer);
    std::vector<uint8_t> many = data;
    many[3] = 0x10;  // 2^28 rows
    refused(many);
  }
}

// The bytes of a file are its format: network, model and coder must never change. Every instruction
// set of this build, one thread and two; `make test-arm TESTS=kernels/coding/lidar` adds NEON.
TEST(Lidar, SameBitsEverywhere) {
  Coords rows = scene("lidar");
  rows.resize(size_t{4} * 12000);
  struct Golden {
    bool fast;
    uint32_t file;
  };
  const auto check = [&](const Golden& golden) {
    const LidarOptions how = options(golden.fast, {10, -20, 30});
    const std::vector<uint8_t> data = encode(rows, how);
    EXPECT_EQ(crc32c(data), golden.file) << "fast " << golden.fast;
    const Coords back = decode_lidar(data, how, "test");
    EXPECT_EQ(crc32c({reinterpret_cast<const uint8_t*>(back.data()), 4 * back.size()}), 598277921u);
  };
  for (const Golden golden : {Golden{false, 1071003374u}, Golden{true, 1963754021u}})
    support::on_each_target([&] {
      for (const int threads : {1, 2}) {
        set_thread_count(threads);
        check(golden);
      }
    });
}

// The formulas of lidar_net.h, one value at a time, from the file itself.
class Formulas {
 public:
  explicit Formulas(Bytes file) : reader_(file, "test") {
    reader_.bytes(8);
    masks_ = tables(256);
    ranges_ = tables(64);
    directions_ = tables(99);
    for (Layer* layer :
         {&up_, &block_[0], &block_[1], &block_[2], &block_[3], &block_[4], &block_[5], &head_})
      read(*layer, layer == &up_ ? 8 : layer == &head_ ? 1 : 27);
  }

  using Row = std::array<int, 32>;
  using Rows = std::vector<Row>;

  // h of the nodes of `level`; `handed` is that of `above`, or zero, and becomes that of `level`.
  Rows run(const OctreeLevel& above, const OctreeLevel& level, const std::vector<Place>& places,
           Rows& handed) const {
    Rows x(above.size(), Row{});
    for (size_t i = 0; i < x.size(); ++i)
      for (size_t m = 0; m < 32; ++m)
        x[i][m] = std::clamp((handed.empty() ? 0 : handed[i][m]) + masks_[above.masks[i] * 32 + m],
                             0, 255);
    x = add_block(above, x, 0);
    Rows u;
    for (size_t i = 0; i < above.size(); ++i)
      for (unsigned k = 0; k < 8; ++k)
        if (above.masks[i] >> k & 1) {
          const Place& place = places[u.size()];
          Row sum = product(up_, k, x[i]), y;
          for (size_t m = 0; m < 32; ++m) {
            int seen = ranges_[place.range * 32 + m];
            for (size_t a = 0; a < 3; ++a)
              seen += directions_[(a * 33 + place.direction[a]) * 32 + m];
            y[m] = finish(up_, m, sum[m] + up_.last[m] * seen, true);
          }
          u.push_back(y);
        }
    handed = add_block(level, add_block(level, u, 2), 4);
    Rows h;
    for (const Row& row : handed) {
      const Row sum = product(head_, 0, row);
      h.emplace_back();
      for (size_t m = 0; m < 32; ++m) h.back()[m] = finish(head_, m, sum[m], false);
    }
    return h;
  }

 private:
  struct Layer {
    std::vector<int8_t> w;
    std::vector<int32_t> bias, last;
  };
  std::vector<int> tables(size_t rows) {
    std::vector<int> out(rows * 32);
    for (int& v : out) v = static_cast<int16_t>(reader_.number<uint16_t>());
    return out;
  }
  void read(Layer& layer, size_t n_k) {
    for (size_t i = 0; i < n_k * 1024; ++i)
      layer.w.push_back(static_cast<int8_t>(reader_.number<uint8_t>()));
    for (std::vector<int32_t>* part : {&layer.bias, &layer.last})
      for (int m = 0; m < 32; ++m)
        part->push_back(static_cast<int32_t>(reader_.number<uint32_t>()));
  }
  static Row product(const Layer& layer, size_t k, const Row& x) {
    Row sum{};
    for (size_t c = 0; c < 32; ++c)
      for (size_t m = 0; m < 32; ++m) sum[m] += x[c] * layer.w[(k * 32 + c) * 32 + m];
    return sum;
  }
  static int finish(const Layer& layer, size_t m, int sum, bool whole) {
    const float scale =
        whole ? 1.0f / static_cast<float>(layer.last[m]) : std::bit_cast<float>(layer.last[m]);
    const float y = static_cast<float>(sum + layer.bias[m]) * scale;
    return static_cast<int>(std::nearbyint(std::clamp(y, 0.0f, 255.0f)));
  }
  Rows convolved(const OctreeLevel& level, const Rows& x, size_t which, const Rows* add) const {
    const Layer& layer = block_[which];
    Rows out(x.size());
    for (size_t i = 0; i < x.size(); ++i) {
      Row sum{};
      for (size_t s = 0; s < kAround; ++s)
        if (const int32_t n = level.around[i * kAround + s]; n >= 0) {
          const Row part = product(layer, s, x[static_cast<size_t>(n)]);
          for (size_t m = 0; m < 32; ++m) sum[m] += part[m];
        }
      for (size_t m = 0; m < 32; ++m)
        out[i][m] = finish(layer, m, sum[m] + (add ? layer.last[m] * (*add)[i][m] : 0), add);
    }
    return out;
  }
  Rows add_block(const OctreeLevel& level, const Rows& x, size_t first) const {
    return convolved(level, convolved(level, x, first, nullptr), first + 1, &x);
  }

  ByteReader reader_;
  std::vector<int> masks_, ranges_, directions_;
  Layer up_, block_[6], head_;
};

TEST(Lidar, NetworkIsItsFormulas) {
  const Coords rows = sorted(support::random_set(900, 24));
  const Octree tree = octree_of({rows.data(), 900, false}, "test");
  const LidarNet& net = LidarNet::shipped();
  const Formulas formulas(LidarNet::shipped_file());
  LidarNet::Handed handed;
  Formulas::Rows expected_handed;
  OctreeLevel level = octree_roots(1), above;
  int levels = 0;
  for (int d = 0; d < tree.cube.depth; ++d) {
    if (d > 1) {
      const std::vector<Place> places = places_of(level, {3, 4, 5}, tree.cube.depth - d);
      const Buffer<uint8_t> h = net.run(above, level, places, handed);
      const Formulas::Rows expected = formulas.run(above, level, places, expected_handed);
      for (size_t i = 0; i < level.size(); ++i)
        for (size_t m = 0; m < 32; ++m)
          ASSERT_EQ(h[static_cast<int64_t>(32 * i + m)], expected[i][m]) << d << " " << i;
      ++levels;
    }
    level.masks = tree.masks[static_cast<size_t>(d)];
    OctreeLevel next = octree_children(level, true);
    above = std::move(level);
    level = std::move(next);
  }
  EXPECT_GE(levels, 3);
}

// Range and direction against floating point.
TEST(Lidar, PlacesAreRangeAndDirection) {
  support::Random random(4);
  OctreeLevel level;
  for (int i = 0; i < 500; ++i)
    level.nodes.push_back({0, static_cast<uint32_t>(random.below(1000)),
                           static_cast<uint32_t>(random.below(1000)),
                           static_cast<uint32_t>(random.below(1000))});
  const std::vector<Place> places = places_of(level, {400, 500, 600}, 0);
  for (size_t i = 0; i < places.size(); ++i) {
    const double d[3] = {level.nodes[i][1] - 400.0, level.nodes[i][2] - 500.0,
                         level.nodes[i][3] - 600.0};
    const double far = std::hypot(d[0], d[1], d[2]);
    const double most = std::max({std::abs(d[0]), std::abs(d[1]), std::abs(d[2])});
    EXPECT_NEAR(places[i].range, 4 * std::log2(2 * far), 1.2);
    for (size_t a = 0; a < 3; ++a) EXPECT_NEAR(places[i].direction[a], 16 + 16 * d[a] / most, 1.0);
  }
}

TEST(Lidar, RefusesOtherNetworks) {
  const Bytes file = LidarNet::shipped_file();
  std::vector<uint8_t> data(file.begin(), file.end());
  EXPECT_EQ(LidarNet(data).identity(), LidarNet::shipped().identity());
  for (const size_t n : {size_t{0}, size_t{3}, size_t{8}, data.size() / 2, data.size() - 1})
    EXPECT_THROW(LidarNet(Bytes(data).first(n)), std::invalid_argument) << n;
  data.push_back(0);
  EXPECT_THROW(LidarNet{Bytes(data)}, std::invalid_argument);
  data.pop_back();
  data[0] = 'X';
  EXPECT_NE(message([&] { LidarNet{Bytes(data)}; }).find("no network"), std::string::npos);
  data[0] = 'M';
  // A bias of 2^24: behind the tables and the weights of the first layer.
  const size_t bias = 8 + size_t{2} * 32 * (256 + 64 + 99) + 8 * 1024;
  data[bias] = data[bias + 1] = data[bias + 2] = 0;
  data[bias + 3] = 1;
  EXPECT_NE(message([&] { LidarNet{Bytes(data)}; }).find("2^24"), std::string::npos);
}

}  // namespace
}  // namespace lattice::cpu

// Programs on clouds that are larger than memory: tiles give the bits of the whole run.
#include "lattice/program/tiles.h"

#include <gtest/gtest.h>
#include <mlx/mlx.h>

#include <array>
#include <cstring>
#include <random>
#include <set>

namespace lattice {
namespace {

constexpr const char* kFile = "programs/mink_2026_11.lattice.safetensors";

SparseTensor street(const Program& program, int rows) {
  std::mt19937 random(1);
  std::set<std::array<int32_t, 4>> cells;
  while (static_cast<int>(cells.size()) < rows)
    cells.insert({0, static_cast<int32_t>(random() % 500) - 100,
                  static_cast<int32_t>(random() % 200), static_cast<int32_t>(random() % 4)});
  std::vector<int32_t> coords;
  for (const auto& cell : cells) coords.insert(coords.end(), cell.begin(), cell.end());
  const auto channels = static_cast<int>(program.inputs()[0].type.shape[1]);
  return {mx::array(coords.data(), {rows, 4}, mx::int32),
          mx::random::normal({rows, channels}, mx::float32, 0, 1, mx::random::key(3))};
}

bool same_bits(const mx::array& a, const mx::array& b) {
  mx::array x = mx::contiguous(a), y = mx::contiguous(b);
  mx::eval(x, y);
  return x.shape() == y.shape() && std::memcmp(x.data<char>(), y.data<char>(), x.nbytes()) == 0;
}

TEST(Tiles, GiveTheBitsOfTheWholeRun) {
  const Program program = Program::load(kFile);
  const SparseTensor x = street(program, 6000);
  Session session = program.session();
  const std::string input = program.inputs()[0].name, output = program.outputs()[0].name;
  const auto whole = std::get<SparseTensor>(session.run({{input, x}}).at(output));
  for (const int64_t side : {0, 64, 176}) {
    int64_t done = 0;
    const SparseTensor tiled =
        run_tiled(program, x, {{side, side, 0}, {5, -3, 0}, 0, 0, [&](int64_t n, int64_t all) {
                                 EXPECT_EQ(all, 6000);
                                 done = n;
                               }});
    EXPECT_EQ(done, 6000);
    EXPECT_TRUE(same_bits(tiled.coords(), whole.coords()));
    EXPECT_TRUE(same_bits(tiled.feats(), whole.feats()));
  }
}

TEST(Tiles, ArePlannedFromCountedRows) {
  const Program program = Program::load(kFile);
  const ReceptiveField field = receptive_field(program);
  EXPECT_GT(field.before[0], 0);
  const Triple side{64, 64, 64};
  const std::vector<int64_t> cells{0, 0, 0, 1, 0, 0, 100, 7, 0}, counts{10, 20, 30};
  EXPECT_EQ(plan_tiles(program, cells, counts, side, {}).size(), 1U);
  const auto tiles = plan_tiles(program, cells, counts, side, {{128, 128, 0}});
  ASSERT_EQ(tiles.size(), 2U);
  EXPECT_EQ(tiles[1].low[0], 100 * 64);
  EXPECT_THROW(plan_tiles(program, cells, counts, side, {{128, 128, 0}, {0, 0, 0}, 1}), Error);
  EXPECT_THROW(plan_tiles(program, {cells.data(), 4}, counts, side, {}), Error);
  EXPECT_THROW(plan_tiles(program, cells, counts, {0, 64, 64}, {}), Error);
  EXPECT_THROW(plan_tiles(program, cells, counts, side, {{-64, 64, 0}}), Error);
}

TEST(Tiles, AreFullWhereRowsWereMeasured) {
  const Program program = Program::load(kFile);
  const Triple side{64, 64, 64};
  std::vector<int64_t> cells, counts;
  for (int64_t x = 0; x < 90; ++x)
    for (int64_t y = 0; y < 60; ++y) {
      cells.insert(cells.end(), {x, y, 0});
      counts.push_back(100);
    }
  TileOptions options;
  options.row_bytes = 10;
  options.bytes = 10 * 100 * 90 * 60 / 5;  // five tiles, if there were nothing around them
  const auto tiles = plan_tiles(program, cells, counts, side, options);
  EXPECT_LE(tiles.size(), 8U);
  int64_t area = 0;
  for (const TileBox& tile : tiles)
    area += (std::min<int64_t>(tile.high[0], 90 * 64) - tile.low[0]) / 64 *
            ((std::min<int64_t>(tile.high[1], 60 * 64) - tile.low[1]) / 64);
  EXPECT_EQ(area, 90 * 60);
}

TEST(Tiles, HaveSidesThatAreNotNegative) {
  const Program program = Program::load(kFile);
  TileOptions options;
  options.tile = {-1, 0, 0};
  EXPECT_THROW(run_tiled(program, street(program, 50), options), Error);
}

}  // namespace
}  // namespace lattice

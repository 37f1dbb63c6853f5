// Panels cover every output column once; a window holds what the edges read, and nothing more.
#include "lattice/kernels/cpu/features/conv_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

namespace lattice::cpu {
namespace {

TEST(ConvPlan, PanelsCoverTheColumnsOfEachGroup) {
  for (const int64_t lanes : {4, 8, 16})
    for (const int64_t groups : {1, 2, 3})
      for (const int64_t columns : {1, 5, 16, 33, 96, 200}) {
        const int64_t c_in = 7 * groups, c_out = columns * groups;
        int64_t next = 0, least = INT64_MAX, most = 0;
        for (const Panel& p : cut_panels({c_in, c_out, groups}, lanes, 4)) {
          EXPECT_EQ(p.column, next);
          next += p.columns;
          EXPECT_EQ(p.x_column, p.column / columns * 7);
          EXPECT_EQ(p.column / columns, (p.column + p.columns - 1) / columns) << "two groups";
          EXPECT_EQ(p.vectors, (p.columns + lanes - 1) / lanes);
          least = std::min(least, p.vectors);
          most = std::max(most, p.vectors);
        }
        EXPECT_EQ(next, c_out);
        EXPECT_LE(most, 4);
        EXPECT_LE(most - least, 1);
      }
}

TEST(ConvPlan, DepthwiseGroupsLieSideBySide) {
  EXPECT_TRUE((ConvShape{40, 40, 40}.is_depthwise()));
  EXPECT_FALSE((ConvShape{1, 1, 1}.is_depthwise()));
  EXPECT_FALSE((ConvShape{40, 80, 40}.is_depthwise()));
  const std::vector<Panel> panels = cut_panels({40, 40, 40}, 8, 2);
  ASSERT_EQ(panels.size(), 3u);
  for (const Panel& p : panels) EXPECT_EQ(p.x_column, p.column);
  EXPECT_EQ(panels.back().column + panels.back().columns, 40);
}

TEST(ConvPlan, WindowsHoldWhatEdgesRead) {
  const std::vector<int32_t> up = {2, 3, 7, 9}, any = {8, 1, 5, 4};
  RelationLists lists;
  lists.n_in = 20;
  lists.lists = {{up.data(), up.data(), 4}, {any.data(), up.data(), 4}, {nullptr, nullptr, 20}};
  lists.monotone = false;
  const auto window = [&](std::vector<int32_t> from, std::vector<int32_t> to, int64_t k0,
                          int64_t k1) {
    const Window w = input_window(lists, from.data(), to.data(), k0, k1);
    return std::vector<int64_t>{w.lo, w.hi};
  };
  EXPECT_EQ(window({0, 0, 0}, {4, 4, 0}, 0, 3), (std::vector<int64_t>{1, 10}));
  EXPECT_EQ(window({0, 2, 0}, {0, 4, 0}, 0, 3), (std::vector<int64_t>{4, 6}));
  EXPECT_EQ(window({0, 0, 11}, {0, 0, 15}, 0, 3), (std::vector<int64_t>{11, 15}));
  EXPECT_EQ(window({0, 0, 11}, {4, 4, 15}, 0, 1), (std::vector<int64_t>{2, 10}));
  EXPECT_EQ(window({4, 4, 20}, {4, 4, 20}, 0, 3), (std::vector<int64_t>{0, 0}));
  lists.monotone = true;
  EXPECT_EQ(window({1, 0, 0}, {3, 0, 0}, 0, 3), (std::vector<int64_t>{3, 8}));
}

}  // namespace
}  // namespace lattice::cpu

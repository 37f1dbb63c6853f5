// Detector: boxes, velocities and dropped points from a cloud in any layout, and errors with codes.
#include "lattice/program/detector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "lattice/program/loaded.h"

namespace lattice {
namespace {

// Each voxel is a box of 1 m, its intensity the score: no network is needed.
constexpr const char* kGraph =
    "lattice-program 1\n"
    "input points: f32[?, 3]\n"
    "input intensity: f32[?]\n"
    "i = expand_dims@1(intensity) axes=[1]\n"
    "rows = concatenate@1([points, i]) axis=1\n"
    "v = point_voxels@1(rows) low=[0.0,0.0,0.0] high=[8.0,8.0,8.0] size=[1.0,1.0,1.0] "
    "max_points=2 max_voxels=3\n"
    "mean = voxel_mean@1(v)\n"
    "xyz = slice@1(mean) start=[0,0] stop=[2147483647,3] step=[1,1] squeeze=[]\n"
    "score = slice@1(mean) start=[0,3] stop=[2147483647,4] step=[1,1] squeeze=[1]\n"
    "size = ones_like@1(xyz)\n"
    "x = slice@1(xyz) start=[0,0] stop=[2147483647,1] step=[1,1] squeeze=[]\n"
    "turn = zeros_like@1(x)\n"
    "all = concatenate@1([xyz, size, turn]) axis=1\n"
    "high = greater@1(score, 0.1)\n"
    "some = rows_where@1(high)\n"
    "best = take@1(all, some) axis=0\n"
    "grade = take@1(score, some) axis=0\n"
    "kept = nms@1(best, grade) threshold=0.1 kind=\"rotated\" pre=-1 post=-1\n"
    "boxes = take@1(best, kept) axis=0\n"
    "scores = take@1(grade, kept) axis=0\n"
    "zero = zeros_like@1(kept)\n"
    "labels = add@1(zero, 2.0)\n"
    "lost = voxel_dropped@1(v)\n"
    "output boxes = boxes\n"
    "output dropped = lost\n"
    "output labels = labels\n"
    "output scores = scores\n";

class DetectorTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("detector_" + std::to_string(::getpid()) + ".lattice.safetensors");
    write(kGraph);
  }
  void TearDown() override { std::filesystem::remove(path_); }
  void write(const std::string& graph) const {
    const std::string bytes = program::write_tensors(
        program::program_file(graph, {}, {{"classes", "[[1, \"car\"], [2, \"person\"]]"}}));
    std::ofstream(path_, std::ios::binary) << bytes;
  }
  std::filesystem::path path_;
};

ErrorCode code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::internal;
}

// Two boxes that overlap, a third one, a point outside and one beyond the last voxel.
const std::vector<float> kPoints{0.9f, 0.5f,  0.5f, 0.5f, 1.1f, 0.5f, 0.5f, 0.75f, 5.5f, 5.5f,
                                 5.5f, 0.25f, -1.f, 0.f,  0.f,  1.f,  7.5f, 7.5f,  7.5f, 1.f};

TEST_F(DetectorTest, BoxesOfACloud) {
  const Detector net = Detector::load(path_.string(), {.threads = 1});
  EXPECT_EQ(net.columns(), (std::vector<std::pair<std::string, int64_t>>{{"intensity", 1}}));
  auto cloud = Cloud::view(std::span(kPoints), 4);
  cloud.column("intensity", std::span(kPoints).subspan(3), 4);
  const Detections found = net.detect(cloud);
  ASSERT_EQ(found.boxes.size(), 2u);
  EXPECT_EQ(found.boxes[0].center, (std::array<float, 3>{1.1f, 0.5f, 0.5f}));
  EXPECT_EQ(found.boxes[0].score, 0.75f);
  EXPECT_EQ(found.boxes[0].label, 2);
  EXPECT_EQ(net.name(found.boxes[0]), "person");
  EXPECT_FALSE(found.boxes[0].velocity);
  EXPECT_EQ(found.boxes[1].score, 0.25f);
  EXPECT_EQ(found.outside, 1);
  EXPECT_EQ(found.full_voxel, 0);
  EXPECT_EQ(found.full_grid, 1);
}

TEST_F(DetectorTest, PositionsKeepTheirPlace) {
  std::vector<double> wide(kPoints.begin(), kPoints.end());
  for (size_t i = 0; i < wide.size(); i += 4) wide[i] = 1.1, wide[i + 3] = 0.5;
  auto cloud = Cloud::view(std::span(wide), 4);
  cloud.column("intensity", std::span(wide).subspan(3), 4);
  const Detections found = Detector::load(path_.string()).detect(cloud);
  ASSERT_FALSE(found.boxes.empty());
  EXPECT_EQ(found.boxes[0].center[0], 1.1f);
}

TEST_F(DetectorTest, CloudsWithoutBoxes) {
  const Detector net = Detector::load(path_.string());
  auto none = Cloud::view(std::span(kPoints).subspan(0, 0), 4);
  none.column("intensity", std::span(kPoints).subspan(0, 0), 4);
  EXPECT_TRUE(net.detect(none).boxes.empty());
  auto outside = Cloud::view(std::span(kPoints).subspan(12, 4), 4);
  outside.column("intensity", std::span(kPoints).subspan(15, 1), 4);
  EXPECT_TRUE(net.detect(outside).boxes.empty());
  EXPECT_EQ(net.detect(outside).outside, 1);
}

TEST_F(DetectorTest, Errors) {
  const Detector net = Detector::load(path_.string(), {.max_points = 2});
  auto cloud = Cloud::view(std::span(kPoints), 4);
  EXPECT_EQ(code_of([&] { net.detect(cloud); }), ErrorCode::limit);
  EXPECT_EQ(code_of([&] { Detector::load(path_.string()).detect(cloud); }), ErrorCode::argument);
  EXPECT_EQ(code_of([&] { Detector::load("none"); }), ErrorCode::file);
  write("lattice-program 1\ninput points: f32[?, 3]\ny = abs@1(points)\noutput labels = y\n");
  EXPECT_EQ(code_of([&] { Detector::load(path_.string()); }), ErrorCode::file);
}

}  // namespace
}  // namespace lattice

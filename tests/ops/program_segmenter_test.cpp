// Clouds and Segmenter: views of any layout give the same labels, and errors have codes.
#include "lattice/program/segmenter.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <thread>

#include "lattice/program/loaded.h"

namespace lattice {
namespace {

// Labels are the largest feature of each voxel: no network is needed.
constexpr const char* kGraph =
    "lattice-program 1\n"
    "input points: f32[?, 3]\n"
    "input intensity: f32[?]\n"
    "x, rows = voxel_features@1(points, [intensity]) voxel=0.5\n"
    "y = feats@1(x)\n"
    "best = argmax@1(y) axis=1 keepdims=0\n"
    "label = astype@1(best) dtype=\"i32\"\n"
    "all = to_points@1(label, rows) fill=-1\n"
    "output labels = all\n";

class SegmenterTest : public testing::Test {
 protected:
  void SetUp() override {
    path_ = std::filesystem::temp_directory_path() /
            ("segmenter_" + std::to_string(::getpid()) + ".lattice.safetensors");
    const std::string bytes = program::write_tensors(
        program::program_file(kGraph, {}, {{"classes", "[[0, \"one\"], [6, \"bright\"]]"}}));
    std::ofstream(path_, std::ios::binary) << bytes;
    for (int i = 0; i < 400; ++i) {
      const auto v = static_cast<float>(i);
      // Multiples of 1/1024, which float64 holds also far from 0.
      for (const float p : {std::sin(v), std::cos(v * 0.7f), v * 0.01f})
        xyzi_.push_back(std::round(p * 1024) / 1024);
      xyzi_.push_back(static_cast<float>((i % 256) / 255.0));
    }
  }
  void TearDown() override { std::filesystem::remove(path_); }

  Cloud cloud() const {
    Cloud made = Cloud::view(std::span(xyzi_), 4);
    made.column("intensity", std::span(xyzi_).subspan(3), 4);
    return made;
  }

  std::filesystem::path path_;
  std::vector<float> xyzi_;
};

ErrorCode code_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()), "");
    return error.code();
  }
  ADD_FAILURE() << "no error";
  return ErrorCode::internal;
}

TEST_F(SegmenterTest, LayoutsAndDtypesGiveTheSameLabels) {
  const auto net = Segmenter::load(path_.string());
  EXPECT_EQ(net.columns(), (std::vector<std::pair<std::string, int64_t>>{{"intensity", 1}}));
  EXPECT_EQ(net.classes()[1].second, "bright");
  std::vector<int32_t> expected, labels;
  net.label(cloud(), expected);
  ASSERT_EQ(expected.size(), 400u);
  std::vector<double> far;
  std::vector<uint8_t> bytes;
  for (size_t i = 0; i < 400; ++i) {
    for (size_t axis = 0; axis < 3; ++axis)
      far.push_back(static_cast<double>(xyzi_[i * 4 + axis]) + (axis == 2 ? 0 : 4194304.0));
    bytes.push_back(static_cast<uint8_t>(i % 256));
  }
  Cloud wide = Cloud::view(std::span<const double>(far));
  wide.column("intensity", std::span(bytes));
  net.label(wide, labels);
  EXPECT_EQ(labels, expected);
}

TEST_F(SegmenterTest, PointsThatAreNotFiniteHaveNoLabel) {
  const auto net = Segmenter::load(path_.string());
  xyzi_[4] = xyzi_[7] = std::nanf("");  // the column does not matter there
  std::vector<int32_t> labels;
  net.label(cloud(), labels);
  EXPECT_EQ(labels[1], -1);
  EXPECT_GE(labels[0], 0);
  net.label(Cloud().column("intensity", Column::view(std::span<const float>(), 1, 1)), labels);
  EXPECT_TRUE(labels.empty());
}

TEST_F(SegmenterTest, ThreadsShareIt) {
  const auto net = Segmenter::load(path_.string());
  std::vector<std::vector<int32_t>> found(4);
  std::vector<std::thread> threads;
  for (auto& labels : found) threads.emplace_back([&] { net.label(cloud(), labels); });
  for (std::thread& thread : threads) thread.join();
  for (const auto& labels : found) EXPECT_EQ(labels, found[0]);
}

TEST_F(SegmenterTest, ErrorsHaveCodes) {
  EXPECT_EQ(code_of([] { Segmenter::load("/nowhere"); }), ErrorCode::file);
  EXPECT_EQ(code_of([&] { Segmenter::load(path_.string(), {.threads = -1}); }),
            ErrorCode::argument);
  const auto net = Segmenter::load(path_.string(), {.max_points = 10});
  std::vector<int32_t> labels;
  EXPECT_EQ(code_of([&] { net.label(cloud(), labels); }), ErrorCode::limit);
  const auto free = Segmenter::load(path_.string());
  EXPECT_EQ(code_of([&] { free.label(Cloud::view(std::span(xyzi_), 4), labels); }),
            ErrorCode::argument);
  std::vector<int32_t> few(3);
  EXPECT_EQ(code_of([&] { free.label(cloud(), std::span<int32_t>(few)); }), ErrorCode::argument);
  EXPECT_EQ(code_of([&] { Cloud::view(std::span(xyzi_), 2); }), ErrorCode::argument);
  EXPECT_EQ(code_of([&] { cloud().column("a", std::span(xyzi_)); }), ErrorCode::argument);
}

TEST(Columns, ReadNumbersAtAnyAddress) {
  const std::vector<uint8_t> memory{9, 0, 0x3c, 0, 0xc0, 1, 0};
  const Column half{Number::float16, memory.data() + 1, 2, 1, 2, 2, {}};
  EXPECT_EQ(half.at(0, 0), 1.0);
  EXPECT_EQ(half.at(1, 0), -2.0);
  const Column small{Number::float16, memory.data() + 5, 1, 1, 2, 2, {}};
  EXPECT_EQ(small.at(0, 0), std::ldexp(1.0, -24));
  int64_t* values = nullptr;
  const Column owned = Column::make(2, 2, &values);
  values[3] = -7;
  EXPECT_EQ(owned.at(1, 1), -7);
  EXPECT_STREQ(number_name(owned.type), "int64");
}

}  // namespace
}  // namespace lattice

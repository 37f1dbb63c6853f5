/// @file
/// Boxes around the objects of a cloud, in one class: a detector that Python exported.
///
///     const auto net = lattice::Detector::load("second.lattice.safetensors", {.threads = 2});
///     auto cloud = lattice::Cloud::view(std::span(xyzi), 4);
///     cloud.column("intensity", std::span(xyzi).subspan(3), 4);
///     for (const lattice::Box& box : net.detect(cloud).boxes) std::puts(net.name(box).c_str());
///
/// This header uses no MLX types. `lattice/program/program.h` has programs of any kind.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "lattice/program/segmenter.h"

namespace lattice {

/// Threads and limits of a Detector.
using DetectorOptions = SegmenterOptions;

/// A box: `size[0]` lies along the heading, which turns counterclockwise from x, in radians.
struct Box {
  std::array<float, 3> center{};                 ///< x, y, z in meters
  std::array<float, 3> size{};                   ///< length, width, height in meters
  float heading = 0;                             ///< radians
  float score = 0;                               ///< 0..1
  int32_t label = 0;                             ///< the class, counted from 1
  std::optional<std::array<float, 2>> velocity;  ///< meters per second along x and y
};

/// The boxes of a frame, and the numbers of points that the network did not see.
struct Detections {
  std::vector<Box> boxes;  ///< by class group and falling score
  int64_t outside = 0;     ///< points outside of the grid or not finite
  int64_t full_voxel = 0;  ///< points of voxels that were full
  int64_t full_grid = 0;   ///< points of cells beyond the last voxel
};

/// A trained detector. Immutable and cheap to copy; threads share it.
class LATTICE_API Detector {
 public:
  /// Reads a file that `detector.export(path, points)` wrote. Throws Error.
  static Detector load(const std::string& path, const DetectorOptions& options = {});

  /// The boxes of a cloud: what `mlx-lattice detect` prints. From any thread. Throws Error: the
  /// cloud lacks a column, or a limit.
  Detections detect(const Cloud& cloud) const;

  /// The columns that a cloud must have, with the number of values per point.
  std::vector<std::pair<std::string, int64_t>> columns() const;
  /// Pairs of a label and its name.
  const std::vector<std::pair<int64_t, std::string>>& classes() const;
  /// The name of a box's class, "" if the file has none.
  std::string name(const Box& box) const;

 private:
  struct State;
  explicit Detector(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace lattice

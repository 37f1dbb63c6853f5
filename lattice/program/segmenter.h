/// @file
/// One label per point, in one class: a program that was exported with its pipeline.
///
///     const auto net = lattice::Segmenter::load("net.lattice.safetensors", {.threads = 2});
///     auto cloud = lattice::Cloud::view(std::span(xyzi), 4);
///     cloud.column("intensity", std::span(xyzi).subspan(3), 4);
///     std::vector<int32_t> labels;
///     net.label(cloud, labels);
///
/// This header uses no MLX types. `lattice/program/program.h` has programs of any kind.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lattice/core/cloud.h"
#include "lattice/core/errors.h"

namespace lattice {

/// Threads and limits of a Segmenter; 0 is the default of the library, and no limit.
struct SegmenterOptions {
  int threads = 0;         ///< of the whole process
  int64_t max_points = 0;  ///< of a cloud
  int64_t max_rows = 0;    ///< of any inner value
  int64_t max_bytes = 0;   ///< that a frame holds at once
};

/// A trained network that labels points. Immutable and cheap to copy; threads share it.
class LATTICE_API Segmenter {
 public:
  /// Reads a file that `model.export(path, pipeline=pipeline)` wrote. Throws Error.
  static Segmenter load(const std::string& path, const SegmenterOptions& options = {});

  /// One label value per point, -1 where a point is not finite or outside of the crop: what
  /// `mlx-lattice predict` writes. From any thread. Throws Error: the cloud lacks a column, labels
  /// has another size than the cloud, or a limit.
  void label(const Cloud& cloud, std::span<int32_t> labels) const;
  /// The same; labels gets the size of the cloud.
  void label(const Cloud& cloud, std::vector<int32_t>& labels) const;

  /// The columns that a cloud must have, with the number of values per point.
  std::vector<std::pair<std::string, int64_t>> columns() const;
  /// Pairs of a label value and its name, in the order of the outputs of the network.
  const std::vector<std::pair<int64_t, std::string>>& classes() const;

 private:
  struct State;
  explicit Segmenter(std::shared_ptr<const State> state) : state_(std::move(state)) {}
  std::shared_ptr<const State> state_;
};

}  // namespace lattice

/// @file
/// Reads and writes point clouds as files.
///
///     lattice::Cloud cloud = lattice::read_cloud("scan.pcd");
///     cloud.column("label", std::span(labels));
///     lattice::write_cloud("labeled.ply", cloud);
///
/// | format | files | |
/// |---|---|---|
/// | ply | .ply | ascii, binary_little_endian, binary_big_endian |
/// | pcd | .pcd | ascii, binary, binary_compressed |
/// | kitti, nuscenes | .bin, .pcd.bin | rows of 4 or 5 float32: x y z intensity, ring |
/// | npy | .npy | (N, 3), (N, C), or a structured array with x, y and z |
/// | mlat | .mlat | compressed voxels, docs/codec.md |
///
/// Names in files become those of the library: color, normal, intensity, label (docs/io.md).
/// Memory stays in proportion to the file, whatever its header says. This header uses no MLX types.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "lattice/api.h"
#include "lattice/core/cloud.h"

namespace lattice {

/// How a file is read.
struct CloudReadOptions {
  std::string format = {};  ///< of the table above; empty: what the name of the file says
  std::function<void(double)> on_progress = {};  ///< receives the share that is done
};

/// The points and columns of a file. Throws Error that begins with the path: the file cannot be
/// opened, is not what it says, or holds less than it says.
LATTICE_API Cloud read_cloud(const std::string& path, const CloudReadOptions& options = {});

/// Reads a file part by part, in bounded memory: rows of PLY, PCD, KITTI, nuScenes and NPY are read
/// when they are asked for. Compressed files are decoded whole.
class LATTICE_API CloudReader {
 public:
  /// Opens a file and reads its header. Throws as read_cloud does.
  explicit CloudReader(const std::string& path, const std::string& format = {});
  CloudReader(CloudReader&&) noexcept;             ///< takes the open file of another reader
  CloudReader& operator=(CloudReader&&) noexcept;  ///< the same, and closes its own
  ~CloudReader();

  /// The number of points in the file.
  int64_t size() const;
  /// The next points, as many as asked for or as there are left; no points at the end.
  Cloud next(int64_t points, const std::function<void(double)>& on_progress = {});

 private:
  struct State;
  std::unique_ptr<State> state_;
};

/// How a file is written.
struct CloudWriteOptions {
  std::string format = {};    ///< as for reading
  std::string encoding = {};  ///< of the table above; empty: the binary form
  double voxel_size = 0;      ///< of .mlat, required there: points of one voxel become one
};

/// Writes points and columns. The file appears whole or not at all: it is written beside its place,
/// flushed and renamed. Throws Error that begins with the path: the format cannot hold a column, or
/// the file cannot be written.
LATTICE_API void write_cloud(const std::string& path, const Cloud& cloud,
                             const CloudWriteOptions& options = {});

}  // namespace lattice

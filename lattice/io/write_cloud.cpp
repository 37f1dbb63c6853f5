// Writes clouds into files.
#include <filesystem>

#include "lattice/core/errors.h"
#include "lattice/io/atomic_file.h"
#include "lattice/io/cloud_files.h"
#include "lattice/io/formats.h"
#include "lattice/io/table.h"

namespace lattice {
namespace {

std::string format_to_write(const std::string& path, const std::string& given) {
  std::string name = given;
  if (name.empty()) {
    const std::string extension = std::filesystem::path(path).extension().string();
    name = io::lower(extension.empty() ? extension : extension.substr(1));
    if (name == "bin") name = path.size() > 8 && path.ends_with(".pcd.bin") ? "nuscenes" : "kitti";
  }
  for (const char* known : {"ply", "pcd", "npy", "kitti", "nuscenes", "mlat"})
    if (name == known) return name;
  throw Error(
      ErrorCode::argument,
      path + ": format '" + name + "', expected one of ply, pcd, npy, kitti, nuscenes, mlat",
      "write_cloud", "format");
}

}  // namespace

void write_cloud(const std::string& path, const Cloud& cloud, const CloudWriteOptions& options) {
  CloudWriteOptions all = options;
  all.format = format_to_write(path, options.format);
  std::string bytes;
  try {
    bytes = io::cloud_bytes(cloud, all);
  } catch (const std::bad_alloc&) {
    throw Error(ErrorCode::memory, path + ": the machine has no memory left", "write_cloud");
  } catch (const std::invalid_argument& error) {
    throw Error(ErrorCode::argument, path + ": " + error.what(), "write_cloud", "cloud");
  }
  io::write_file(path, bytes);
}

}  // namespace lattice

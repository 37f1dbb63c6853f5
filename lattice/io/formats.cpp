#include "lattice/io/formats.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "lattice/core/errors.h"
#include "lattice/io/table.h"

namespace lattice::io {
namespace {

constexpr const char* kKnown[] = {"ply", "pcd", "npy", "kitti", "nuscenes", "mlat"};

bool ends_with(const std::string& text, const std::string& end) {
  return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

// Whether rows of five floats fit, the fifth a ring number: other rows hardly ever do.
bool has_rings(const std::string& path) {
  InputFile file(path);
  if (file.size() % 20) return false;
  const int64_t rows = std::min<int64_t>(file.size() / 20, 1000);
  const std::string bytes = file.read(0, rows * 20);
  bool any = false;
  for (int64_t r = 0; r < rows; ++r) {
    float ring = 0;
    std::memcpy(&ring, bytes.data() + r * 20 + 16, sizeof(ring));
    if (!std::isfinite(ring) || ring != std::nearbyint(ring) || ring < 0) return false;
    any = any || ring != 0;
  }
  return rows >= 8 && any;
}

}  // namespace

std::string scan_format(const std::string& path) {
  if (ends_with(path, ".pcd.bin")) return "nuscenes";
  const std::string folder = std::filesystem::path(path).parent_path().filename().string();
  if (folder == "velodyne" && !has_rings(path)) return "kitti";
  const int64_t size = InputFile(path).size();
  const bool kitti = size % 16 == 0, nuscenes = size % 20 == 0;
  if (!kitti && !nuscenes)
    throw Error(ErrorCode::file,
                path + ": not a valid BIN file: " + std::to_string(size) +
                    " bytes, expected a multiple of 16 (kitti: 4 floats per point) or of 20 "
                    "(nuscenes: 5 floats per point)",
                "read_cloud", "path");
  if (kitti && nuscenes && size)
    throw Error(ErrorCode::argument,
                path + ": not a valid BIN file: " + std::to_string(size) + " bytes are " +
                    std::to_string(size / 16) + " points of KITTI or " + std::to_string(size / 20) +
                    " of nuScenes; say which: --format kitti or --format nuscenes (in a program "
                    "format=)",
                "read_cloud", "format");
  return kitti ? "kitti" : "nuscenes";
}

std::string format_of(const std::string& path, const std::string& given) {
  std::string name = given;
  if (name.empty()) {
    const std::string extension = std::filesystem::path(path).extension().string();
    name = lower(extension.empty() ? extension : extension.substr(1));
    if (name == "bin") return scan_format(path);
  }
  for (const char* known : kKnown)
    if (name == known) return name;
  throw Error(
      ErrorCode::argument,
      path + ": format '" + name + "', expected one of ply, pcd, npy, kitti, nuscenes, mlat",
      "read_cloud", "format");
}

const char* title_of(const std::string& format) {
  return format == "ply"        ? "PLY"
         : format == "pcd"      ? "PCD"
         : format == "npy"      ? "NPY"
         : format == "kitti"    ? "KITTI"
         : format == "nuscenes" ? "nuScenes"
         : format == "mlat"     ? ".mlat"
                                : "text";
}

}  // namespace lattice::io

// The file formats and their names.
#pragma once

#include <functional>
#include <string>

#include "lattice/core/cloud.h"
#include "lattice/io/cloud_files.h"

namespace lattice::io {

// The format of a file that is read: what was given, or what its name and its size say.
std::string format_of(const std::string& path, const std::string& given);
// "kitti" or "nuscenes": a .bin file does not say which of the two it is. Its name or its place
// decides (.pcd.bin, velodyne/), then its size. Throws where both fit.
LATTICE_API std::string scan_format(const std::string& path);
// "PLY", as messages name it.
const char* title_of(const std::string& format);

// The centers of the voxels of a .mlat file with their values.
Cloud read_mlat(const std::string& path, const std::function<void(double)>& on_progress);

// The bytes of a file. Throws std::invalid_argument where the format cannot hold the cloud. "text"
// is x, y, z and the columns under a line of their names, `encoding` what stands between them.
LATTICE_API std::string cloud_bytes(const Cloud& cloud, const CloudWriteOptions& options);

}  // namespace lattice::io

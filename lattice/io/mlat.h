// Conversion between clouds of points and the voxels of .mlat files.
#pragma once

#include "lattice/core/cloud.h"
#include "lattice/io/formats.h"
#include "lattice/ops/codec.h"

namespace lattice::io {

// The centers of the voxels with their values.
LATTICE_API Cloud cloud_of(const VoxelCloud& voxels);
// The voxels of the finite points, counted from their low corner. Throws std::invalid_argument for
// a size that is not above 0, or so small that a voxel leaves int32.
LATTICE_API VoxelCloud voxels_of(const Cloud& cloud, double voxel_size);

}  // namespace lattice::io

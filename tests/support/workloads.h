// Coordinate sets that tests and benchmarks share. Flat int32, rows (batch, x, y, z), free of
// duplicates, in shuffled order, the same rows for the same seed. Only +, -, *, / and floor are
// used on floats, on values that are not near a voxel's border by construction, so that machines
// agree.
//
// edges = edges of the 3x3x3 submanifold relation, the center included:
//   lidar()   57,738 rows    487,092 edges   8.4 per row
//   room()   172,802 rows  2,774,838 edges  16.1 per row
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lattice::support {

using Coords = std::vector<int32_t>;  // n * 4 values

// One turn of a 64-beam scanner over uneven ground, boxes and poles, 0.1 m voxels.
Coords lidar(uint64_t seed = 1);
// Floors, walls, furniture and clutter of a few rooms, 4 cm voxels.
Coords room(uint64_t seed = 1);
// n distinct rows, x, y, z in [-extent, extent), batches in [0, batches). n must be at most half of
// the possible rows.
Coords random_set(int64_t n, int64_t extent, int64_t batches = 1, uint64_t seed = 1);
// x = first .. first + n - 1 at y = z = 0.
Coords line(int64_t n, int32_t first = 0, uint64_t seed = 1);
// Every row of an nx * ny * nz box whose lowest corner is (-nx / 2, -ny / 2, -nz / 2).
Coords dense_block(int64_t nx, int64_t ny, int64_t nz, uint64_t seed = 1);
Coords empty();

struct Scene {
  std::string name;
  Coords coords;
  int64_t rows() const { return static_cast<int64_t>(coords.size()) / 4; }
};
// lidar, room, random (100,000 rows), line (20,000), dense_block (40^3), empty: the list for
// correctness and speed.
std::vector<Scene> scenes();
// One of them by name; throws std::invalid_argument when there is none.
Scene scene(const std::string& name);

}  // namespace lattice::support

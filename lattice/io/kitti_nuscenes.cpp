// Scans of KITTI and nuScenes: rows of 4 or 5 little-endian float32, x y z intensity, ring.
#include <cmath>

#include "lattice/io/table.h"

namespace lattice::io {
namespace {

// The ring of nuScenes as int32.
Cloud finish(std::vector<NamedColumn> columns) {
  for (auto& [name, column] : columns) {
    if (name != "ring") continue;
    char* made = nullptr;
    const Column whole_rings = new_column(Number::int32, column.rows, 1, &made);
    for (int64_t r = 0; r < column.rows; ++r) {
      const double ring = column.at(r, 0);
      if (!(std::abs(ring) < 0x1p31) || ring != std::nearbyint(ring))
        refuse(
            "the fifth value of a point is not a whole ring number; is this file KITTI's? "
            "--format kitti");
      reinterpret_cast<int32_t*>(made)[r] = static_cast<int32_t>(ring);
    }
    column = whole_rings;
  }
  return gather(std::move(columns), "rows");
}

}  // namespace

Table read_scan_header(InputFile& file, int64_t width) {
  Table table;
  if (file.size() % (4 * width))
    refuse(std::to_string(file.size()) + " bytes, expected a multiple of " +
           std::to_string(4 * width));
  for (const char* name : {"x", "y", "z", "intensity", "ring"})
    if (static_cast<int64_t>(table.fields.size()) < width)
      table.fields.push_back({name, Number::float32});
  table.rows = file.size() / lay_out(table.fields);
  table.finish = finish;
  return table;
}

}  // namespace lattice::io

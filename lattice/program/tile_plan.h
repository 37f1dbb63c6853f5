/// @file
/// Cuts a cloud into tiles by counting rows, so that each tile fits into memory.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lattice/program/program.h"
#include "lattice/program/tile_box.h"

namespace lattice {

/// How a cloud is cut.
struct TileOptions {
  /// The largest side along x, y and z; 0: the whole axis.
  Triple tile{0, 0, 0};
  /// The low corner of some tile.
  Triple origin{0, 0, 0};
  /// Bytes that a tile may take; tiles with more rows are split. 0: no limit.
  int64_t bytes = 0;
  /// Bytes for each row of a tile itself, where somebody has measured them; rows around a tile take
  /// a quarter. 0: an estimate from the graph, the same for all rows.
  int64_t row_bytes = 0;
  /// Called after each tile with the rows that are done and all rows. An exception ends the run.
  std::function<void(int64_t, int64_t)> progress = {};
};

/// The tiles of a cloud whose rows are counted in cells: cell k, at cells[3 k], covers `side` steps
/// from cells[3 k] * side on, and holds counts[k] rows. Empty tiles are left out. `side` must be a
/// multiple of the alignment. Throws Error with the code `limit` if the rows around the smallest
/// tile do not fit into options.bytes.
LATTICE_API std::vector<TileBox> plan_tiles(const Program& program, std::span<const int64_t> cells,
                                            std::span<const int64_t> counts, const Triple& side,
                                            const TileOptions& options);

/// The rows of the input that a tile needs.
LATTICE_API TileBox tile_input(const Program& program, const TileBox& own);

}  // namespace lattice

// Tiles from counted rows.
#pragma once

#include "lattice/program/locality.h"
#include "lattice/program/tiles.h"

namespace lattice::program {

// Corners of an axis that is not cut.
constexpr int64_t kFar = int64_t{1} << 40;

TileBox tile_input(const Loaded& program, const LocalGraph& graph, const TileBox& own);

// Bytes that a tile takes for each row of its input.
int64_t bytes_of_row(const Program& program);

}  // namespace lattice::program

/// @file
/// A network on a cloud that is larger than memory: tile by tile, with the bits of the whole run.
///
///     const auto program = lattice::Program::load("net.lattice.safetensors");
///     const auto field = lattice::receptive_field(program);   // how far a row looks
///     const auto y = lattice::run_tiled(program, x, {.bytes = int64_t{2} << 30});
///
/// A tile is run with the rows around it that its own rows depend on, and each stage of the network
/// is cut to what is still needed. docs/larger-than-memory.md explains how, and which networks can
/// be cut.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lattice/program/program.h"

namespace lattice {

/// How far the output of a program looks, in steps of its input along x, y and z.
struct ReceptiveField {
  Triple before{0, 0, 0};         ///< rows that a tile needs below its low corner
  Triple after{0, 0, 0};          ///< rows that a tile needs behind its high corner
  Triple alignment{1, 1, 1};      ///< corners of tiles are multiples of it; else tiles need more
  Triple output_stride{1, 1, 1};  ///< steps of the input in one step of the output
};

/// low <= c < high on each axis, in steps of the input.
struct TileBox {
  Triple low{0, 0, 0};   ///< the low corner
  Triple high{0, 0, 0};  ///< one behind the high corner
  /// Whether both corners are equal.
  bool operator==(const TileBox&) const = default;
};

/// How a cloud is cut.
struct TileOptions {
  /// The largest side along x, y and z; 0: the whole axis.
  Triple tile{0, 0, 0};
  /// The low corner of some tile.
  Triple origin{0, 0, 0};
  /// Bytes that a tile may take; tiles with more rows are split. 0: no limit.
  int64_t bytes = 0;
  /// Called after each tile with the rows that are done and all rows. An exception ends the run.
  std::function<void(int64_t, int64_t)> progress = {};
};

/// From the graph of the program, which must have one sparse input and one output with rows. Throws
/// Error that names the first operation that is not local: global pooling, attention, statistics of
/// the batch, everything that is not known.
LATTICE_API ReceptiveField receptive_field(const Program& program);

/// The tiles of a cloud whose rows are counted in cells: cell k, at cells[3 k], covers `side` steps
/// from cells[3 k] * side on, and holds counts[k] rows. Empty tiles are left out. `side` must be a
/// multiple of the alignment. Throws Error with the code `limit` if the rows around the smallest
/// tile do not fit into options.bytes.
LATTICE_API std::vector<TileBox> plan_tiles(const Program& program, std::span<const int64_t> cells,
                                            std::span<const int64_t> counts, const Triple& side,
                                            const TileOptions& options);

/// The rows of the input that a tile needs.
LATTICE_API TileBox tile_input(const Program& program, const TileBox& own);

/// The rows of the output inside of `own`, in the order of x, which must hold all rows of
/// tile_input(program, own). Only routes run whose rows do not depend on the rows beside them.
LATTICE_API SparseTensor run_tile(const Program& program, const SparseTensor& x,
                                  const TileBox& own);

/// The output of the whole run: the same rows in the same order with the same bits.
LATTICE_API SparseTensor run_tiled(const Program& program, const SparseTensor& x,
                                   const TileOptions& options);

}  // namespace lattice

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

#include "lattice/program/tile_plan.h"

namespace lattice {

/// The rows of the input on which an output row depends, in steps of the input along x, y and z.
struct ReceptiveField {
  Triple before{0, 0, 0};         ///< rows that a tile needs below its low corner
  Triple after{0, 0, 0};          ///< rows that a tile needs behind its high corner
  Triple alignment{1, 1, 1};      ///< corners of tiles are multiples of it; else tiles need more
  Triple output_stride{1, 1, 1};  ///< steps of the input in one step of the output
};

/// From the graph of the program, which must have one sparse input and one output with rows. Throws
/// Error that names the first operation that is not local, such as global pooling, attention,
/// statistics of the batch, or any operation that is not known to be local.
LATTICE_API ReceptiveField receptive_field(const Program& program);

/// The rows of the output inside of `own`, in the order of x, which must hold all rows of
/// tile_input(program, own). Only routes run whose rows do not depend on the rows beside them.
LATTICE_API SparseTensor run_tile(const Program& program, const SparseTensor& x,
                                  const TileBox& own);

/// The output of the whole run: the same rows in the same order with the same bits.
LATTICE_API SparseTensor run_tiled(const Program& program, const SparseTensor& x,
                                   const TileOptions& options);

}  // namespace lattice

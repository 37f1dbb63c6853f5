#include "lattice/routes/table.h"

#include "lattice/routes/conv.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/geometry.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/map_rows.h"
#include "lattice/routes/per_edge.h"
#include "lattice/routes/pool.h"

// Parts of predicates.
#define LATTICE_SLOW "any shape: one multiplication at a time, sums in float64"
#define LATTICE_DENSE "dense weights, 8 or more channels on both sides of a group, "
#define LATTICE_SHARED \
  "always, and the default: the CPU's code in shared memory; its result is needed there"
#define LATTICE_OPT_IN \
  ". Opt-in: not the default, because it has not been benchmarked on a GPU yet."

namespace lattice {
namespace {

constexpr auto kCpu = mx::Device::cpu, kGpu = mx::Device::gpu;

}  // namespace

std::span<const Route> routes() {
  // Operation, device, name, predicate in words, check, launch. The first row that fits serves.
  static const Route table[] = {
      // ---- conv
      // -----------------------------------------------------------------------------------
      {"conv", kCpu, "cpu.tiles",
       "dense weights, no empty side: tiles of output rows, packed weights, vector registers",
       all_of<dense_only, has_channels>, one<conv_tiles>},
      {"conv", kCpu, "cpu.packed",
       "packed weights, no empty side: the same tiles; one block of codes at a time is expanded",
       all_of<packed_only, has_channels>, one<conv_packed>},
      {"conv", kCpu, "cpu.reference", LATTICE_SLOW "; packed weights are made dense", always,
       one<conv_reference>},
      {"conv", kGpu, "metal.sorted",
       LATTICE_DENSE
       "forward, target or submanifold relation of at most 32 offsets: tiles of 64 rows sorted by "
       "mask; matrix units skip offsets that 16 rows lack",
       all_of<needs_sorted_map, dense_only, needs_tiles, needs_metal>, one<conv_metal_sorted>},
      {"conv", kGpu, "metal.mirrored",
       LATTICE_DENSE
       "reversed submanifold relation of at most 32 offsets: metal.sorted on the relation itself "
       "with the offsets in reverse order",
       all_of<needs_mirror, dense_only, needs_tiles, needs_metal>, one<conv_metal_mirrored>},
      {"conv", kGpu, "metal.lists",
       LATTICE_DENSE
       "exactly one edge per output row (up by 2 x 2 x 2, and the gradient of down by 2 x 2 x 2): "
       "tiles of 64 edges of one offset",
       all_of<needs_one_edge, dense_only, needs_tiles, needs_metal>, one<conv_metal_lists>},
      {"conv", kGpu, "metal.tiles",
       LATTICE_DENSE "no custom relation: tiles of 64 rows in the given order",
       all_of<needs_map, dense_only, needs_tiles, needs_metal>, one<conv_metal_tiles>},
      {"conv", kGpu, "metal.buckets",
       LATTICE_DENSE "at most 4 lists of a tile and an offset per edge: tiles of 64 rows in local "
                     "order; rows that "
                     "share output and offset are added first",
       all_of<needs_full_tiles, dense_only, needs_tiles, needs_metal>, one<conv_metal_buckets>},
      {"conv", kGpu, "metal.packed",
       "packed weights, 8 or more channels on both sides of a group, no custom relation: the tiles "
       "that dense weights take; codes are expanded as they are used",
       all_of<needs_map, packed_only, needs_tiles, needs_metal>, one<conv_metal_packed>},
      {"conv", kGpu, "metal.rows",
       "any shape, relation and storage on Metal: one thread per output value, edges by row",
       needs_metal, one<conv_metal_rows>},
      {"conv", kGpu, "gpu.mlx",
       "any shape: gather, matmul and scatter-add of MLX, in float32; packed weights: one offset "
       "dequantized at a time",
       always, one<conv_with_mlx>},

      // ---- linear: conv on the relation of every row with itself
      // ----------------------------------
      {"linear", kCpu, "cpu.tiles",
       "dense weights, no empty side: tiles of output rows, packed weights, vector registers",
       all_of<dense_only, has_channels>, one<conv_tiles>},
      {"linear", kCpu, "cpu.packed",
       "packed weights, no empty side: the same tiles; one block of codes at a time is expanded",
       all_of<packed_only, has_channels>, one<conv_packed>},
      {"linear", kCpu, "cpu.reference", LATTICE_SLOW "; packed weights are made dense", always,
       one<conv_reference>},
      {"linear", kGpu, "metal.packed",
       "packed weights on Metal: tiles of 64 rows; codes are expanded as they are used",
       all_of<packed_only, needs_metal>, one<conv_metal_tiles>},
      {"linear", kGpu, "gpu.mlx",
       "any shape: matmul of MLX, whose kernels are tuned for each GPU; packed weights are made "
       "dense, in float32",
       always, one<linear_with_mlx>},

      // ---- outer: the weight gradient
      // -------------------------------------------------------------
      {"outer", kCpu, "cpu.buckets",
       "at least 2.5 edges per (offset, output row), 64 output channels per group, rows in a local "
       "order: rows that share an output are added first",
       outputs_are_shared, one<outer_buckets>},
      {"outer", kCpu, "cpu.tiles",
       "no empty side: rows copied once per part, sums in vector registers", has_channels,
       one<outer_tiles>},
      {"outer", kCpu, "cpu.reference", LATTICE_SLOW, always, one<outer_reference>},
      {"outer", kGpu, "metal.outer",
       "8 or more channels on both sides of a group: edges of an offset in parts of 1,024, added "
       "in "
       "order",
       all_of<needs_tiles, needs_metal>, one<outer_metal_tiles>},
      {"outer", kGpu, "metal.rows",
       "any shape on Metal: one thread per value of the result, the same parts", needs_metal,
       one<outer_metal_rows>},
      {"outer", kGpu, "gpu.mlx", "any shape: gather, matmul and scatter-add of MLX, in float32",
       always, one<outer_with_mlx>},

      // ---- per_edge_apply, per_edge_outer: one matrix per edge
      // ------------------------------------
      {"per_edge_apply", kCpu, "cpu.pairs",
       "any shape: matrices read in a stream, edges by output row", always,
       one<per_edge_apply_pairs>},
      {"per_edge_apply", kCpu, "cpu.reference", LATTICE_SLOW, always,
       one<per_edge_apply_reference>},
      {"per_edge_apply", kGpu, "metal.rows",
       "any shape on Metal: one thread per output value, edges by output row", needs_metal,
       one<per_edge_apply_metal>},
      {"per_edge_apply", kGpu, "gpu.mlx",
       "any shape: gather, products and scatter-add of MLX, in float32", always,
       one<per_edge_apply_with_mlx>},
      {"per_edge_outer", kCpu, "cpu.pairs",
       "any shape: matrices written in a stream, edges by matrix", always,
       one<per_edge_outer_pairs>},
      {"per_edge_outer", kCpu, "cpu.reference", LATTICE_SLOW, always,
       one<per_edge_outer_reference>},
      {"per_edge_outer", kGpu, "metal.rows",
       "any shape on Metal: one thread per value of a matrix, edges of a matrix in parts of 1,024",
       needs_metal, one<per_edge_outer_metal>},
      {"per_edge_outer", kGpu, "gpu.mlx",
       "any shape: gather, products and scatter-add of MLX, in float32", always,
       one<per_edge_outer_with_mlx>},

      // ---- pool
      // -----------------------------------------------------------------------------------
      {"pool", kCpu, "cpu.tiles",
       "any shape: tiles of output rows, edges by row, sums in registers", always, one<pool_tiles>},
      {"pool", kCpu, "cpu.reference", "any shape: one value at a time, sums in float64", always,
       one<pool_reference>},
      {"pool", kGpu, "metal.rows",
       "any shape: one thread per value, edges by output row, long rows in pieces", needs_metal,
       one<pool_with_metal>},
      {"pool", kGpu, "gpu.mlx", "any shape: gather and scatter of MLX, in float32", always,
       one<pool_with_mlx>},

      // ---- segments, argmax, gather: groups of rows
      // -----------------------------------------------
      {"segments", kCpu, "cpu.segments",
       "any sizes of groups: sums in registers, long groups in pieces", always,
       one<segments_segments>},
      {"segments", kCpu, "cpu.reference", "any shape: one value at a time, sums in float64", always,
       one<segments_reference>},
      {"segments", kGpu, "metal.rows",
       "any sizes of groups: one thread per value, long groups in pieces", needs_metal,
       one<segments_with_metal>},
      {"segments", kGpu, "gpu.mlx", "any shape: scatter of MLX, in float32", always,
       one<segments_with_mlx>},
      {"argmax", kCpu, "cpu.segments",
       "any relation or groups: rows by segment, the smallest of ties", always,
       one<argmax_segments>},
      {"argmax", kGpu, "metal.rows",
       "any relation or groups: one thread per value, long rows in pieces", needs_metal,
       one<argmax_with_metal>},
      {"argmax", kGpu, "cpu.unified", "always: the CPU's code in shared memory", always,
       one<argmax_segments>},
      {"gather", kCpu, "cpu.rows", "any shape: copies of rows", always, one<gather_by_rows>},
      {"gather", kGpu, "metal.rows", "any shape: one thread per value", needs_metal,
       one<gather_with_metal>},
      {"gather", kGpu, "gpu.mlx", "any shape: take of MLX", always, one<gather_with_mlx>},

      // ---- map_rows: voxels, interpolation, neighbors
      // ---------------------------------------------
      {"map_rows", kCpu, "cpu.segments",
       "any map: runs of rows in vector registers, long rows in pieces", always,
       one<map_rows_segments>},
      {"map_rows", kCpu, "cpu.reference", "any map: one value at a time, sums in float64", always,
       one<map_rows_reference>},
      {"map_rows", kGpu, "metal.rows", "any map: one thread per value, long rows in pieces",
       needs_metal, one<map_rows_with_metal>},
      {"map_rows", kGpu, "gpu.mlx", "any map: take and scatter of MLX, in float32", always,
       one<map_rows_with_mlx>},

      // ---- distance: all pairs
      // --------------------------------------------------------------------
      {"distance", kCpu, "cpu.tiles",
       "any shape: blocks of rows of b side by side, sums in vector registers", always,
       one<distance_tiles>},
      {"distance", kCpu, "cpu.reference", "any shape: one pair at a time, sums in float64", always,
       one<distance_reference>},
      {"distance", kGpu, "metal.tiles", "any shape: tiles of 16 x 16 pairs in threadgroup memory",
       needs_metal, one<distance_with_metal>},
      {"distance", kGpu, "gpu.mlx",
       "any shape: squares of one channel at a time; cosine: matmul of MLX", always,
       one<distance_with_mlx>},

      // ---- geometry
      // -------------------------------------------------------------------------------
      {"unique", kCpu, "cpu.sorted", "any coordinates: sorted keys", always, one<unique_on_cpu>},
      {"unique", kGpu, "cpu.unified", LATTICE_SHARED, always, one<unique_on_cpu>},
      {"unique", kGpu, "metal.hash", "int32 coordinates: a table, then a prefix sum" LATTICE_OPT_IN,
       needs_hash, one<unique_with_metal>},
      {"lookup", kCpu, "cpu.sorted", "any coordinates: sorted keys, merged", always,
       one<lookup_on_cpu>},
      {"lookup", kGpu, "cpu.unified", LATTICE_SHARED, always, one<lookup_on_cpu>},
      {"lookup", kGpu, "metal.hash", "int32 coordinates: a table" LATTICE_OPT_IN, needs_hash,
       one<lookup_with_metal>},
      {"relate", kCpu, "cpu.sorted",
       "any coordinates: sorted keys, walked once for each (x, y) offset", always,
       one<relate_on_cpu>},
      {"relate", kGpu, "cpu.unified", LATTICE_SHARED, always, one<relate_on_cpu>},
      {"relate", kGpu, "metal.hash",
       "int32 coordinates: a table, probed for each output row and offset" LATTICE_OPT_IN,
       needs_map_by_hash, one<relate_with_metal>},
      {"neighbors", kCpu, "cpu.tree", "any rows: k-d trees of both ends", always,
       one<neighbors_on_cpu>},
      {"neighbors", kGpu, "cpu.unified", LATTICE_SHARED, always, one<neighbors_on_cpu>},
      {"neighbors", kGpu, "metal.brute",
       "float points or int32 coordinates: every query against every source" LATTICE_OPT_IN,
       needs_hash, one<neighbors_with_metal>},
  };
  return table;
}

}  // namespace lattice

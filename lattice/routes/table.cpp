#include "lattice/routes/table.h"

#include <vector>

#include "lattice/routes/adamw.h"
#include "lattice/routes/attention.h"
#include "lattice/routes/columns.h"
#include "lattice/routes/conv.h"
#include "lattice/routes/cuda_twins.h"
#include "lattice/routes/distance.h"
#include "lattice/routes/gelu.h"
#include "lattice/routes/geometry.h"
#include "lattice/routes/launch.h"
#include "lattice/routes/map_rows.h"
#include "lattice/routes/neighbor_attention.h"
#include "lattice/routes/norm.h"
#include "lattice/routes/per_edge.h"
#include "lattice/routes/pool.h"
#include "lattice/routes/products.h"
#include "lattice/routes/rotary.h"
#include "lattice/routes/row_norm.h"

// Parts of predicates.
#define LATTICE_SLOW "any shape: one multiplication at a time, sums in float64"
#define LATTICE_DENSE "dense weights, 8 or more channels on both sides of a group, "
#define LATTICE_PACKED \
  "packed weights, expanded as they are used, 8 or more channels on both sides of a group, "
#define LATTICE_TENSOR \
  "tier neural_accelerator, float16 or bfloat16, 16 or more channels on both sides of a group: "
#define LATTICE_SHARES                                                                      \
  "at least 1.25 edges per (offset, output row) with 64 output channels per group, 2 with " \
  "32, 5 with fewer: rows that share an output are added first"
#define LATTICE_SHARED \
  "always, and the default: the CPU's code in shared memory; its result is needed there"
#define LATTICE_OPT_IN \
  ". Opt-in: not the default, because it has not been benchmarked on a GPU yet."

namespace lattice {
namespace {

constexpr auto kCpu = mx::Device::cpu, kGpu = mx::Device::gpu;

}  // namespace

std::span<const Route> routes() {
  // Operation, device, code, name, predicate in words, check, launch, note, products of MLX. The
  // first row that fits serves.
  static const std::vector<Route> table = with_cuda({
      // ---- conv
      {Operation::conv, kCpu, Code::host, "cpu.buckets", "dense weights, " LATTICE_SHARES,
       all_of<dense_only, outputs_are_shared>, one<conv_buckets>, tile_note},
      {Operation::conv, kCpu, Code::host, "cpu.packed_buckets", "packed weights, " LATTICE_SHARES,
       all_of<packed_only, outputs_are_shared>, one<conv_packed_buckets>, tile_note},
      {Operation::conv, kCpu, Code::host, "cpu.tiles",
       "dense weights, no empty side: tiles of output rows, packed weights, vector registers",
       all_of<dense_only, has_channels>, one<conv_tiles>, tile_note},
      {Operation::conv, kCpu, Code::host, "cpu.packed",
       "packed weights, no empty side: the same tiles; one block of codes at a time is expanded",
       all_of<packed_only, has_channels>, one<conv_packed>, tile_note},
      {Operation::conv, kCpu, Code::host, "cpu.reference",
       LATTICE_SLOW "; packed weights are made dense", always, one<conv_reference>},
      {Operation::conv, kGpu, Code::metal, "metal.tensor_sorted",
       LATTICE_TENSOR "the tiles of metal.sorted on the tensor unit",
       all_of<needs_sorted_map, dense_only, needs_tensor_unit, needs_few_groups, needs_gpu_kernels>,
       one<conv_metal_tensor_sorted>},
      {Operation::conv, kGpu, Code::metal, "metal.tensor_mirrored",
       LATTICE_TENSOR "the tiles of metal.mirrored on the tensor unit",
       all_of<needs_mirror, dense_only, needs_tensor_unit, needs_few_groups, needs_gpu_kernels>,
       one<conv_metal_tensor_mirrored>},
      {Operation::conv, kGpu, Code::metal, "metal.tensor_lists",
       LATTICE_TENSOR "the tiles of metal.lists on the tensor unit",
       all_of<needs_one_edge, dense_only, needs_tensor_unit, needs_few_groups, needs_gpu_kernels>,
       one<conv_metal_tensor_lists>},
      {Operation::conv, kGpu, Code::metal, "metal.tensor_packed_lists",
       LATTICE_TENSOR "packed weights; the tiles of metal.packed_lists on the tensor unit",
       all_of<needs_map, needs_one_edge, packed_only, needs_tensor_unit, needs_few_groups,
              needs_gpu_kernels>,
       one<conv_metal_tensor_lists>},
      {Operation::conv, kGpu, Code::metal, "metal.tensor_packed_sorted",
       LATTICE_TENSOR "packed weights; the tiles of metal.packed_sorted on the tensor unit",
       all_of<needs_sorted_map, packed_only, needs_tensor_unit, needs_few_groups,
              needs_gpu_kernels>,
       one<conv_metal_tensor_sorted>},
      {Operation::conv, kGpu, Code::metal, "metal.tensor_packed_mirrored",
       LATTICE_TENSOR "packed weights; the tiles of metal.packed_mirrored on the tensor unit",
       all_of<needs_mirror, packed_only, needs_tensor_unit, needs_few_groups, needs_gpu_kernels>,
       one<conv_metal_tensor_mirrored>},
      {Operation::conv, kGpu, Code::metal, "metal.sorted",
       LATTICE_DENSE
       "forward, target or submanifold relation of at most 32 offsets: tiles of 64 rows sorted by "
       "mask; matrix units skip offsets that 16 rows lack",
       all_of<needs_sorted_map, dense_only, needs_tiles, needs_gpu_kernels>,
       one<conv_metal_sorted>},
      {Operation::conv, kGpu, Code::metal, "metal.mirrored",
       LATTICE_DENSE
       "reversed submanifold relation of at most 32 offsets: metal.sorted on the relation itself "
       "with the offsets in reverse order",
       all_of<needs_mirror, dense_only, needs_tiles, needs_gpu_kernels>, one<conv_metal_mirrored>},
      {Operation::conv, kGpu, Code::metal, "metal.lists",
       LATTICE_DENSE
       "exactly one edge per output row (up by 2 x 2 x 2, and the gradient of down by 2 x 2 x 2): "
       "tiles of 64 edges of one offset",
       all_of<needs_one_edge, dense_only, needs_tiles, needs_gpu_kernels>, one<conv_metal_lists>},
      {Operation::conv, kGpu, Code::metal, "metal.tiles",
       LATTICE_DENSE "no custom relation: tiles of 64 rows in the given order",
       all_of<needs_map, dense_only, needs_tiles, needs_gpu_kernels>, one<conv_metal_tiles>},
      {Operation::conv, kGpu, Code::metal, "metal.buckets",
       LATTICE_DENSE "at most 4 lists of a tile and an offset per edge: tiles of 64 rows in local "
                     "order; rows that share output and offset are added first",
       all_of<needs_full_tiles, dense_only, needs_tiles, needs_gpu_kernels>,
       one<conv_metal_buckets>},
      {Operation::conv, kGpu, Code::metal, "metal.packed_lists",
       LATTICE_PACKED "exactly one edge per output row: the tiles of metal.lists",
       all_of<needs_map, needs_one_edge, packed_only, needs_tiles, needs_gpu_kernels>,
       one<conv_metal_lists>},
      {Operation::conv, kGpu, Code::metal, "metal.packed_mirrored",
       LATTICE_PACKED
       "reversed submanifold relation of at most 32 offsets: the tiles of metal.mirrored",
       all_of<needs_mirror, packed_only, needs_tiles, needs_gpu_kernels>, one<conv_metal_mirrored>},
      {Operation::conv, kGpu, Code::metal, "metal.packed_sorted",
       LATTICE_PACKED
       "forward, target or submanifold relation of at most 32 offsets: the tiles of metal.sorted",
       all_of<needs_sorted_map, packed_only, needs_tiles, needs_gpu_kernels>,
       one<conv_metal_sorted>},
      {Operation::conv, kGpu, Code::metal, "metal.packed_tiles",
       LATTICE_PACKED "no custom relation: the tiles of metal.tiles",
       all_of<needs_map, packed_only, needs_tiles, needs_gpu_kernels>, one<conv_metal_tiles>},
      {Operation::conv, kGpu, Code::metal, "metal.rows",
       "any shape, relation and storage on Metal: one thread per output value, edges by row",
       needs_gpu_kernels, one<conv_metal_rows>},
      {Operation::conv, kGpu, Code::mlx, "gpu.mlx",
       "any shape: gather, matmul and scatter-add of MLX, in float32; packed weights: one offset "
       "dequantized at a time",
       always, one<conv_with_mlx>, products_note, true},

      // ---- linear: conv on the relation of every row with itself
      {Operation::linear, kCpu, Code::host, "cpu.tiles",
       "dense weights, no empty side: tiles of output rows, packed weights, vector registers",
       all_of<dense_only, has_channels>, one<conv_tiles>, tile_note},
      {Operation::linear, kCpu, Code::host, "cpu.packed",
       "packed weights, no empty side: the same tiles; one block of codes at a time is expanded",
       all_of<packed_only, has_channels>, one<conv_packed>, tile_note},
      {Operation::linear, kCpu, Code::host, "cpu.reference",
       LATTICE_SLOW "; packed weights are made dense", always, one<conv_reference>},
      {Operation::linear, kGpu, Code::metal, "metal.tensor",
       LATTICE_TENSOR "packed weights; the tiles of metal.packed on the tensor unit",
       all_of<packed_only, needs_tensor_unit, needs_few_groups, needs_gpu_kernels>,
       one<conv_metal_tensor_same>},
      {Operation::linear, kGpu, Code::metal, "metal.packed",
       "packed weights on Metal: tiles of 64 rows; codes are expanded as they are used",
       all_of<packed_only, needs_few_groups, needs_gpu_kernels>, one<conv_metal_tiles>},
      {Operation::linear, kGpu, Code::mlx, "gpu.mlx",
       "any shape: matmul of MLX, whose kernels are tuned for each GPU; packed weights are made "
       "dense, in float32",
       always, one<linear_with_mlx>, products_note, true},

      // ---- outer: the weight gradient
      {Operation::outer, kCpu, Code::host, "cpu.buckets",
       "at least 2.5 edges per (offset, output row), 64 output channels per group, rows in a local "
       "order: rows that share an output are added first",
       outer_outputs_are_shared, one<outer_buckets>, tile_note},
      {Operation::outer, kCpu, Code::host, "cpu.tiles",
       "no empty side: rows copied once per part, sums in vector registers", has_channels,
       one<outer_tiles>, tile_note},
      {Operation::outer, kCpu, Code::host, "cpu.reference", LATTICE_SLOW, always,
       one<outer_reference>},
      {Operation::outer, kGpu, Code::metal, "metal.tensor",
       LATTICE_TENSOR "the tiles of metal.outer on the tensor unit",
       all_of<needs_tensor_unit, needs_few_groups, needs_gpu_kernels>, one<outer_metal_tensor>},
      {Operation::outer, kGpu, Code::metal, "metal.outer",
       "8 or more channels on both sides of a group: edges of an offset in parts of 1,024, added "
       "in order",
       all_of<needs_tiles, needs_gpu_kernels>, one<outer_metal_tiles>},
      {Operation::outer, kGpu, Code::metal, "metal.rows",
       "any shape on Metal: one thread per value of the result, the same parts", needs_gpu_kernels,
       one<outer_metal_rows>},
      {Operation::outer, kGpu, Code::mlx, "gpu.mlx",
       "any shape: gather, matmul and scatter-add of MLX, in float32", always, one<outer_with_mlx>,
       products_note, true},

      // ---- per_edge_apply, per_edge_outer: one matrix per edge
      {Operation::per_edge_apply, kCpu, Code::host, "cpu.pairs",
       "fewer than 2 edges per matrix: matrices read in a stream, edges by output row",
       is_one_matrix_per_edge, one<per_edge_apply_pairs>},
      {Operation::per_edge_apply, kCpu, Code::host, "cpu.buckets",
       "2 or more edges per matrix, and what cpu.buckets of conv asks: its kernel",
       outputs_are_shared, one<per_edge_apply_buckets>, tile_note},
      {Operation::per_edge_apply, kCpu, Code::host, "cpu.tiles",
       "2 or more edges per matrix: the tiles of conv, which keep a matrix in the cache",
       has_channels, one<per_edge_apply_tiles>, tile_note},
      {Operation::per_edge_apply, kCpu, Code::host, "cpu.reference", LATTICE_SLOW, always,
       one<per_edge_apply_reference>},
      {Operation::per_edge_apply, kGpu, Code::metal, "metal.buckets",
       "2 or more edges per matrix, 8 or more channels on both sides of a group: the tiles of "
       "metal.buckets of conv",
       all_of<are_many_edges_per_matrix, needs_full_tiles, needs_tiles, needs_gpu_kernels>,
       one<per_edge_apply_metal_buckets>},
      {Operation::per_edge_apply, kGpu, Code::metal, "metal.rows",
       "any shape on Metal: one thread per output value, edges by output row", needs_gpu_kernels,
       one<per_edge_apply_metal_rows>},
      {Operation::per_edge_apply, kGpu, Code::mlx, "gpu.mlx",
       "any shape: gather, products and scatter-add of MLX, in float32", always,
       one<per_edge_apply_with_mlx>, products_note, true},
      {Operation::per_edge_outer, kCpu, Code::host, "cpu.pairs",
       "fewer than 2 edges per matrix: matrices written in a stream, edges by matrix",
       is_one_matrix_per_edge, one<per_edge_outer_pairs>},
      {Operation::per_edge_outer, kCpu, Code::host, "cpu.buckets",
       "2 or more edges per matrix, and what cpu.buckets of outer asks: its kernel",
       outer_outputs_are_shared, one<per_edge_outer_buckets>, tile_note},
      {Operation::per_edge_outer, kCpu, Code::host, "cpu.tiles",
       "2 or more edges per matrix: the kernel of cpu.tiles of outer", has_channels,
       one<per_edge_outer_tiles>, tile_note},
      {Operation::per_edge_outer, kCpu, Code::host, "cpu.reference", LATTICE_SLOW, always,
       one<per_edge_outer_reference>},
      {Operation::per_edge_outer, kGpu, Code::metal, "metal.outer",
       "2 or more edges per matrix, 8 or more channels on both sides of a group: the kernel of "
       "metal.outer of outer",
       all_of<are_many_edges_per_matrix, needs_tiles, needs_gpu_kernels>,
       one<per_edge_outer_metal_tiles>},
      {Operation::per_edge_outer, kGpu, Code::metal, "metal.rows",
       "any shape on Metal: one thread per value of a matrix, edges of a matrix in parts of 1,024",
       needs_gpu_kernels, one<per_edge_outer_metal_rows>},
      {Operation::per_edge_outer, kGpu, Code::mlx, "gpu.mlx",
       "any shape: gather, products and scatter-add of MLX, in float32", always,
       one<per_edge_outer_with_mlx>},

      // ---- pool
      {Operation::pool, kCpu, Code::host, "cpu.tiles",
       "any shape: tiles of output rows, edges by row, sums in registers", always, one<pool_tiles>},
      {Operation::pool, kCpu, Code::host, "cpu.reference",
       "any shape: one value at a time, sums in float64", always, one<pool_reference>},
      {Operation::pool, kGpu, Code::metal, "metal.rows",
       "any shape: one thread per value or per four channels, edges by output row, long rows in "
       "pieces",
       needs_gpu_kernels, one<pool_with_metal>},
      {Operation::pool, kGpu, Code::mlx, "gpu.mlx",
       "any shape: gather and scatter of MLX, in float32", always, one<pool_with_mlx>},

      // ---- segments, argmax, gather: groups of rows
      {Operation::segments, kCpu, Code::host, "cpu.segments",
       "any sizes of groups: sums in registers, long groups in pieces", always,
       one<segments_segments>},
      {Operation::segments, kCpu, Code::host, "cpu.reference",
       "any shape: one value at a time, sums in float64", always, one<segments_reference>},
      {Operation::segments, kGpu, Code::metal, "metal.rows",
       "any sizes of groups: one thread per value or per four channels, long groups in pieces",
       needs_gpu_kernels, one<segments_with_metal>},
      {Operation::segments, kGpu, Code::mlx, "gpu.mlx", "any shape: scatter of MLX, in float32",
       always, one<segments_with_mlx>},
      {Operation::argmax, kCpu, Code::host, "cpu.segments",
       "any relation or groups: rows by segment, the smallest of ties", always,
       one<argmax_segments>},
      {Operation::argmax, kGpu, Code::metal, "metal.rows",
       "any relation or groups: one thread per value or per four channels, long rows in pieces",
       needs_gpu_kernels, one<argmax_with_metal>},
      {Operation::argmax, kGpu, Code::host, "cpu.unified",
       "always: the CPU's code in shared memory", always, one<argmax_segments>},
      {Operation::gather, kCpu, Code::host, "cpu.rows", "any shape: copies of rows", always,
       one<gather_by_rows>},
      {Operation::gather, kGpu, Code::metal, "metal.rows",
       "any shape: one thread per value or per four channels", needs_gpu_kernels,
       one<gather_with_metal>},
      {Operation::gather, kGpu, Code::mlx, "gpu.mlx", "any shape: take of MLX", always,
       one<gather_with_mlx>},

      // ---- map_rows: voxels, interpolation, neighbors
      {Operation::map_rows, kCpu, Code::host, "cpu.segments",
       "any map: runs of rows in vector registers, long rows in pieces", always,
       one<map_rows_segments>},
      {Operation::map_rows, kCpu, Code::host, "cpu.reference",
       "any map: one value at a time, sums in float64", always, one<map_rows_reference>},
      {Operation::map_rows, kGpu, Code::metal, "metal.rows",
       "any map: one thread per value or per four channels, long rows in pieces", needs_gpu_kernels,
       one<map_rows_with_metal>},
      {Operation::map_rows, kGpu, Code::mlx, "gpu.mlx",
       "any map: take and scatter of MLX, in float32", always, one<map_rows_with_mlx>},

      // ---- whole rows and columns
      {Operation::sum_rows, kCpu, Code::host, "cpu.chunks",
       "any shape: float32 sums of fixed chunks of rows, added in order", always,
       one<sum_rows_chunks>},
      {Operation::sum_rows, kGpu, Code::mlx, "gpu.mlx", "any shape: sum of MLX, in float32", always,
       one<sum_of_call>},
      {Operation::join_columns, kCpu, Code::host, "cpu.copies",
       "any shape: whole rows copied at the speed of memory", always, one<join_columns_copies>},
      {Operation::join_columns, kGpu, Code::mlx, "gpu.mlx", "any shape: concatenate of MLX", always,
       one<join_columns_with_mlx>},
      {Operation::take_columns, kCpu, Code::host, "cpu.copies",
       "any shape: whole rows copied at the speed of memory", always, one<take_columns_copies>},
      {Operation::take_columns, kGpu, Code::mlx, "gpu.mlx", "any shape: slice of MLX", always,
       one<take_columns_with_mlx>},
      {Operation::batch_norm, kCpu, Code::host, "cpu.fused",
       "any shape: normalization, sum and ReLU in one pass over memory", always, batch_norm_fused},
      {Operation::batch_norm, kGpu, Code::mlx, "gpu.mlx", "any shape: MLX operations", always,
       batch_norm_with_mlx},
      {Operation::batch_norm_vjp, kCpu, Code::host, "cpu.fused",
       "any shape: the gradient in two passes over memory", always, batch_norm_vjp_fused},
      {Operation::batch_norm_vjp, kGpu, Code::mlx, "gpu.mlx",
       "any shape: MLX's gradient of the formula", always, batch_norm_vjp_with_mlx},
      {Operation::row_norm, kCpu, Code::host, "cpu.fused",
       "any shape: a row stays in the cache while it is normalized", always, one<row_norm_fused>},
      {Operation::row_norm, kGpu, Code::mlx, "gpu.mlx", "any shape: MLX operations", always,
       one<row_norm_with_mlx>},
      {Operation::row_norm_vjp, kCpu, Code::host, "cpu.fused",
       "any shape: the gradient of a row while it is in the cache, then sums over rows", always,
       row_norm_vjp_fused},
      {Operation::row_norm_vjp, kGpu, Code::mlx, "gpu.mlx",
       "any shape: MLX's gradient of the formula", always, row_norm_vjp_with_mlx},
      {Operation::gelu, kCpu, Code::host, "cpu.fused", "any shape: one pass over memory", always,
       one<gelu_fused>},
      {Operation::gelu, kGpu, Code::mlx, "gpu.mlx", "any shape: MLX operations, in float32", always,
       one<gelu_with_mlx>},
      {Operation::adamw, kCpu, Code::host, "cpu.fused", "any shape: one pass over memory", always,
       adamw_fused},
      {Operation::adamw, kGpu, Code::mlx, "gpu.mlx", "any shape: MLX operations", always,
       adamw_with_mlx},

      // ---- distance: all pairs
      {Operation::distance, kCpu, Code::host, "cpu.tiles",
       "any shape: blocks of rows of b side by side, sums in vector registers", always,
       one<distance_tiles>},
      {Operation::distance, kCpu, Code::host, "cpu.reference",
       "any shape: one pair at a time, sums in float64", always, one<distance_reference>},
      {Operation::distance, kGpu, Code::metal, "metal.tiles",
       "any shape: tiles of 16 x 16 pairs in threadgroup memory", needs_whole_tiles,
       one<distance_with_metal>},
      {Operation::distance, kGpu, Code::mlx, "gpu.mlx",
       "any shape: squares of one channel at a time; cosine: matmul of MLX", always,
       one<distance_with_mlx>, products_note, true},

      {Operation::distance_vjp, kCpu, Code::host, "cpu.rows",
       "at most 16 channels: differences first, four rows of a and 1,024 of b at a time", always,
       distance_vjp_rows},
      {Operation::distance_vjp, kGpu, Code::mlx, "gpu.mlx",
       "at most 16 channels: differences of one channel at a time by MLX operations", always,
       distance_vjp_with_mlx},

      // ---- attention over ragged segments
      {Operation::attention, kCpu, Code::host, "cpu.tiles",
       "any segments: tiles of 48 queries and 128 keys, running maximum and sum", always,
       attention_tiles},
      {Operation::attention, kGpu, Code::mlx, "gpu.sdpa",
       "equal segments, heads of 64, 80 or 128 channels, no bias, no mask but causal: "
       "scaled_dot_product_attention of MLX",
       needs_equal_segments, attention_with_sdpa},
      {Operation::attention, kGpu, Code::metal, "metal.tiles",
       "any segments: 32 queries of a head per threadgroup, tiles of 32 keys", needs_gpu_kernels,
       attention_with_metal},
      {Operation::attention, kGpu, Code::mlx, "gpu.mlx",
       "any segments: matmul of MLX for each run of segments of one length, in float32", always,
       attention_with_mlx, products_note, true},
      {Operation::attention_vjp, kCpu, Code::host, "cpu.tiles",
       "any segments: weights again from the log-sum-exp, tile by tile", always,
       attention_vjp_tiles},
      {Operation::attention_vjp, kGpu, Code::metal, "metal.tiles",
       "no table by position: queries, then keys and values, 32 rows of a head per threadgroup",
       all_of<has_no_table, needs_gpu_kernels>, attention_vjp_with_metal},
      {Operation::attention_vjp, kGpu, Code::mlx, "gpu.mlx",
       "any segments: MLX's gradient of the formula", always, attention_vjp_with_mlx, products_note,
       true},

      // ---- attention along edges, rotary position encoding
      {Operation::neighbor_attention, kCpu, Code::host, "cpu.rows",
       "any edges: one query at a time, rows read where they are", always, neighbor_attention_rows},
      {Operation::neighbor_attention, kGpu, Code::mlx, "gpu.mlx",
       "any edges: take and scatter of MLX, in float32", always, neighbor_attention_with_mlx},
      {Operation::neighbor_attention_vjp, kCpu, Code::host, "cpu.rows",
       "any edges: weights again from the log-sum-exp, by query, then by source", always,
       neighbor_attention_vjp_rows},
      {Operation::neighbor_attention_vjp, kGpu, Code::mlx, "gpu.mlx",
       "any edges: MLX's gradient of the formula", always, neighbor_attention_vjp_with_mlx},
      {Operation::rotary, kCpu, Code::host, "cpu.rows", "any shape: one pass over memory", always,
       one<rotary_rows>},
      {Operation::rotary, kGpu, Code::mlx, "gpu.mlx", "any shape: MLX operations", always,
       one<rotary_with_mlx>},

      // ---- geometry
      {Operation::unique, kCpu, Code::host, "cpu.sorted", "any coordinates: sorted keys", always,
       one<unique_on_cpu>},
      {Operation::unique, kGpu, Code::host, "cpu.unified", LATTICE_SHARED, always,
       one<unique_on_cpu>},
      {Operation::unique, kGpu, Code::metal, "metal.hash",
       "int32 coordinates: a table, then a prefix sum" LATTICE_OPT_IN, needs_hash,
       one<unique_with_metal>},
      {Operation::lookup, kCpu, Code::host, "cpu.sorted", "any coordinates: sorted keys, merged",
       always, one<lookup_on_cpu>},
      {Operation::lookup, kGpu, Code::host, "cpu.unified", LATTICE_SHARED, always,
       one<lookup_on_cpu>},
      {Operation::lookup, kGpu, Code::metal, "metal.hash",
       "int32 coordinates: a table" LATTICE_OPT_IN, needs_hash, one<lookup_with_metal>},
      {Operation::relate, kCpu, Code::host, "cpu.sorted",
       "any coordinates: sorted keys, walked once for each (x, y) offset", always,
       one<relate_on_cpu>},
      {Operation::relate, kGpu, Code::host, "cpu.unified", LATTICE_SHARED, always,
       one<relate_on_cpu>},
      {Operation::relate, kGpu, Code::metal, "metal.hash",
       "int32 coordinates: a table, probed for each output row and offset" LATTICE_OPT_IN,
       needs_map_by_hash, one<relate_with_metal>},
      {Operation::neighbors, kCpu, Code::host, "cpu.tree", "any rows: k-d trees of both ends",
       always, one<neighbors_on_cpu>},
      {Operation::neighbors, kGpu, Code::host, "cpu.unified", LATTICE_SHARED, always,
       one<neighbors_on_cpu>},
      {Operation::neighbors, kGpu, Code::metal, "metal.brute",
       "float points or int32 coordinates: every query against every source" LATTICE_OPT_IN,
       needs_hash, one<neighbors_with_metal>},
  });
  return table;
}

}  // namespace lattice

// Launchers and checks of conv, linear and outer.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

// Channels of one group.
inline int64_t in_group(const Call& call) { return call.c_in / call.groups; }
inline int64_t out_group(const Call& call) { return call.c_out / call.groups; }

// The tile kernels divide by channel counts.
Rejection has_channels(const Call& call);
Rejection dense_only(const Call& call);
Rejection packed_only(const Call& call);
// Several edges of an offset share an output row, so that sums of rows save products.
// The first is for conv, the second for outer.
Rejection outputs_are_shared(const Call& call);
Rejection outer_outputs_are_shared(const Call& call);
// One launch has threads for every tile.
Rejection needs_few_groups(const Call& call);
// Channels of a group fill an 8 x 8 matrix, and what needs_few_groups asks.
Rejection needs_tiles(const Call& call);
// A neural accelerator, a 16-bit dtype, and channels of a group that fill its tiles.
Rejection needs_tensor_unit(const Call& call);
// Every output row has at most one edge for an offset, and the map is not too long.
Rejection needs_map(const Call& call);
// Every output row has exactly one edge: up by 2 x 2 x 2, or the gradient of down by 2 x 2 x 2.
Rejection needs_one_edge(const Call& call);
// A tile of 64 rows has edges of most offsets, or there are few of either.
Rejection needs_full_tiles(const Call& call);
// Rows may be sorted by mask.
Rejection needs_sorted_map(const Call& call);
// A reversed submanifold relation whose rows may be sorted before it is reversed.
Rejection needs_mirror(const Call& call);

// How the kernels of conv and outer cut the output rows.
std::string tile_note(const Call& call);
mx::array conv_tiles(const Call& call, const Route& route);
mx::array conv_packed(const Call& call, const Route& route);
// The same; rows that share (offset, output row) are added first and multiplied once.
mx::array conv_buckets(const Call& call, const Route& route);
mx::array conv_packed_buckets(const Call& call, const Route& route);
mx::array conv_reference(const Call& given, const Route& route);
mx::array outer_buckets(const Call& call, const Route& route);
mx::array outer_tiles(const Call& call, const Route& route);
mx::array outer_reference(const Call& call, const Route& route);

// conv and linear, dense or packed: a thread per output element.
mx::array conv_metal_rows(const Call& call);
// Tiles over the map; of linear: over the rows themselves.
mx::array conv_metal_tiles(const Call& call);
// Tiles over the map with sorted rows.
mx::array conv_metal_sorted(const Call& call);
// The same for a reversed submanifold relation: i = o + offset k is o = i + offset K - 1 - k. So
// the relation itself, with the weights in reverse order, has the same result.
mx::array conv_metal_mirrored(const Call& call);
// Tiles over the lists of offsets, where every output row has one edge.
mx::array conv_metal_lists(const Call& call);
// Tiles of rows in local order; rows of x that share output and offset are added first.
mx::array conv_metal_buckets(const Call& call);
mx::array outer_metal_rows(const Call& call);
mx::array outer_metal_tiles(const Call& call);

// The same tiles with products on the tensor unit of Metal 4.
mx::array conv_metal_tensor_same(const Call& call);  // of linear
mx::array conv_metal_tensor_sorted(const Call& call);
mx::array conv_metal_tensor_mirrored(const Call& call);
mx::array conv_metal_tensor_lists(const Call& call);
mx::array outer_metal_tensor(const Call& call);

// Plain MLX operations, offset by offset, in float32: for devices that have no kernel of ours, and
// the yardstick for those that have.
mx::array conv_with_mlx(const Call& call);
mx::array outer_with_mlx(const Call& call);
mx::array linear_with_mlx(const Call& call);

}  // namespace lattice

/// @file
/// The edges of a relation as arrays, in the forms that users and kernels read. Each form is made
/// from sorted lists, or from other arrays of edges.
#pragma once

#include <string>

#include "lattice/core/segment_pieces.h"

namespace lattice {

/// int32 arrays of one length, ordered by output row, then offset id, then input row.
struct Edges {
  mx::array in_rows;     ///< (E,)
  mx::array out_rows;    ///< (E,)
  mx::array kernel_ids;  ///< (E,)
};
/// Edges of group g are edge_ids[row_offsets[g] .. row_offsets[g + 1]].
struct EdgeGroups {
  mx::array row_offsets;  ///< (groups + 1,) int32
  mx::array edge_ids;     ///< (E,) int32
};
/// out_in_map (n_out, n_k), -1 = none; row_masks (n_out, ceil(n_k / 32)) uint32.
struct ImplicitGemm {
  mx::array out_in_map;  ///< (n_out, n_k) int32
  mx::array row_masks;   ///< (n_out, ceil(n_k / 32)) uint32
};
/// Rows stably sorted by mask: sorted_kv_out_in_map (n_k, n_out), reorder_rows (n_out,), tile_masks
/// (ceil(n_out / 64), 4): OR of each 16 sorted rows' masks.
struct LATTICE_API SortedImplicitGemm {
  mx::array sorted_kv_out_in_map;  ///< (n_k, n_out) int32
  mx::array reorder_rows;          ///< (n_out,) int32
  mx::array tile_masks;            ///< (ceil(n_out / 64), 4) uint32
  /// (n_out, n_k), a new array at each call: no kernel reads it.
  mx::array sorted_out_in_map() const;
};
/// Rows of both ends by offset: edges of offset k are row_offsets[k] .. row_offsets[k + 1] of
/// in_rows and out_rows.
struct OffsetEdges {
  mx::array row_offsets;  ///< (n_k + 1,) int32
  mx::array in_rows;      ///< (E,) int32
  mx::array out_rows;     ///< (E,) int32
};
/// The edges of each offset in parts of a fixed length, for kernels with one group of threads per
/// part.
struct EdgeParts {
  /// (4 * count,) int32: offset, first edge, end, place in the result of each part. Edges count as
  /// Relation::offset_edges() has them. An offset without edges has one part too.
  mx::array table;
  /// (n_k + 1,) int32: the parts of offset k are offsets[k] .. offsets[k + 1]; and their pieces.
  mx::array offsets;
  std::vector<SegmentPieces> pieces;  ///< of offsets with many parts
  int count = 0;                      ///< how many parts there are
  bool direct = true;                 ///< one part per offset: its place is the offset
};
/// @cond internal
/// Tiles of 64 output positions: edges of tile t and offset k are bounds[t, k] .. bounds[t + 1, k]
/// of in_rows and positions, ascending in position. order: position -> output row, a local order
/// where the relation has one.
struct TileLists {
  mx::array bounds, in_rows, positions, order;
};

/// Edges, and the borders of the output rows among them.
struct EdgesByOutput {
  Edges edges;
  mx::array row_offsets;  ///< (n_out + 1,)
};
EdgesByOutput make_edges(const cpu::RelationLists& lists);
/// The edges of the given arrays with their ends swapped, ordered by the new output row, then
/// offset, then input row.
Edges swapped(const Edges& edges, int64_t n_in, int64_t n_out, int64_t n_k);
/// Edges grouped by a key in [0, n_groups).
EdgeGroups group_edges(const mx::array& keys, int64_t n_groups);
/// Edges that are in the order of their groups already.
EdgeGroups groups_in_order(const mx::array& row_offsets, int64_t n_edges);
OffsetEdges make_offset_edges(const cpu::RelationLists& lists);
/// Both throw std::invalid_argument when an output row has two edges with one offset.
ImplicitGemm make_implicit_gemm(const cpu::RelationLists& lists);
SortedImplicitGemm make_sorted_implicit_gemm(const cpu::RelationLists& lists);
TileLists make_tile_lists(const cpu::RelationLists& lists);
/// row_offsets (n_k + 1,) int32, evaluated.
EdgeParts make_edge_parts(const mx::array& row_offsets, int32_t length);

size_t bytes_of(const Edges& edges);
size_t bytes_of(const EdgeGroups& groups);
size_t bytes_of(const OffsetEdges& edges);
size_t bytes_of(const ImplicitGemm& map);
size_t bytes_of(const SortedImplicitGemm& map);
size_t bytes_of(const TileLists& lists);
size_t bytes_of(const EdgeParts& parts);
size_t bytes_of(const std::vector<SegmentPieces>& pieces);
/// @endcond

}  // namespace lattice

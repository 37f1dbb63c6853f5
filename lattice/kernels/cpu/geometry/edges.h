// Public views of a relation, from its lists. Rows are public rows, edges are ordered by output
// row, then offset, then the order of the list.
#pragma once

#include "lattice/kernels/cpu/base/choices.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// The three edge arrays, n_edges entries each, and row_offsets, n_out + 1 entries: the edges of
// output row r are row_offsets[r] .. row_offsets[r + 1]. Throws std::length_error when there are
// 2^31 edges or more.
void edge_arrays(const RelationLists& lists, int32_t* row_offsets, int32_t* in_rows,
                 int32_t* out_rows, int32_t* kernel_ids);

// Edges grouped by a key in [0, n_groups): offsets (n_groups + 1) and edge ids, ascending within a
// group.
void group_edges(const int32_t* keys, int64_t n_edges, int64_t n_groups, int32_t* offsets,
                 int32_t* edge_ids);

// out_in_map[o * n_k + k] = input row or -1; masks[o * words + k / 32] has bit k % 32 set where
// there is one, words = ceil(n_k / 32). Returns false when some (o, k) has two edges, which a map
// cannot hold.
bool implicit_map(const RelationLists& lists, int32_t* out_in_map, uint32_t* masks);

// All lists one after another: input rows and output positions of their edges. The bounds of
// `tiles` then count in these arrays, and order[p] is the output row of position p.
void tile_lists(const RelationLists& lists, TileBounds& tiles, int32_t* in_rows, int32_t* positions,
                int32_t* order);

// The same for kernels that take an offset at a time: rows of both ends, in the order of the lists.
// The edges of offset k are row_offsets[k] .. row_offsets[k + 1] (n_k + 1 entries).
void offset_edges(const RelationLists& lists, int32_t* row_offsets, int32_t* in_rows,
                  int32_t* out_rows);

// Whether each output row has exactly one edge.
bool has_one_edge_per_output(const RelationLists& lists);

// Lists of given edges: sorted by (k, out), given order within; positions are rows. Ids must be in
// range.
RelationLists lists_of_edges(const int32_t* in_rows, const int32_t* out_rows,
                             const int32_t* kernel_ids, int64_t n_edges, int64_t n_in,
                             int64_t n_out, int64_t n_k);

Coverage coverage(const RelationLists& lists);

}  // namespace lattice::cpu

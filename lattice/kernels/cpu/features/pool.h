// Pooling over the lists of a relation: reductions of the rows that meet an output row.
//
//   sum:           y[o, :] = sum over edges (i, o, k) of w[k] x[i, :]
//   mean:          sum / W[o],  W[o] = sum of w[k] over the edges of o
//   mean_adjoint:  y[o, :] = sum of w[k] x[i, :] / W[i],  W[i] = sum of w[k] over the edges of i
//   max:           y[o, :] = max over edges of x[i, :]; min likewise
//
// Rows are public rows; w is 1 without offset weights. Order of summation in a row: offset, then
// the order of the list; see segments.h for the rest. A row without edges is 0 in every mode. Mean
// on a relation and mean_adjoint on the reversed relation are adjoint to each other; sum is adjoint
// to itself.
//
// A tile of output positions collects its edges as segments by output row. So a sum lives in
// registers, and the kernel prefetches rows that are scattered in memory.
#pragma once

#include "lattice/kernels/cpu/features/segments.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

enum class PoolMode { sum, mean, mean_adjoint, max, min };

// x has n_in rows, y n_out. offset_weights: n_k positive values or null; max and min do not read
// them.
void pool(const RelationLists& lists, const TileBounds& bounds, const RowArray& x, PoolMode mode,
          const float* offset_weights, void* y);

// y[o, c] = sum over edges with a[o, c] == b[i, c] of x[i, c].
void pool_match(const RelationLists& lists, const TileBounds& bounds, const void* a, const void* b,
                const RowArray& x, void* y);

// y[o, c] = g[o, c] / the number of edges with a[o, c] == b[i, c], 0 where there is none. b has
// n_in rows.
void pool_share(const RelationLists& lists, const TileBounds& bounds, const void* a,
                const RowArray& b, const void* g, void* y);

// The smallest input row that has the maximum (kind min: the minimum), (n_out, channels); -1
// without edges.
void pool_argmax(const RelationLists& lists, const TileBounds& bounds, const RowArray& x,
                 int32_t* rows, Reduction kind = Reduction::max);

// The same formulas as the first three, one value at a time, sums in float64.
void reference_pool(const RelationLists& lists, const RowArray& x, PoolMode mode,
                    const float* offset_weights, void* y);
void reference_pool_match(const RelationLists& lists, const void* a, const void* b,
                          const RowArray& x, void* y);
void reference_pool_share(const RelationLists& lists, const void* a, const RowArray& b,
                          const void* g, void* y);

}  // namespace lattice::cpu

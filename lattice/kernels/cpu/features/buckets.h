// The weight gradient (outer.h) where many edges of a list share an output position: their input
// rows are added first.
//
//   u[k] = sum over the outputs o of list k of (sum of x[i] over the edges (i, o)) outer y[o]
//
// A product for each bucket (k, o) instead of one for each edge. Output positions are cut into
// fixed parts; the sums of a part are a small relation of their own, which `outer` takes. Float32,
// in order, rounded once: the bits do not depend on threads.
#pragma once

#include "lattice/kernels/cpu/features/outer.h"

namespace lattice::cpu {

// Whether this is faster than `outer`. It is faster above certain numbers of edges per bucket and
// output channels per group: `outer` reads rows from the first-level cache, while the sums go
// through the second (docs/notebook.md). It also needs a local order of the rows, because it copies
// all rows from the first to the last that a part reaches.
inline constexpr SharedFrom kOuterShared = {64, 2.5};
bool buckets_pay(const RelationLists& lists, const ConvShape& shape);

// Arguments and errors are those of `outer`; lists.n_buckets was counted. Extra memory for each
// thread: the rows and sums of a part, about 4 MiB each or what one tile needs.
void outer_of_buckets(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args);

}  // namespace lattice::cpu

// The geometry operations as rows of the route table: arrays in, one int32 array out.
//
//   unique     (coords)           (2, N): the distinct row of each row, first seen first;
//                                 then the first row of each, -1 behind them
//   lookup     (coords, queries)  (Q,): the first equal row, or -1
//   relate     (in, out)          (n_out, K + ceil(K / 32)): out_in_map, -1 = none,
//                                 then the masks of the rows
//   neighbors  (source, query)    (2 + Q + 1 + 2 E,): truncated (30 bits, the rest), row offsets,
//                                 source rows, bits of the distances
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

mx::array unique_on_cpu(const Call& call);
mx::array lookup_on_cpu(const Call& call);
mx::array relate_on_cpu(const Call& call);
mx::array neighbors_on_cpu(const Call& call);

// int32 coordinates only.
mx::array unique_with_metal(const Call& call);
mx::array lookup_with_metal(const Call& call);
mx::array relate_with_metal(const Call& call);
mx::array neighbors_with_metal(const Call& call);

// Rejects where MLX has no Metal, and coordinates that are not int32.
Rejection needs_hash(const Call& call);
// The same, a map that may have 2^31 values or more, and output coordinates that leave int32.
Rejection needs_map_by_hash(const Call& call);

}  // namespace lattice

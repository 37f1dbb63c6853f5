// Launchers of pool, segments, gather and argmax.
#pragma once

#include "lattice/routes/route.h"

namespace lattice {

mx::array pool_tiles(const Call& call, const Route& route);
mx::array pool_reference(const Call& call, const Route& route);
mx::array segments_segments(const Call& call, const Route& route);
mx::array segments_reference(const Call& call, const Route& route);
mx::array argmax_segments(const Call& call, const Route& route);
mx::array gather_by_rows(const Call& call, const Route& route);

// Edges of an output row are taken as KernelRelation.output_csr has them: by offset, then input
// row, unless the user gave the edges.
mx::array pool_with_metal(const Call& call);
mx::array segments_with_metal(const Call& call);
// Of a relation or of groups of rows.
mx::array argmax_with_metal(const Call& call);
mx::array gather_with_metal(const Call& call);

// Plain MLX operations in float32: for devices that have no kernel of ours, and the yardstick for
// those that have.
mx::array pool_with_mlx(const Call& call);
mx::array segments_with_mlx(const Call& call);
mx::array gather_with_mlx(const Call& call);

}  // namespace lattice

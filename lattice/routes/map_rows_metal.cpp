// map_rows on Metal: kernels/metal/segments.metal.
#include "lattice/routes/map_rows.h"
#include "lattice/routes/segments_metal.h"

namespace lattice {

mx::array map_rows_with_metal(const Call& call) {
  const RowMap::Parts& parts = call.map->parts();
  if (!parts.offsets) return metal_gather(call.inputs[0], parts.rows, 0, call.stream);
  const ReduceMode mode = call.map->reduction() == Reduction::max    ? ReduceMode::max
                          : call.map->reduction() == Reduction::mean ? ReduceMode::mean
                                                                     : ReduceMode::sum;
  return metal_reduce(call.inputs[0],
                      {*parts.offsets, parts.rows, parts.weights, call.map->pieces()}, mode,
                      call.dtype, call.stream);
}

}  // namespace lattice

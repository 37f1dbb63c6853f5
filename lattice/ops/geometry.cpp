#include "lattice/ops/geometry.h"

#include "lattice/core/arrays.h"
#include "lattice/routes/geometry.h"

namespace lattice {

cpu::Distinct distinct_rows(const CoordinateSet& coords, mx::StreamOrDevice s) {
  return routes::run(routes::unique_rows(), {coords, s});
}

mx::array distinct_coords(const CoordinateSet& coords, mx::StreamOrDevice s) {
  const cpu::Buffer<int32_t> first = distinct_rows(coords, s).first;
  cpu::Buffer<std::byte> out(first.size() * (coords.span().is64 ? 32 : 16));
  cpu::take_rows(coords.span(), first.span(), out.data());
  return adopt(std::move(out), {static_cast<int>(first.size()), 4}, coords.dtype());
}

cpu::Buffer<int32_t> find_rows(const CoordinateSet& coords, const CoordinateSet& queries,
                               mx::StreamOrDevice s) {
  return routes::run(routes::lookup_rows(), {coords, queries, s});
}

}  // namespace lattice

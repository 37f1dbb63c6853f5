#include "lattice/core/grid_pooling.h"

#include <bit>
#include <stdexcept>

#include "lattice/core/errors.h"
#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {

int stride_log2(int64_t stride, std::string_view operation) {
  if (stride < 1 || stride > 1024 || (stride & (stride - 1)) != 0)
    fail(operation, "stride must be a power of two in 1..1024, got " + std::to_string(stride));
  return std::countr_zero(static_cast<uint64_t>(stride));
}

PooledCoords pool_coords(const CoordinateSet& fine, cpu::Curve curve, int log2,
                         std::string_view operation) {
  return named(operation, [&]() -> PooledCoords {
    cpu::Blocks blocks = cpu::curve_blocks(fine.span(), curve, log2);
    const int64_t n = blocks.first.size(), stride = int64_t{1} << blocks.log2;
    const int64_t item = fine.span().is64 ? 8 : 4;
    cpu::Buffer<std::byte> taken(n * 4 * item), coords(n * 4 * item);
    cpu::take_rows(fine.span(), blocks.first.span(), taken.data());
    cpu::floor_coords({taken.data(), n, fine.span().is64}, {stride, stride, stride}, coords.data());
    return {
        CoordinateSet(adopt(std::move(coords), {static_cast<int>(n), 4}, fine.dtype()), operation),
        RowGroups::create(std::move(blocks.block_of), n), stride};
  });
}

}  // namespace lattice

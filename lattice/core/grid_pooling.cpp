#include "lattice/core/grid_pooling.h"

#include <bit>
#include <stdexcept>

#include "lattice/kernels/cpu/geometry/coords.h"

namespace lattice {

int stride_log2(int64_t stride, std::string_view operation) {
  if (stride < 1 || stride > 1024 || (stride & (stride - 1)) != 0)
    throw std::invalid_argument("[" + std::string(operation) +
                                "] stride must be a power of two in 1..1024, got " +
                                std::to_string(stride));
  return std::countr_zero(static_cast<uint64_t>(stride));
}

PooledCoords pool_coords(const CoordinateSet& fine, cpu::Curve curve, int log2,
                         std::string_view operation) {
  try {
    cpu::Blocks blocks = cpu::curve_blocks(fine.span(), curve, log2);
    const int64_t n = blocks.first.size(), stride = int64_t{1} << blocks.log2;
    const int64_t item = fine.span().is64 ? 8 : 4;
    cpu::Buffer<std::byte> taken(n * 4 * item), coords(n * 4 * item);
    cpu::take_rows(fine.span(), blocks.first.span(), taken.data());
    cpu::floor_coords({taken.data(), n, fine.span().is64}, {stride, stride, stride}, coords.data());
    return {
        CoordinateSet(adopt(std::move(coords), {static_cast<int>(n), 4}, fine.dtype()), operation),
        RowGroups::create(std::move(blocks.block_of), n), stride};
  } catch (const std::overflow_error& e) {
    throw std::overflow_error("[" + std::string(operation) + "] " + e.what());
  }
}

}  // namespace lattice

#include "lattice/kernels/cpu/features/column_copies.h"

#include <algorithm>
#include <cstring>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {

void copy_columns(int64_t rows, std::span<const ColumnBlock> blocks) {
  constexpr int64_t kTaskBytes = 64 << 10;
  int64_t row_bytes = 1;
  for (const ColumnBlock& b : blocks) row_bytes += b.bytes;
  parallel_range(rows, std::max<int64_t>(1, kTaskBytes / row_bytes),
                 [&](int64_t begin, int64_t end) {
                   for (int64_t r = begin; r < end; ++r)
                     for (const ColumnBlock& b : blocks)
                       std::memcpy(static_cast<char*>(b.to) + r * b.to_stride,
                                   static_cast<const char*>(b.from) + r * b.from_stride,
                                   static_cast<size_t>(b.bytes));
                 });
}

}  // namespace lattice::cpu

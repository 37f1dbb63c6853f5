// Blocks of columns between row-major matrices, copied as bytes.
#pragma once

#include <cstdint>
#include <span>

namespace lattice::cpu {

// `bytes` of every row. Strides are bytes from one row to the next.
struct ColumnBlock {
  const void* from;
  int64_t from_stride;
  void* to;
  int64_t to_stride;
  int64_t bytes;
};

void copy_columns(int64_t rows, std::span<const ColumnBlock> blocks);

}  // namespace lattice::cpu

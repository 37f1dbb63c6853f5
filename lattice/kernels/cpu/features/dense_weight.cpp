// Copies blocks of a dense weight with any strides and storage for conv.
#include <algorithm>

#include "lattice/kernels/cpu/features/conv.h"

namespace lattice::cpu {

void DenseWeight::fill(int64_t k, int64_t column, int64_t columns, int64_t width,
                       float* dst) const {
  constexpr int64_t kRows =
      16;  // rows at a time, so columns of a transposed weight are read line by line
  const int64_t rows = shape.in_group(), group_columns = shape.out_group();
  const int64_t step = group_columns == 1 ? stride_group : stride_out;
  visit_float_type(shape.storage, [&](auto zero) {
    using T = decltype(zero);
    const T* block = static_cast<const T*>(data) + k * stride_k +
                     column / group_columns * stride_group + column % group_columns * stride_out;
    for (int64_t c0 = 0; c0 < rows; c0 += kRows) {
      const int64_t c1 = std::min(rows, c0 + kRows);
      if (stride_in == 1) {
        for (int64_t j = 0; j < columns; ++j) {
          for (int64_t c = c0; c < c1; ++c) dst[c * width + j] = widen(block[c + j * step]);
        }
      } else {
        for (int64_t c = c0; c < c1; ++c) {
          for (int64_t j = 0; j < columns; ++j)
            dst[c * width + j] = widen(block[c * stride_in + j * step]);
        }
      }
      for (int64_t c = c0; c < c1; ++c)
        std::fill(dst + c * width + columns, dst + (c + 1) * width, 0.0f);
    }
  });
}

}  // namespace lattice::cpu

// Blocks of a dense weight for conv, whatever its strides and storage.
#include <algorithm>
#include <utility>

#include "lattice/kernels/cpu/features/conv.h"

namespace lattice::cpu {

void DenseWeight::fill(int64_t k, int64_t column, int64_t columns, int64_t width,
                       float* dst) const {
  constexpr int64_t kRows =
      16;  // rows at a time, so that columns of a transposed weight are read line by line
  const int64_t step = group_columns == 1 ? stride_group : stride_out;
  visit_float_type(storage, [&](auto zero) {
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

std::optional<WeightOrigin> DenseWeight::origin(int64_t n_k, int64_t groups) const {
  if (owner.expired()) return std::nullopt;
  int64_t values = 1, reach = 1;
  for (const auto& [size, stride] :
       {std::pair(n_k, stride_k), std::pair(rows, stride_in), std::pair(group_columns, stride_out),
        std::pair(groups, stride_group)}) {
    if (stride < 0 && size > 1) return std::nullopt;
    values *= size;
    reach += (size - 1) * stride;
  }
  if (values != reach || values == 0) return std::nullopt;  // gaps, or values that are read twice
  const int64_t item = storage == FloatType::f32 ? 4 : 2;
  return WeightOrigin{owner,
                      data,
                      values * item,
                      {static_cast<int64_t>(storage), n_k, rows, group_columns, stride_k, stride_in,
                       stride_out, stride_group}};
}

}  // namespace lattice::cpu

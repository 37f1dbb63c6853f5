// What MLX's header of this name gives a kernel, here on the CPU: the words of CUDA.
#pragma once

#include "cuda_half.h"
#include "cuda_threads.h"
#include "cuda_words.h"

namespace mlx::core::cu {

template <typename T>
struct Ten {  // MLX passes shapes by value, ten numbers each
  T v[10];
  MSL_UNSEEN T operator[](int i) const { return v[i]; }
};
using Shape = Ten<int32_t>;
using Strides = Ten<int64_t>;

}  // namespace mlx::core::cu

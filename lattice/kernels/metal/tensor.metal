// Products of tiles on the tensor unit of Metal 4; shared by conv_tensor and outer_tensor. Not a
// topic of its own.
//
// Tiles are half or bfloat in threadgroup memory, without padding; sums are float32. Which lane
// holds which sum differs between generations of GPUs, so the kernel asks and never assumes.
#pragma once

#if __METAL_VERSION__ >= 400
#if __has_include(<MetalPerformancePrimitives/MetalPerformancePrimitives.h>)
#define LATTICE_TENSOR
#endif
#endif

#ifdef LATTICE_TENSOR
#include <MetalPerformancePrimitives/MetalPerformancePrimitives.h>
#include <metal_tensor>

namespace lattice {
using namespace metal;

// Sums (kM x kN) += left (kM x kK) times right (kK x kN). kTurned: memory holds left transposed.
template <int kM, int kN, int kK, bool kTurned>
METAL_FUNC auto tensor_unit() {
  constexpr auto descriptor = mpp::tensor_ops::matmul2d_descriptor(
      kM, kN, kK, kTurned, false, false,
      mpp::tensor_ops::matmul2d_descriptor::mode::multiply_accumulate);
  return mpp::tensor_ops::matmul2d<descriptor, execution_simdgroup>();
}

// A tile in threadgroup memory, kRows rows of kWidth.
template <typename T, int kWidth, int kRows>
using TileTensor = tensor<threadgroup T, extents<int32_t, kWidth, kRows>, tensor_inline>;

// Sums without values. The unit's own result goes out as it is: a tensor with a name might have to
// be copied, which Metal does not promise.
template <typename T, int kM, int kN, int kK, bool kTurned>
METAL_FUNC auto tensor_sums() {
  const auto unit = tensor_unit<kM, kN, kK, kTurned>();
  return unit.template get_destination_cooperative_tensor<
      TileTensor<T, kTurned ? kM : kK, kTurned ? kK : kM>, TileTensor<T, kN, kK>, float>();
}
template <typename C>
METAL_FUNC void clear_tensor(thread C& sums) {
  for (uint16_t i = 0; i < sums.get_capacity(); ++i)
    if (sums.is_valid_element(i)) sums[i] = 0.0f;
}

template <typename T, int kM, int kN, int kK, bool kTurned, typename C>
METAL_FUNC void add_tiles(thread C& sums, threadgroup T* left, threadgroup T* right) {
  constexpr int kWidth = kTurned ? kM : kK, kRows = kTurned ? kK : kM;
  const auto unit = tensor_unit<kM, kN, kK, kTurned>();
  auto a = TileTensor<T, kWidth, kRows>(left, extents<int32_t, kWidth, kRows>());
  auto b = TileTensor<T, kN, kK>(right, extents<int32_t, kN, kK>());
  unit.run(a, b, sums);
}

// Hands every sum to to.put(row, column, value).
template <typename C, typename To>
METAL_FUNC void put_tensor(thread C& sums, To to, int row, int column) {
  for (uint16_t i = 0; i < sums.get_capacity(); ++i) {
    if (!sums.is_valid_element(i)) continue;
    const auto at = sums.get_multidimensional_index(i);
    to.put(row + int(at[1]), column + int(at[0]), sums[i]);
  }
}

}  // namespace lattice
#endif

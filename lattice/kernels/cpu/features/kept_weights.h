// Packed weights of conv that are kept between calls while the array is the same.
//
// 1. An array is packed for keeping when a call sees it for the second time. So a training step,
//    which changes every weight, keeps nothing.
// 2. The store holds the memory of the array, so that MLX neither gives the buffer to another
//    result nor to another array. A changed array is another array with memory of its own. When
//    only the store holds the memory, the next call drops it together with the packed weights.
// 3. Programs can write into an array behind MLX, through a NumPy view. A sample of the array, 64
//    of every 2,048 bytes, finds such writes unless they are smaller than that.
// 4. All kept weights have at most kept_weight_limit() bytes. When these are used up, weights that
//    1,024 calls did not ask for make room; otherwise a call packs for itself as before.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// Memory without gaps that weights come from.
struct WeightOrigin {
  std::weak_ptr<const void> owner;  // of the memory
  const void* data = nullptr;
  int64_t bytes = 0;
  std::vector<int64_t> layout = {};  // whatever else the packed weights depend on
};

using KeptWeights = std::shared_ptr<const Buffer<float>>;

// The packed weights of the origin. Null: the caller packs for itself. pack(to) writes all `floats`
// values.
KeptWeights kept_weights(const WeightOrigin& origin, int64_t floats,
                         const std::function<void(float*)>& pack);

// Bytes that are kept, and at most: 256 MiB, or LATTICE_KEPT_WEIGHTS, in MiB; 0 keeps nothing.
int64_t kept_weight_bytes();
int64_t kept_weight_limit();

}  // namespace lattice::cpu

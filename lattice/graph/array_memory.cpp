#include "lattice/graph/array_memory.h"

#include <mlx/allocator.h>
#include <mlx/device.h>
#include <mlx/memory.h>

#include <algorithm>
#include <cstdint>
#include <new>
#include <utility>

#include "lattice/kernels/cpu/base/memory.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

using mx::allocator::Data;

constexpr size_t kSmall = size_t{64} << 10;  // malloc has these at hand
constexpr size_t kLine = 64;

Data new_block(size_t bytes) {
  for (const bool last : {false, true}) {
    Data data = mx::allocator::malloc(bytes);
    if (bytes == 0 || data.buffer().ptr()) return data;
    if (last) break;
    mx::clear_cache();  // what MLX and the kernels keep for reuse may be enough
    cpu::pool_trim();
  }
  throw std::bad_alloc();
}

void use_huge_pages([[maybe_unused]] uintptr_t first, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  constexpr size_t kHuge = size_t{2} << 20;
  const uintptr_t begin = (first + kHuge - 1) / kHuge * kHuge;
  const uintptr_t end = (first + bytes) / kHuge * kHuge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

void give_memory(mx::array& a) {
  static const bool plain = !mx::is_available(mx::Device::gpu);
  if (a.nbytes() < kSmall || !plain) return a.set_data(new_block(a.nbytes()));
  Data data = new_block(a.nbytes() + kLine);
  mx::allocator::Buffer buffer = data.buffer();
  const auto first = reinterpret_cast<uintptr_t>(buffer.raw_ptr());
  use_huge_pages(first, a.nbytes() + kLine);
  // Row-major without gaps; a single column that holds all values is contiguous in both orders.
  const auto longest = *std::max_element(a.shape().begin(), a.shape().end());
  const mx::array::Flags flags{true, true, static_cast<size_t>(longest) == a.size()};
  a.set_data(std::move(data), a.size(), a.strides(), flags,
             static_cast<int64_t>((kLine - first % kLine) % kLine));
}

mx::array empty_array(mx::Shape shape, mx::Dtype dtype) {
  size_t bytes = dtype.size();
  for (const int extent : shape) bytes *= static_cast<size_t>(extent);
  return mx::array(new_block(bytes), std::move(shape), dtype);
}

}  // namespace lattice::graph

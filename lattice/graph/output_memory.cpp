#include "lattice/graph/output_memory.h"

#include <mlx/device.h>

#include <new>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

constexpr size_t kSmall = size_t{64} << 10;  // malloc has these at hand
constexpr size_t kLine = 64;

// Whether a buffer of MLX is a size followed by the data.
bool has_plain_memory() {
  static const bool plain = [] {
    if (mx::is_available(mx::Device::gpu)) return false;
    const mx::allocator::Data data = mx::allocator::malloc(kLine);
    mx::allocator::Buffer buffer = data.buffer();
    const auto* begin = static_cast<const char*>(buffer.ptr());
    return static_cast<const char*>(buffer.raw_ptr()) == begin + sizeof(size_t) &&
           *reinterpret_cast<const size_t*>(begin) == mx::allocator::allocator().size(buffer);
  }();
  return plain;
}

}  // namespace

mx::allocator::Data output_memory(size_t bytes) {
  if (bytes < kSmall || !has_plain_memory()) {
    mx::allocator::Data data = mx::allocator::malloc(bytes);
    mx::allocator::Buffer buffer = data.buffer();
    if (bytes > 0 && !buffer.raw_ptr()) throw std::bad_alloc();
    return data;
  }
  size_t capacity = 0;
  char* block = static_cast<char*>(cpu::pool_take(bytes + kLine, &capacity));
  auto* size = reinterpret_cast<size_t*>(block + kLine) - 1;
  *size = bytes;
  return {mx::allocator::Buffer(size),
          [block, capacity](mx::allocator::Buffer) { cpu::pool_give(block, capacity); }};
}

}  // namespace lattice::graph

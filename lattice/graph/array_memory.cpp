#include "lattice/graph/array_memory.h"

#include <mlx/device.h>

#include <memory>
#include <new>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/pages.h"

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

constexpr size_t kSmall = size_t{64} << 10;  // malloc has these at hand
constexpr size_t kLine = 64;

// Whether a buffer of MLX is a size followed by the data, and the kernels leave room for the size.
bool has_plain_memory() {
  static const bool plain = [] {
    if (cpu::kFrontBytes < sizeof(size_t) || mx::is_available(mx::Device::gpu)) return false;
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
  auto memory = std::make_unique<cpu::Buffer<char>>(static_cast<int64_t>(bytes));
  const mx::allocator::Buffer shared = shared_memory(memory->data(), bytes);
  return {shared, [kept = memory.release()](mx::allocator::Buffer) { delete kept; }};
}

mx::allocator::Buffer shared_memory(void* data, size_t bytes) {
  if (has_plain_memory()) {
    cpu::open_front(data);
    size_t* size = static_cast<size_t*>(data) - 1;
    *size = bytes;
    return mx::allocator::Buffer(size);
  }
  if (bytes < cpu::kPageBytes) return mx::allocator::Buffer(nullptr);  // a GPU shares whole pages
  return mx::allocator::make_buffer(data, cpu::whole_pages(bytes));
}

}  // namespace lattice::graph

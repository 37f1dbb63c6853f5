#include "lattice/graph/array_memory.h"

#include <mlx/device.h>

#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "lattice/kernels/cpu/base/block_pool.h"
#include "lattice/kernels/cpu/base/fork_safe.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace lattice::graph {
namespace mx = mlx::core;
namespace {

using mx::allocator::Data;

constexpr size_t kSmall = size_t{64} << 10;  // malloc has these at hand
constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kLine = 64;

// MLX's CPU allocator writes the size of a block before the data.
size_t& size_of_block(const Data& data) {
  mx::allocator::Buffer buffer = data.buffer();
  return *static_cast<size_t*>(buffer.ptr());
}

// Whether a buffer of MLX is a size followed by the data.
bool has_plain_memory() {
  static const bool plain = [] {
    if (mx::is_available(mx::Device::gpu)) return false;
    const Data data = mx::allocator::malloc(kLine);
    mx::allocator::Buffer buffer = data.buffer();
    const auto* begin = static_cast<const char*>(buffer.ptr());
    return static_cast<const char*>(buffer.raw_ptr()) == begin + sizeof(size_t) &&
           size_of_block(data) == mx::allocator::allocator().size(buffer);
  }();
  return plain;
}

using OutputPool = cpu::BlockPool<std::unique_ptr<Data>>;
OutputPool& pool() { return cpu::fork_safe<OutputPool>(); }

Data new_block(size_t bytes) {
  Data data = mx::allocator::malloc(bytes);
  mx::allocator::Buffer buffer = data.buffer();
  if (bytes > 0 && !buffer.raw_ptr()) throw std::bad_alloc();
  return data;
}

// For plain memory only: what a GPU shares is its driver's matter.
void use_huge_pages([[maybe_unused]] const Data& data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__)
  mx::allocator::Buffer buffer = data.buffer();
  const auto first = reinterpret_cast<uintptr_t>(buffer.raw_ptr());
  const uintptr_t begin = (first + kHuge - 1) / kHuge * kHuge;
  const uintptr_t end = (first + bytes) / kHuge * kHuge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#endif
}

}  // namespace

void give_memory(mx::array& a) {
  const size_t bytes = a.nbytes();
  if (bytes < kSmall || !has_plain_memory()) return a.set_data(new_block(bytes));
  const size_t size = cpu::rounded_block(bytes + kLine, 1);
  auto kept = pool().take(size);
  if (!kept) {
    kept = {std::make_unique<Data>(new_block(size)), size};
    use_huge_pages(*kept->block, size);
    pool().add(size);
  }
  // MLX writes a result in place only if the block is not much larger than the result. So the size
  // before the data is that of the array until the block comes back.
  size_of_block(*kept->block) = bytes + kLine;
  const auto give_back = [capacity = kept->capacity](Data* block) {
    size_of_block(*block) = capacity;
    pool().give(std::unique_ptr<Data>(block), capacity);
  };
  std::shared_ptr<Data> data(kept->block.release(), give_back);
  mx::allocator::Buffer buffer = data->buffer();
  const auto nobody = [](mx::allocator::Buffer) {};
  a.set_data(Data(buffer, nobody));  // finds out the flags
  const size_t behind = reinterpret_cast<uintptr_t>(buffer.raw_ptr()) % kLine;
  a.set_data(Data(buffer, nobody), a.data_size(), a.strides(), a.flags(),
             static_cast<int64_t>(behind ? kLine - behind : 0));
  // No function of MLX takes a shared pointer with a deleter. The reference is to a member of an
  // array that is not const.
  const_cast<std::shared_ptr<Data>&>(a.data_shared_ptr()) = std::move(data);
}

mx::allocator::Buffer shared_memory(void* data, size_t bytes) {
  if (cpu::kFrontBytes >= sizeof(size_t) && has_plain_memory()) {
    cpu::open_front(data);
    size_t* size = static_cast<size_t*>(data) - 1;
    *size = bytes;
    return mx::allocator::Buffer(size);
  }
  if (bytes < cpu::kPageBytes) return mx::allocator::Buffer(nullptr);  // a GPU shares whole pages
  return mx::allocator::make_buffer(data, cpu::whole_pages(bytes));
}

}  // namespace lattice::graph

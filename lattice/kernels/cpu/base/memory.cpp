#include "lattice/kernels/cpu/base/memory.h"

#include <cstdlib>
#include <memory>
#include <new>

#include "lattice/kernels/cpu/base/block_pool.h"
#include "lattice/kernels/cpu/base/fork_safe.h"
#include "lattice/kernels/cpu/base/pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#define ASAN_UNPOISON_MEMORY_REGION(begin, bytes) static_cast<void>(0)
#endif

namespace lattice::cpu {
namespace {

constexpr size_t kSmall = size_t{64} << 10;
constexpr size_t kAlign = 64;
constexpr size_t kHuge = size_t{2} << 20;

// Metal shares memory that consists of whole pages, so large blocks do on Apple's systems. On other
// systems malloc would clear fresh pages for blocks of 16 to 64 KiB: building relations with their
// edges took 1.05 times as long.
#if defined(__APPLE__)
constexpr bool kWholePages = true;
#else
constexpr bool kWholePages = false;
#endif

// Huge blocks are whole huge pages.
size_t alignment_of(size_t bytes) {
  if (bytes >= kHuge) return kHuge;
  return kWholePages && bytes >= kPageBytes ? kPageBytes : kAlign;
}
size_t round_up(size_t bytes) {
  const size_t unit = alignment_of(bytes);
  return bytes < kSmall ? (bytes + unit - 1) / unit * unit : rounded_block(bytes, unit);
}

struct Free {
  void operator()(void* block) const { std::free(block); }
};
using Block = std::unique_ptr<void, Free>;

BlockPool<Block>& pool() { return fork_safe<BlockPool<Block>>(); }

// AddressSanitizer sees the bytes behind those asked for, and blocks that lie in the pool, as out
// of bounds.
void* hand_out(void* block, [[maybe_unused]] size_t bytes, [[maybe_unused]] size_t capacity) {
  ASAN_UNPOISON_MEMORY_REGION(block, bytes);
  ASAN_POISON_MEMORY_REGION(static_cast<char*>(block) + bytes, capacity - bytes);
  return block;
}

}  // namespace

void* pool_take(size_t bytes, size_t* capacity) {
  if (bytes > size_t{PTRDIFF_MAX}) throw std::bad_alloc();
  const size_t size = round_up(bytes);
  if (size >= kSmall) {
    if (auto kept = pool().take(size)) {
      *capacity = kept->capacity;
      return hand_out(kept->block.release(), bytes, *capacity);
    }
  }
  void* block = std::aligned_alloc(alignment_of(size), size);
  if (!block) {
    pool().trim();  // the kept blocks may be enough
    block = std::aligned_alloc(alignment_of(size), size);
  }
  if (!block) throw std::bad_alloc();
#if defined(__linux__)
  if (size >= kHuge) madvise(block, size, MADV_HUGEPAGE);
#endif
  if (size >= kSmall) pool().add(size);
  *capacity = size;
  return hand_out(block, bytes, size);
}

void pool_give(void* block, size_t capacity) noexcept {
  ASAN_POISON_MEMORY_REGION(block, capacity);
  if (capacity < kSmall) return std::free(block);
  pool().give(Block(block), capacity);
}

void pool_trim() noexcept { pool().trim(); }

size_t pool_bytes() noexcept { return pool().bytes(); }

}  // namespace lattice::cpu

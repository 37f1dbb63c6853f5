#include "lattice/kernels/cpu/base/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <vector>

#include "lattice/kernels/cpu/base/pages.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif
#if !defined(_WIN32)
#include <pthread.h>
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

// Sizes are rounded up to an eighth of a power of two, so that a block fits later requests of about
// its size. Large sizes are rounded up to whole pages, huge sizes to whole huge pages.
size_t alignment_of(size_t bytes) {
  return bytes >= kHuge ? kHuge : bytes >= kPageBytes ? kPageBytes : kAlign;
}
size_t round_up(size_t bytes) {
  const size_t eighth = bytes < kSmall ? 0 : std::bit_floor(bytes) / 8;
  const size_t unit = std::max(eighth, alignment_of(bytes));
  return (bytes + unit - 1) / unit * unit;
}

struct Pool {
  std::mutex mutex;
  std::vector<std::pair<size_t, void*>> free;  // oldest first
  size_t bytes = 0;
};

// Never destroyed: arrays may be released after static destruction began. fork() waits for the
// mutex; otherwise the child could inherit the mutex locked by a thread that the child does not
// have.
Pool& pool() {
  static Pool* instance = [] {
    auto* made = new Pool;
#if !defined(_WIN32)
    pthread_atfork([] { pool().mutex.lock(); }, [] { pool().mutex.unlock(); },
                   [] { pool().mutex.unlock(); });
#endif
    return made;
  }();
  return *instance;
}

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
    Pool& p = pool();
    std::lock_guard lock(p.mutex);
    for (size_t i = p.free.size(); i-- > 0;) {
      auto [have, block] = p.free[i];
      if (have < size || have > size + size / 4) continue;
      p.free.erase(p.free.begin() + static_cast<std::ptrdiff_t>(i));
      p.bytes -= have;
      *capacity = have;
      return hand_out(block, bytes, have);
    }
  }
  void* block = std::aligned_alloc(alignment_of(size), size);
  if (!block) throw std::bad_alloc();
#if defined(__linux__)
  if (size >= kHuge) madvise(block, size, MADV_HUGEPAGE);
#endif
  *capacity = size;
  return hand_out(block, bytes, size);
}

void pool_give(void* block, size_t capacity) noexcept {
  ASAN_POISON_MEMORY_REGION(block, capacity);
  if (capacity < kSmall || capacity > kPoolBytes / 2) return std::free(block);
  Pool& p = pool();
  {
    std::lock_guard lock(p.mutex);
    try {
      p.free.emplace_back(capacity, block);
    } catch (...) {
      return std::free(block);
    }
    p.bytes += capacity;
    while (p.bytes > kPoolBytes) {
      std::free(p.free.front().second);
      p.bytes -= p.free.front().first;
      p.free.erase(p.free.begin());
    }
  }
}

void pool_trim() noexcept {
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  for (auto [size, block] : p.free) std::free(block);
  p.free.clear();
  p.bytes = 0;
}

size_t pool_bytes() noexcept {
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  return p.bytes;
}

}  // namespace lattice::cpu

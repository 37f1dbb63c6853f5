#include "lattice/kernels/cpu/base/memory.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <mutex>
#include <new>
#include <utility>
#include <vector>

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
constexpr int kWindow = 1 << 16;  // blocks handed out: some training steps

// Sizes are rounded up to an eighth of a power of two, so that a block fits later requests of about
// its size. Huge sizes are rounded up to whole huge pages. Where Metal shares memory, large sizes
// are rounded up to whole pages. Elsewhere malloc would clear fresh pages for blocks of 16 to
// 64 KiB: relations with their edges took 1.05 times as long.
size_t alignment_of(size_t bytes) {
  if (bytes >= kHuge) return kHuge;
  return kFrontBytes == 0 && bytes >= kPageBytes ? kPageBytes : kAlign;
}
size_t round_up(size_t bytes) {
  const size_t eighth = bytes < kSmall ? 0 : std::bit_floor(bytes) / 8;
  const size_t unit = std::max(eighth, alignment_of(bytes));
  return (bytes + unit - 1) / unit * unit;
}

// Kept blocks and blocks in use together have a limit. It is 1.5 times the bytes that were in use
// at one time lately, or kPoolBytes if that is more. So a training step finds the memory of the
// step before. Sizes reach their peaks at different times. With 1.0 instead of 1.5 times, a step of
// MinkUNet-18 made 100 new blocks (50 to 280 ms in the kernel); now it makes two (4 ms).
struct Pool {
  std::mutex mutex;
  std::vector<std::pair<size_t, void*>> free;  // oldest first
  size_t bytes = 0;                            // of these
  size_t used = 0;                             // bytes of the blocks in use
  size_t most = 0, most_before = 0;            // of `used`, in this window and the one before
  int taken = 0;                               // in this window

  void take(size_t capacity) {
    used += capacity;
    most = std::max(most, used);
    if (++taken < kWindow) return;
    most_before = std::exchange(most, used);
    taken = 0;
  }
  // Frees the oldest blocks beyond the limit.
  void shed() {
    const size_t peak = std::max(most, most_before);
    const size_t limit = std::max(kPoolBytes, peak + peak / 2);
    size_t n = 0;
    for (; n < free.size() && bytes + used > limit; ++n) {
      std::free(free[n].second);
      bytes -= free[n].first;
    }
    free.erase(free.begin(), free.begin() + static_cast<std::ptrdiff_t>(n));
  }
};

Pool& pool() { return fork_safe<Pool>(); }

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
  Pool& p = pool();
  if (size >= kSmall) {
    std::lock_guard lock(p.mutex);
    for (size_t i = p.free.size(); i-- > 0;) {
      auto [have, block] = p.free[i];
      if (have < size || have > size + size / 4) continue;
      p.free.erase(p.free.begin() + static_cast<std::ptrdiff_t>(i));
      p.bytes -= have;
      p.take(have);
      *capacity = have;
      return hand_out(block, bytes, have);
    }
  }
  void* block = std::aligned_alloc(alignment_of(size), size);
  if (!block) throw std::bad_alloc();
#if defined(__linux__)
  if (size >= kHuge) madvise(block, size, MADV_HUGEPAGE);
#endif
  if (size >= kSmall) {
    std::lock_guard lock(p.mutex);
    p.take(size);
    p.shed();
  }
  *capacity = size;
  return hand_out(block, bytes, size);
}

void pool_give(void* block, size_t capacity) noexcept {
  ASAN_POISON_MEMORY_REGION(block, capacity);
  if (capacity < kSmall) return std::free(block);
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  p.used -= capacity;
  if (capacity > kPoolBytes / 2) return std::free(block);
  try {
    p.free.emplace_back(capacity, block);
  } catch (...) {
    return std::free(block);
  }
  p.bytes += capacity;
  p.shed();
}

void pool_trim() noexcept {
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  for (auto [size, block] : p.free) std::free(block);
  p.free.clear();
  p.bytes = 0;
  p.most = p.most_before = p.used;
}

size_t pool_bytes() noexcept {
  Pool& p = pool();
  std::lock_guard lock(p.mutex);
  return p.bytes;
}

void* take_behind_front(size_t bytes, size_t* capacity) {
  if (bytes > size_t{PTRDIFF_MAX} - kFrontBytes) throw std::bad_alloc();
  void* block = pool_take(bytes + kFrontBytes, capacity);
  ASAN_POISON_MEMORY_REGION(block, kFrontBytes);
  return static_cast<char*>(block) + kFrontBytes;
}

void give_behind_front(void* data, size_t capacity) noexcept {
  pool_give(static_cast<char*>(data) - kFrontBytes, capacity);
}

void open_front([[maybe_unused]] void* data) noexcept {
  ASAN_UNPOISON_MEMORY_REGION(static_cast<char*>(data) - kFrontBytes, kFrontBytes);
}

}  // namespace lattice::cpu

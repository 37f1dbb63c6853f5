// Blocks of memory that are kept for reuse. Destroying a Block frees its memory.
//
// Kept blocks and blocks in use together have a limit. It is 1.5 times the bytes that were in use
// at one time lately, or kPoolBytes if that is more. So a training step finds the memory of the
// step before. Sizes reach their peaks at different times. With 1.0 instead of 1.5 times, a step of
// MinkUNet-18 made 100 new blocks (50 to 280 ms in the kernel); now it makes two (4 ms).
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace lattice::cpu {

inline constexpr size_t kPoolBytes = size_t{512} << 20;

// The next multiple of an eighth of a power of two, or of `unit` if that is more. So a block fits
// later requests of about its size.
inline size_t rounded_block(size_t bytes, size_t unit) {
  const size_t step = std::max(std::bit_floor(bytes) / 8, unit);
  return (bytes + step - 1) / step * step;
}

template <typename Block>
class BlockPool {
 public:
  std::mutex mutex;  // for fork_safe; every function locks it

  struct Sized {
    Block block;
    size_t capacity;
  };
  // The newest kept block of `size` to 1.25 times `size` bytes. It is in use now.
  std::optional<Sized> take(size_t size) {
    std::lock_guard lock(mutex);
    for (size_t i = free_.size(); i-- > 0;) {
      if (free_[i].capacity < size || free_[i].capacity > size + size / 4) continue;
      Sized found = std::move(free_[i]);
      free_.erase(free_.begin() + static_cast<std::ptrdiff_t>(i));
      bytes_ -= found.capacity;
      count(found.capacity);
      return found;
    }
    return std::nullopt;
  }
  // A new block is in use.
  void add(size_t capacity) {
    std::lock_guard lock(mutex);
    count(capacity);
    shed();
  }
  // A block is in use no longer. It is freed if it is very large.
  void give(Block block, size_t capacity) noexcept {
    std::lock_guard lock(mutex);
    used_ -= capacity;
    if (capacity > kPoolBytes / 2) return;
    try {
      free_.push_back({std::move(block), capacity});
    } catch (...) {
      return;  // the block frees itself
    }
    bytes_ += capacity;
    shed();
  }
  // Frees all kept blocks and forgets how much was in use.
  void trim() noexcept {
    std::lock_guard lock(mutex);
    free_.clear();
    bytes_ = 0;
    most_ = most_before_ = used_;
  }
  size_t bytes() noexcept {
    std::lock_guard lock(mutex);
    return bytes_;
  }

 private:
  static constexpr int kWindow = 1 << 16;  // blocks handed out: some training steps

  void count(size_t capacity) {
    used_ += capacity;
    most_ = std::max(most_, used_);
    if (++taken_ < kWindow) return;
    most_before_ = std::exchange(most_, used_);
    taken_ = 0;
  }
  // Frees the oldest blocks beyond the limit.
  void shed() {
    const size_t peak = std::max(most_, most_before_);
    const size_t limit = std::max(kPoolBytes, peak + peak / 2);
    size_t n = 0;
    for (; n < free_.size() && bytes_ + used_ > limit; ++n) bytes_ -= free_[n].capacity;
    free_.erase(free_.begin(), free_.begin() + static_cast<std::ptrdiff_t>(n));
  }

  std::vector<Sized> free_;            // oldest first
  size_t bytes_ = 0;                   // of these
  size_t used_ = 0;                    // bytes of the blocks in use
  size_t most_ = 0, most_before_ = 0;  // of used_, in this window and the one before
  int taken_ = 0;                      // in this window
};

}  // namespace lattice::cpu

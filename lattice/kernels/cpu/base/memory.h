// Uninitialized arrays of plain values, from a process-wide pool.
//
// Fresh pages cost more than the work done on them (about 250 ns per 4 KiB), so large blocks are
// kept and handed out again (block_pool.h). Blocks under 64 KiB come from malloc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <span>
#include <type_traits>
#include <utility>

namespace lattice::cpu {

// 64-byte aligned block of at least `bytes`; throws std::bad_alloc. `capacity` receives its true
// size.
void* pool_take(size_t bytes, size_t* capacity);
void pool_give(void* block, size_t capacity) noexcept;
// Returns all kept blocks to the system and forgets how much was in use.
void pool_trim() noexcept;
// Bytes of the kept blocks.
size_t pool_bytes() noexcept;

// A fixed-size array of T without construction or zeroing.
template <typename T>
class Buffer {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  Buffer() = default;
  explicit Buffer(int64_t size) : size_(size) {
    if (size < 0 || static_cast<size_t>(size) > size_t{PTRDIFF_MAX} / sizeof(T))
      throw std::bad_array_new_length();
    if (size > 0)
      data_ = static_cast<T*>(pool_take(static_cast<size_t>(size) * sizeof(T), &capacity_));
  }
  Buffer(Buffer&& other) noexcept { swap(other); }
  Buffer& operator=(Buffer&& other) noexcept {
    Buffer moved(std::move(other));
    swap(moved);
    return *this;
  }
  ~Buffer() {
    if (data_) pool_give(data_, capacity_);
  }

  T* data() { return data_; }
  const T* data() const { return data_; }
  int64_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T& operator[](int64_t i) { return data_[i]; }
  const T& operator[](int64_t i) const { return data_[i]; }
  T* begin() { return data_; }
  T* end() { return data_ + size_; }
  const T* begin() const { return data_; }
  const T* end() const { return data_ + size_; }
  std::span<T> span() { return {data_, static_cast<size_t>(size_)}; }
  std::span<const T> span() const { return {data_, static_cast<size_t>(size_)}; }
  size_t nbytes() const { return static_cast<size_t>(size_) * sizeof(T); }
  // Forgets the tail; the block keeps its capacity.
  void shrink(int64_t size) { size_ = size; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    std::swap(capacity_, other.capacity_);
  }
  T* data_ = nullptr;
  int64_t size_ = 0;
  size_t capacity_ = 0;
};

}  // namespace lattice::cpu

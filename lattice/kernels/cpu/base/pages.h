// The page size that sharing memory with a GPU requires.
#pragma once

#include <cstddef>

namespace lattice::cpu {

// A buffer of Metal shares memory without a copy only if the memory starts on a page and has whole
// pages. Blocks of the pool (memory.h) of this size or more do so on Apple's systems.
inline constexpr size_t kPageBytes = size_t{16} << 10;

inline size_t whole_pages(size_t bytes) {
  return (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
}

}  // namespace lattice::cpu

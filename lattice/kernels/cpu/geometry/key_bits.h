// Small keys as bits: the distinct ones in ascending order, and the rank of each.
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>

#include "lattice/kernels/cpu/base/memory.h"

namespace lattice::cpu {

// A set of keys below 2^bits. After `count` it knows how many of them are smaller than a given one.
class KeyBits {
 public:
  explicit KeyBits(int bits)
      : words_(std::max<int64_t>((int64_t{1} << bits) / kWord, 1)), before_(words_.size()) {
    std::fill(words_.begin(), words_.end(), 0);
  }
  void mark(uint64_t key) { words_[word(key)] |= bit(key); }
  int64_t count() {
    int64_t n = 0;
    for (int64_t w = 0; w < words_.size(); ++w) {
      before_[w] = static_cast<int32_t>(n);
      if (words_[w]) n += std::popcount(words_[w]);  // a call without -mpopcnt, and most are 0
    }
    return n;
  }
  int32_t rank(uint64_t key) const {
    return before_[word(key)] + std::popcount(words_[word(key)] & (bit(key) - 1));
  }
  void list(uint64_t* keys) const {
    for (int64_t w = 0; w < words_.size(); ++w)
      for (uint64_t left = words_[w]; left; left &= left - 1)
        *keys++ = static_cast<uint64_t>(w) * kWord + static_cast<uint64_t>(std::countr_zero(left));
  }

 private:
  static constexpr int64_t kWord = 64;
  static int64_t word(uint64_t key) { return static_cast<int64_t>(key / kWord); }
  static uint64_t bit(uint64_t key) { return uint64_t{1} << (key % kWord); }
  Buffer<uint64_t> words_;
  Buffer<int32_t> before_;
};

}  // namespace lattice::cpu

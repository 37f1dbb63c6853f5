#include "lattice/kernels/cpu/coding/bit_model.h"

#include <algorithm>

#include "lattice/kernels/cpu/coding/logistic.h"

namespace lattice::cpu {
void BitCounter::update(bool bit) {
  const int target = bit ? 65535 : 0;
  slow = static_cast<uint16_t>(slow + (target - slow) * int64_t{kCounts.step[count]} / 65536);
  fast = static_cast<uint16_t>(fast + (target - fast) / 8);
  if (count < kMostCount) ++count;
}

BitMixer::BitMixer(int n, int sets)
    : n_(n), weights_(static_cast<size_t>(2 * n * sets), (1 << 16) * 5 / (4 * 2 * n)) {}

uint32_t BitMixer::zero(std::span<BitCounter* const> counters, int set) {
  chosen_ = weights_.data() + 2 * n_ * set;
  int64_t sum = 0;
  for (int i = 0; i < n_; ++i) {
    BitCounter& c = *counters[static_cast<size_t>(i)];
    counters_[static_cast<size_t>(i)] = &c;
    const int trust = kCounts.trust[c.count];
    const int32_t a = kLogistic.stretch[c.slow >> 4] * trust / 64,
                  b = kLogistic.stretch[c.fast >> 4] * trust / 64;
    inputs_[static_cast<size_t>(2 * i)] = a;
    inputs_[static_cast<size_t>(2 * i + 1)] = b;
    sum += int64_t{chosen_[2 * i]} * a + int64_t{chosen_[2 * i + 1]} * b;
  }
  const int64_t x = std::clamp<int64_t>(sum >> 16, -kDomain + 1, kDomain - 1);
  p_ = kLogistic.squash[static_cast<size_t>(x + kDomain)];
  return static_cast<uint32_t>(std::clamp(65536 - p_, kLeast, 65536 - kLeast));
}

void BitMixer::update(bool bit) {
  const int32_t error = (bit ? 65535 : 0) - p_;  // 16 bits
  for (int i = 0; i < 2 * n_; ++i)
    chosen_[i] =
        std::clamp(chosen_[i] + ((inputs_[static_cast<size_t>(i)] * (error >> 2) + 0x4000) >> 15),
                   -(1 << 20), 1 << 20);
  for (int i = 0; i < n_; ++i) counters_[static_cast<size_t>(i)]->update(bit);
}

}  // namespace lattice::cpu

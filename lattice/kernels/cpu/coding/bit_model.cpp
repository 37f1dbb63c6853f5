#include "lattice/kernels/cpu/coding/bit_model.h"

#include <algorithm>

namespace lattice::cpu {
namespace {

constexpr int kDomain = 2048;  // stretch(p) = 256 ln(p / (1 - p)) in (-kDomain, kDomain)
constexpr int kCounts = 160;

struct Tables {
  std::array<uint16_t, 2 * kDomain> squash{};  // [x + kDomain] = 65536 / (1 + exp(-x / 256))
  std::array<int16_t, 4096> stretch{};         // [p >> 4], its inverse
  std::array<uint16_t, kCounts + 1> step{};    // [count] = 65536 / (count + 1.5)
  std::array<uint8_t, kCounts + 1> trust{};    // [count], of 64
};

// exp(1/256) = 1.00391388933834757... as a fraction of 2^60, multiplied up step by step, with 60
// fractional bits.
constexpr Tables make_tables() {
  Tables t;
  __extension__ typedef unsigned __int128 u128;
  constexpr uint64_t kOne = uint64_t{1} << 48;
  constexpr u128 kStep = 282576638621015u;  // round(exp(1/256) * 2^48)
  u128 e = kOne;
  for (int x = 0; x < kDomain; ++x) {
    const u128 p = (e << 16) / (e + kOne);
    t.squash[static_cast<size_t>(kDomain + x)] =
        static_cast<uint16_t>(std::min<uint64_t>(static_cast<uint64_t>(p), 65535));
    if (x > 0)
      t.squash[static_cast<size_t>(kDomain - x)] =
          static_cast<uint16_t>(65536 - t.squash[static_cast<size_t>(kDomain + x)]);
    e = (e * kStep) >> 48;
  }
  t.squash[0] = t.squash[1];
  int x = -kDomain + 1;
  for (int p = 0; p < 4096; ++p) {
    while (x < kDomain - 1 && t.squash[static_cast<size_t>(x + kDomain)] < p * 16 + 8) ++x;
    t.stretch[static_cast<size_t>(p)] = static_cast<int16_t>(x);
  }
  for (int n = 0; n <= kCounts; ++n) {
    t.step[static_cast<size_t>(n)] = static_cast<uint16_t>(131072 / (2 * n + 3));
    t.trust[static_cast<size_t>(n)] = static_cast<uint8_t>(n == 0   ? 0
                                                           : n == 1 ? 20
                                                           : n == 2 ? 30
                                                           : n < 5  ? 40
                                                           : n < 12 ? 52
                                                           : n < 40 ? 60
                                                                    : 64);
  }
  return t;
}
const Tables kTables = make_tables();

}  // namespace

void BitCounter::update(bool bit) {
  const int target = bit ? 65535 : 0;
  slow = static_cast<uint16_t>(slow + (target - slow) * int64_t{kTables.step[count]} / 65536);
  fast = static_cast<uint16_t>(fast + (target - fast) / 8);
  if (count < kCounts) ++count;
}

BitMixer::BitMixer(int n, int sets)
    : n_(n), weights_(static_cast<size_t>(2 * n * sets), (1 << 16) * 5 / (4 * 2 * n)) {}

uint32_t BitMixer::zero(std::span<BitCounter* const> counters, int set) {
  chosen_ = weights_.data() + 2 * n_ * set;
  int64_t sum = 0;
  for (int i = 0; i < n_; ++i) {
    BitCounter& c = *counters[static_cast<size_t>(i)];
    counters_[static_cast<size_t>(i)] = &c;
    const int trust = kTables.trust[c.count];
    const int32_t a = kTables.stretch[c.slow >> 4] * trust / 64,
                  b = kTables.stretch[c.fast >> 4] * trust / 64;
    inputs_[static_cast<size_t>(2 * i)] = a;
    inputs_[static_cast<size_t>(2 * i + 1)] = b;
    sum += int64_t{chosen_[2 * i]} * a + int64_t{chosen_[2 * i + 1]} * b;
  }
  const int64_t x = std::clamp<int64_t>(sum >> 16, -kDomain + 1, kDomain - 1);
  p_ = kTables.squash[static_cast<size_t>(x + kDomain)];
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

#include "lattice/kernels/cpu/coding/logistic.h"

#include <algorithm>

namespace lattice::cpu {
namespace {

// exp(1/256) = 1.00391388933834757... as a fraction of 2^60, multiplied up step by step, with 60
// fractional bits.
constexpr LogisticTables make_logistic() {
  LogisticTables t;
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
  return t;
}

constexpr CountTables make_counts() {
  CountTables t;
  for (int n = 0; n <= kMostCount; ++n) {
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

}  // namespace

const LogisticTables kLogistic = make_logistic();
const CountTables kCounts = make_counts();

}  // namespace lattice::cpu

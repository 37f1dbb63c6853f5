// Integer tables of the logistic function, shared by the context models of both versions.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace lattice::cpu {

inline constexpr int kDomain = 2048;  // stretch(p) = 256 ln(p / (1 - p)) in (-kDomain, kDomain)
inline constexpr int kMostCount = 160;

struct LogisticTables {
  std::array<uint16_t, 2 * kDomain> squash{};  // [x + kDomain] = 65536 / (1 + exp(-x / 256))
  std::array<int16_t, 4096> stretch{};         // [p >> 4], its inverse
};
extern const LogisticTables kLogistic;
inline int squash(int x) { return kLogistic.squash[static_cast<size_t>(x + kDomain)]; }

// By how often a counter was used: its next step, of 65536, and its confidence, of 64.
struct CountTables {
  std::array<uint16_t, kMostCount + 1> step{};
  std::array<uint8_t, kMostCount + 1> trust{};
};
extern const CountTables kCounts;

}  // namespace lattice::cpu

// Adaptive probabilities of bits, mixed in the logistic domain (Mahoney 2005, "Adaptive weighing of
// context models for lossless data compression"). Integers only, tables included: encoder and
// decoder agree on every machine.
//
//   p = squash(sum_i w_i s_i),  s_i = stretch(p_i) * confidence of p_i
//   w_i += rate * s_i * (bit - p)
//
// Every context i keeps two 16-bit probabilities that the bit is 1: one whose step shrinks as 1 /
// count (down to 1/160), and one with a step of 1/8. Probabilities that reach the coder stay in
// [kLeast, 65536 - kLeast]. So a coded bit costs at least 0.0014 bits, and the bytes of a stream
// bound the number of its symbols.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

namespace lattice::cpu {

inline constexpr int kLeast = 64;

struct BitCounter {
  uint16_t slow = 32768;
  uint16_t fast = 32768;
  uint16_t count = 0;

  void update(bool bit);
};

// Mixes n counters. Tables of counters and sets of weights are owned by the caller.
class BitMixer {
 public:
  static constexpr int kMostInputs = 24;

  explicit BitMixer(int n, int sets);
  // Probability (of 65536) that the bit is 0, from these counters with this set of weights.
  uint32_t zero(std::span<BitCounter* const> counters, int set);
  // After each zero().
  void update(bool bit);

 private:
  int n_;
  std::vector<int32_t> weights_;
  int32_t* chosen_ = nullptr;
  std::array<BitCounter*, kMostInputs / 2> counters_{};
  std::array<int32_t, kMostInputs> inputs_{};
  int32_t p_ = 32768;
};

}  // namespace lattice::cpu

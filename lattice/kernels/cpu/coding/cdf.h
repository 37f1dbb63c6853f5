// Tables of cumulative frequencies. They hand probabilities to the entropy coders as integers.
//
//   c[0] = 0,  c[A] = 65536
//   c[j] = round(sum_{i<j} clip(p_i, 0, 1) * (65536 - A)) + j, clamped to [j, 65536 - A + j]
//
// Every symbol has at least 1 of 65536. Sums are float64, ascending; a tie rounds to even. c[A] is
// stored as 0.
#pragma once

#include <cstdint>
#include <string_view>

namespace lattice::cpu {

inline constexpr int64_t kMostSymbols = 65536;

// `tables` times alphabet + 1 entries: one table per row, or one for all rows.
struct CdfSpan {
  const uint16_t* data = nullptr;
  int64_t tables = 0;
  int64_t alphabet = 0;
  bool shared = false;  // table 0 serves every row

  const uint16_t* table(int64_t row) const { return shared ? data : data + row * (alphabet + 1); }
  // [start, start + size) of symbol s.
  static uint32_t start(const uint16_t* table, int64_t s) { return table[s]; }
  uint32_t size(const uint16_t* table, int64_t s) const {
    return (s + 1 == alphabet ? 65536u : table[s + 1]) - uint32_t{table[s]};
  }
  // The symbol whose interval holds `at`, at < 65536.
  int64_t find(const uint16_t* table, uint32_t at) const {
    int64_t low = 0;
    for (int64_t n = alphabet; n > 1;) {
      const int64_t half = n / 2;
      low += table[low + half] <= at ? half : 0;
      n -= half;
    }
    return low;
  }
};

// prob (rows, alphabet) -> out (rows, alphabet + 1). std::invalid_argument when a value is not
// finite.
void normalized_cdf(const float* prob, int64_t rows, int64_t alphabet, uint16_t* out,
                    std::string_view operation);

// Throws std::invalid_argument unless every table ascends strictly from 0 to 65536.
void check_cdf(const CdfSpan& cdf, std::string_view operation);

// The largest interval of all tables; with it no stream of n bits holds more than 2 n 65536 /
// (65536 - largest) symbols.
uint32_t largest_size(const CdfSpan& cdf);

}  // namespace lattice::cpu

// Symbols as a rANS stream (Duda 2013, "Asymmetric numeral systems"), interleaved (Giesen 2014).
//
//   states in [2^16, 2^32), 16-bit words
//   encode s into x:   x' = (x / size) << 16 | (x % size + start)
//   decode s from x:   slot = x & 65535, s with start <= slot < start + size,
//                      x' = size * (x >> 16) + slot - start
//
// Row i uses lane i % lanes; 32 lanes from 8192 rows on, else 1. The encoder goes backwards. Coded
// bytes: the lanes' states, then the words in the order in which the decoder takes them. A stream
// ends with every lane at 2^16 and every word taken.
//
// With one table for all rows the decoder finds symbols by look-up, eight lanes of a vector at a
// time where there are gathers.
#pragma once

#include "lattice/kernels/cpu/coding/entropy.h"

namespace lattice::cpu {

std::vector<uint8_t> rans_encode(const CdfSpan& cdf, std::span<const int32_t> symbols);
void rans_decode(const CdfSpan& cdf, const Stream& stream, std::span<int32_t> symbols,
                 std::string_view operation);

}  // namespace lattice::cpu

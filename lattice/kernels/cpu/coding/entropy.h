// Streams of symbols: the header that both entropy coders share, and the range-coded kind. rans.h
// has the other.
//
//   offset  bytes
//   0       4      "LENT"
//   4       1      version, 1
//   5       1      coder: 1 range, 2 rANS
//   6       1      lanes of rANS (1 or 32), 0 for range
//   7       1      0
//   8       8      rows
//   16      4      alphabet
//   20      4      CRC-32C of bytes 0..19 and of the coded bytes
//   24             coded bytes
//
// All numbers are little-endian. Decoders throw std::invalid_argument for anything else.
#pragma once

#include <span>
#include <vector>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/kernels/cpu/coding/cdf.h"

namespace lattice::cpu {

enum class Coder : uint8_t { range = 1, rans = 2 };

struct Stream {
  int64_t rows = 0;
  int lanes = 0;
  Bytes coded;
};
std::vector<uint8_t> write_stream(Coder coder, int lanes, int64_t rows, int64_t alphabet,
                                  Bytes coded);
// Checks everything but the symbols: checksum, coder, alphabet and rows against the tables, rows
// against the size.
Stream open_stream(Bytes data, Coder coder, const CdfSpan& cdf, std::string_view operation);

// Codes the symbols row by row with their tables, then 16 bits by which the decoder checks that it
// has the same tables. Symbols lie in the alphabet. With one table per row, reading the tables
// decides the speed; prefetching them was tried and changed nothing.
std::vector<uint8_t> range_encode(const CdfSpan& cdf, std::span<const int32_t> symbols);
void range_decode(const CdfSpan& cdf, const Stream& stream, std::span<int32_t> symbols,
                  std::string_view operation);

}  // namespace lattice::cpu

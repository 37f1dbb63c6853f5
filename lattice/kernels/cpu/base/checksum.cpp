#include "lattice/kernels/cpu/base/checksum.h"

#include <array>
#include <cstddef>

namespace lattice::cpu {
namespace {

using Table = std::array<std::array<uint32_t, 256>, 8>;

// kTable[k][b]: what byte b does to the checksum when k more bytes follow in the same step.
constexpr Table make_table() {
  Table table{};
  for (uint32_t b = 0; b < 256; ++b) {
    uint32_t v = b;
    for (int i = 0; i < 8; ++i) v = (v >> 1) ^ (v & 1 ? 0x82f63b78u : 0);
    table[0][b] = v;
  }
  for (size_t k = 1; k < 8; ++k)
    for (size_t b = 0; b < 256; ++b)
      table[k][b] = (table[k - 1][b] >> 8) ^ table[0][table[k - 1][b] & 255];
  return table;
}
constexpr Table kTable = make_table();

}  // namespace

uint32_t crc32c(Bytes data, uint32_t seed) {
  uint32_t crc = ~seed;
  const uint8_t* p = data.data();
  size_t n = data.size();
  for (; n >= 8; n -= 8, p += 8)
    crc = kTable[7][(crc ^ p[0]) & 255] ^ kTable[6][(crc >> 8 ^ p[1]) & 255] ^
          kTable[5][(crc >> 16 ^ p[2]) & 255] ^ kTable[4][(crc >> 24 ^ p[3]) & 255] ^
          kTable[3][p[4]] ^ kTable[2][p[5]] ^ kTable[1][p[6]] ^ kTable[0][p[7]];
  for (; n > 0; --n, ++p) crc = (crc >> 8) ^ kTable[0][(crc ^ *p) & 255];
  return ~crc;
}

}  // namespace lattice::cpu

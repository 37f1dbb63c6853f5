// CRC-32C (Castagnoli polynomial 0x1EDC6F41, reflected): the checksum of every stream and file
// section.
//
// It finds every error of at most 32 neighboring bits and all but one in 2^32 of the others.
#pragma once

#include <cstdint>
#include <span>

namespace lattice::cpu {

using Bytes = std::span<const uint8_t>;

// The checksum of `data`. `seed` is the checksum of what came before, so crc32c(b, crc32c(a)) is
// the checksum of a followed by b. crc32c("123456789") = 0xE3069283.
uint32_t crc32c(Bytes data, uint32_t seed = 0);

}  // namespace lattice::cpu

// Values that belong to voxels, as bytes: prediction from a near row, then an adaptive model of the
// rest.
//
//   u = zigzag(v - prediction) mod 2^(8 width), its bytes from the highest down, each as 8 bits
//   through bit_model.h
//
// The prediction is the value of the nearest row, by |dx| + |dy| + |dz|, among the 16 rows before
// it in Morton order. A row of the same batch is preferred; of equally near rows the latest counts.
// The first row has the prediction 0. Floats are compared as the integers that sort like them. The
// coding is lossless for every bit pattern, NaN included.
#pragma once

#include <span>
#include <vector>

#include "lattice/kernels/cpu/coding/bytes.h"
#include "lattice/kernels/cpu/coding/meter.h"

namespace lattice::cpu {

struct ValueKind {
  int width = 1;  // bytes: 1, 2 or 4
  bool is_float = false;
};

// sorted: rows (batch, x, y, z) in Morton order. values: rows * channels of `kind`, little-endian.
std::vector<uint8_t> encode_values(std::span<const int32_t> sorted, Bytes values, int64_t channels,
                                   ValueKind kind, Meter meter = {});
// The values; throws std::invalid_argument for other bytes. Sizes that the bytes cannot hold are
// refused before memory is allocated.
std::vector<uint8_t> decode_values(std::span<const int32_t> sorted, Bytes data, int64_t channels,
                                   ValueKind kind, std::string_view operation, Meter meter = {});

}  // namespace lattice::cpu

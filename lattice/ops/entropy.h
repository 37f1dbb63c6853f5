/// @file
/// Entropy coding of symbols with given probabilities.
///
///     c[0] = 0,  c[A] = 65536
///     c[j] = round(sum_{i<j} clip(p_i, 0, 1) * (65536 - A)) + j, clamped to [j, 65536 - A + j]
///
/// A symbol s of row r takes log2(65536 / (c[r, s + 1] - c[r, s])) bits. Coders see the integers c
/// only, so that a stream decodes on every machine. Streams carry a version, rows, alphabet and a
/// checksum (kernels/cpu/coding/entropy.h); anything else is std::invalid_argument. A table of one
/// row, or one broadcast with mx::broadcast_to, serves all rows and is much faster. Values are
/// computed at once, on the CPU whatever `s` is.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "lattice/core/names.h"

namespace lattice {

/// A stream.
using ByteString = std::vector<uint8_t>;
/// A stream that somebody else owns.
using ByteSpan = std::span<const uint8_t>;

/// (R, A) floats, 2 <= A <= 65536 -> (R, A + 1) int16 that holds uint16 bits; 65536 is stored as 0.
/// Sums are float64 by ascending i; ties round to even.
LATTICE_API mx::array normalized_cdf(const mx::array& prob, mx::StreamOrDevice s = {});

/// A stream of symbols (R,), integers in 0..A-1. cdf is (R, A + 1) or (1, A + 1), int16 or uint16.
LATTICE_API ByteString range_encode(const mx::array& cdf, const mx::array& symbols,
                                    mx::StreamOrDevice s = {});
/// (R,) int32: the symbols of a stream. Throws std::invalid_argument for bytes that are none.
LATTICE_API mx::array range_decode(const mx::array& cdf, ByteSpan data, mx::StreamOrDevice s = {});

/// The same from prob, (R, A) or (1, A), through normalized_cdf.
LATTICE_API ByteString range_encode_from_prob(const mx::array& prob, const mx::array& symbols,
                                              mx::StreamOrDevice s = {});
/// The way back.
LATTICE_API mx::array range_decode_from_prob(const mx::array& prob, ByteSpan data,
                                             mx::StreamOrDevice s = {});
/// The same with another coder, rANS, which decodes faster.
LATTICE_API ByteString rans_encode_from_prob(const mx::array& prob, const mx::array& symbols,
                                             mx::StreamOrDevice s = {});
/// The way back.
LATTICE_API mx::array rans_decode_from_prob(const mx::array& prob, ByteSpan data,
                                            mx::StreamOrDevice s = {});

}  // namespace lattice

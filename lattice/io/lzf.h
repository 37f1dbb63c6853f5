// LZF, the compression of PCD files (format of Marc Lehmann's liblzf).
//
//     000lllll  l+1 literal bytes follow
//     LLLooooo oooooooo            copy L+2 bytes from o+1 back, L in 1..6
//     111ooooo LLLLLLLL oooooooo   copy L+9 bytes
//
// A token of three bytes makes at most 264 bytes, so that a stream can grow at most 88 times. A
// larger claim is refused before memory is allocated.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace lattice::io {

// Exactly `size` bytes, or std::invalid_argument.
std::string lzf_decompress(std::string_view data, int64_t size);
// Greedy: each position copies from the latest earlier place with the same three bytes.
std::string lzf_compress(std::string_view data);

}  // namespace lattice::io

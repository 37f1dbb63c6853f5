// Safetensors files: 8 bytes with the length of a JSON header, the header, the data.
//
// The reader trusts nothing: sizes, offsets and dtypes must agree, and the data must be covered
// without gap or overlap. The writer is canonical: equal contents give equal bytes.
#pragma once

#include <mlx/array.h>

#include <cstddef>
#include <map>
#include <span>
#include <string>

#include "lattice/api.h"

namespace lattice::program {

namespace mx = mlx::core;

struct TensorFile {
  std::map<std::string, mx::array> arrays;
  std::map<std::string, std::string> notes;  // __metadata__
};

// Arrays are copied. Throws Error.
TensorFile read_tensors(std::span<const std::byte> bytes);
// The whole file. Throws Error with the path.
std::string read_bytes(const std::string& path);
// The bytes of a file. Arrays are evaluated; by size of the dtype, largest first, then by name.
LATTICE_API std::string write_tensors(const TensorFile& file);

}  // namespace lattice::program

// The text of lattice/kernels/metal/<topic>.metal, put into the library when it is built. MLX
// compiles it at run time.
//
// The text for CUDA is the same text behind kernels/cuda/prelude.cuh, which gives it the words of
// Metal. A file of kernels/metal that has a namesake in kernels/cuda is replaced by the namesake.
#pragma once

#include <iterator>
#include <span>
#include <string_view>

namespace lattice::metal {

struct Text {
  std::string_view topic;
  std::string_view metal, cuda;
};

// All topics, ascending.
std::span<const Text> texts();

// The text of one topic; throws std::invalid_argument when there is none.
const Text& text(std::string_view topic);

}  // namespace lattice::metal

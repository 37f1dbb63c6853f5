// The text of lattice/kernels/metal/<topic>.metal, put into the library when it is built. MLX
// compiles it at run time.
#pragma once

#include <iterator>
#include <span>
#include <string_view>

namespace lattice::metal {

struct Text {
  std::string_view topic;
  std::string_view text;
};

// All topics, ascending.
std::span<const Text> texts();

// The text of one topic; throws std::invalid_argument when there is none.
std::string_view text(std::string_view topic);

}  // namespace lattice::metal

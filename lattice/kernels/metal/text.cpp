#include "lattice/kernels/metal/text.h"

#include <stdexcept>
#include <string>

namespace lattice::metal {

const Text& text(std::string_view topic) {
  for (const Text& entry : texts()) {
    if (entry.topic == topic) return entry;
  }
  throw std::invalid_argument("[metal] found no kernels/metal/" + std::string(topic) +
                              ".metal, expected a known topic");
}

}  // namespace lattice::metal

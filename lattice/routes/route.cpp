#include "lattice/routes/route.h"

#include "lattice/routes/capability.h"

namespace lattice {

const char* name(Rejection::Step step) {
  static constexpr const char* kNames[] = {"device",  "family",          "relation",
                                           "storage", "shape and dtype", "capability"};
  return kNames[static_cast<int>(step)];
}

Rejection needs_metal(const Call&) {
  if (!has_metal()) return {Rejection::Step::capability, "MLX has no Metal here"};
  return {};
}

}  // namespace lattice

// The name of a coordinate set in a manager.
#pragma once

#include <cstdint>
#include <functional>

#include "lattice/core/kernel_spec.h"

namespace lattice {

struct CoordinateMapKey {
  int64_t id = 0;
  Triple stride{1, 1, 1};
  int64_t manager_id = 0;
  bool operator==(const CoordinateMapKey&) const = default;
  auto operator<=>(const CoordinateMapKey&) const = default;
};

}  // namespace lattice

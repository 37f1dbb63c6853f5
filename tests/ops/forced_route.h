// A row of the route table that is taken as long as this lives: ForcedRoute
// tiles("conv=cpu.tiles").
#pragma once

#include <cstdlib>

namespace lattice {

struct ForcedRoute {
  explicit ForcedRoute(const char* text) { setenv("LATTICE_ROUTE", text, 1); }
  ~ForcedRoute() { unsetenv("LATTICE_ROUTE"); }
};

}  // namespace lattice

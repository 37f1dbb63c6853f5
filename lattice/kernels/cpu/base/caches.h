// Sizes of this machine's data caches, for blocking. A size decides speed only, never results.
#pragma once

#include <cstdint>

namespace lattice::cpu {

struct Caches {
  int64_t first;   // bytes of one core's first-level data cache
  int64_t second;  // bytes of the second-level cache that one core may count on
};

// The system is asked once. Where it does not say, 32 KiB and 512 KiB are assumed.
const Caches& caches();

}  // namespace lattice::cpu

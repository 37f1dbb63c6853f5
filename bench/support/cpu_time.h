// CPU time of all threads of this process, in seconds: what benchmarks on a shared machine count.
#pragma once

#include <ctime>

namespace lattice::bench {

inline double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

}  // namespace lattice::bench

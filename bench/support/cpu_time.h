// CPU time of all threads of this process, in seconds: what benchmarks on a shared machine count.
#pragma once

#include <algorithm>
#include <ctime>

namespace lattice::bench {

inline double cpu_seconds() {
  timespec t;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

// The least of several runs.
template <typename F>
double best(int repeats, const F& work) {
  double least = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double begin = cpu_seconds();
    work();
    least = std::min(least, cpu_seconds() - begin);
  }
  return least;
}

}  // namespace lattice::bench

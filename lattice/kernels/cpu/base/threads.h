/// @file
/// One process-wide pool of threads. No kernel splits a sum by the number of threads, so results
/// have the same bits for any number. The number of tasks may depend on it.
#pragma once

#include <cstdint>
#include <type_traits>
#include <utility>

#include "lattice/api.h"

namespace lattice::cpu {

/// Threads that parallel_for may use, the caller included: LATTICE_NUM_THREADS, else the
/// hardware's.
LATTICE_API int thread_count();
/// n >= 1; throws std::invalid_argument otherwise. Takes effect with the next parallel_for.
LATTICE_API void set_thread_count(int n);

/// Runs body(context, i) once for each i in [0, n), in any order, on several threads; returns when
/// all are done. Tasks are handed out one at a time. The first exception is thrown again on the
/// caller's thread; tasks not begun by then are dropped. A call from inside a task runs in that
/// task's thread. Calls from several threads take turns.
LATTICE_API void parallel_run(int64_t n, void (*body)(void*, int64_t), void* context);

/// Runs body(i) once for each i in [0, n), as parallel_run does.
template <typename F>
void parallel_for(int64_t n, F&& body) {
  using Body = std::remove_reference_t<F>;
  parallel_run(
      n, [](void* context, int64_t i) { (*static_cast<Body*>(context))(i); },
      const_cast<void*>(static_cast<const void*>(&body)));
}

/// Splits [0, n) into pieces of `grain` and runs body(begin, end) on each.
template <typename F>
void parallel_range(int64_t n, int64_t grain, F&& body) {
  if (n <= grain) {
    if (n > 0) body(int64_t{0}, n);
    return;
  }
  parallel_for((n + grain - 1) / grain, [&](int64_t piece) {
    int64_t begin = piece * grain;
    body(begin, begin + grain < n ? begin + grain : n);
  });
}

}  // namespace lattice::cpu

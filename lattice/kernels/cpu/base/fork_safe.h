// The only T of the process. T has a member `mutex`.
//
// It is never destroyed: arrays may be released after static destruction began. fork() waits for
// the mutex; otherwise the child could inherit the mutex locked by a thread that the child does not
// have.
#pragma once

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace lattice::cpu {

template <typename T>
T& fork_safe() {
  static T* instance = [] {
    auto* made = new T;
#if !defined(_WIN32)
    pthread_atfork([] { fork_safe<T>().mutex.lock(); }, [] { fork_safe<T>().mutex.unlock(); },
                   [] { fork_safe<T>().mutex.unlock(); });
#endif
    return made;
  }();
  return *instance;
}

}  // namespace lattice::cpu

#include "lattice/kernels/cpu/base/caches.h"

#include <algorithm>

#if defined(__APPLE__)
#include <sys/sysctl.h>
#elif defined(__linux__)
#include <unistd.h>
#endif

namespace lattice::cpu {
namespace {

constexpr int64_t kFirst = int64_t{32} << 10;
constexpr int64_t kSecond = int64_t{512} << 10;

#if defined(__APPLE__)
int64_t ask(const char* performance_core, const char* any_core) {
  for (const char* name : {performance_core, any_core}) {
    int64_t value = 0;
    size_t size = sizeof(value);
    if (sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value > 0) return value;
  }
  return 0;
}
#endif

Caches find() {
  int64_t first = 0, second = 0;
#if defined(__APPLE__)
  first = ask("hw.perflevel0.l1dcachesize", "hw.l1dcachesize");
  // Some cores share this cache: a quarter is what one of them may count on.
  second = ask("hw.perflevel0.l2cachesize", "hw.l2cachesize") / 4;
#elif defined(_SC_LEVEL1_DCACHE_SIZE)
  first = sysconf(_SC_LEVEL1_DCACHE_SIZE);
  second = sysconf(_SC_LEVEL2_CACHE_SIZE);
#endif
  if (first <= 0) first = kFirst;
  if (second <= 0) second = kSecond;
  return {std::clamp<int64_t>(first, 16 << 10, 256 << 10),
          std::clamp<int64_t>(second, 256 << 10, 8 << 20)};
}

}  // namespace

const Caches& caches() {
  static const Caches found = find();
  return found;
}

}  // namespace lattice::cpu

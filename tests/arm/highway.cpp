// The run-time part of Highway for a machine with one instruction set. Debian has the library of
// Highway for this machine's processor only; a cross build takes the headers, compiles one target
// (HWY_COMPILE_ONLY_STATIC) and needs nothing else.
#include <hwy/base.h>
#include <hwy/targets.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>

namespace hwy {

int64_t SupportedTargets() { return HWY_STATIC_TARGET; }
void DisableTargets(int64_t) {}
void SetSupportedTargetsForTest(int64_t) {}
ChosenTarget& GetChosenTarget() {
  static ChosenTarget chosen;
  return chosen;
}

HWY_NORETURN void Abort(const char* file, int line, const char* format, ...) {
  std::fprintf(stderr, "%s:%d: ", file, line);
  va_list arguments;
  va_start(arguments, format);
  std::vfprintf(stderr, format, arguments);
  va_end(arguments);
  std::abort();
}

}  // namespace hwy

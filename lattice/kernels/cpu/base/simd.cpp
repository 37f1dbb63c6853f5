#include "lattice/kernels/cpu/base/simd.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <stdexcept>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/base/simd.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>
#include <hwy/targets.h>

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {
const char* target_name() { return hwy::TargetName(HWY_TARGET); }
}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(target_name);

namespace {

// Targets of this build that the machine has; a better target has a lower bit. DisableTargets hides
// targets, so this is read once, before any limit is set.
int64_t targets() {
  static const int64_t found = hwy::SupportedTargets() & HWY_TARGETS;
  return found;
}

// Applies LATTICE_SIMD when the library is loaded. An exception cannot be thrown there: the message
// waits for check_simd().
std::string apply_environment() {
  targets();
  const char* name = std::getenv("LATTICE_SIMD");
  if (!name) return {};
  try {
    limit_simd(name);
  } catch (const std::invalid_argument& error) {
    return error.what();
  }
  return {};
}
const std::string environment_error = apply_environment();

}  // namespace

std::string simd_names() {
  std::string names;
  for (int64_t left = targets(); left != 0; left &= left - 1)
    names += (names.empty() ? "" : ", ") + std::string(hwy::TargetName(left & -left));
  return names;
}

void limit_simd(const std::string& name) {
  std::string wanted = name;
  std::transform(wanted.begin(), wanted.end(), wanted.begin(),
                 [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  if (wanted.empty()) return hwy::DisableTargets(0);
  for (int64_t left = targets(); left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (wanted == hwy::TargetName(target)) return hwy::DisableTargets(target - 1);
  }
  throw std::invalid_argument("[LATTICE_SIMD] found \"" + name +
                              "\"; this machine and this build have " + simd_names() +
                              "; use one of these or unset LATTICE_SIMD.");
}

void check_simd() {
  if (!environment_error.empty()) throw std::invalid_argument(environment_error);
}

const char* simd_name() {
  check_simd();
  return HWY_DYNAMIC_DISPATCH(target_name)();
}

}  // namespace lattice::cpu
#endif

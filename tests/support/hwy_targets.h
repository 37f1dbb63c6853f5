// Runs a test on every instruction set that this machine and this build have.
#pragma once

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "lattice/kernels/cpu/base/simd.h"

namespace lattice::support {

template <typename F>
void on_each_target(const F& body) {
  std::istringstream names(cpu::simd_names());  // "AVX3, AVX2, SSE2"
  int count = 0;
  for (std::string name; std::getline(names >> std::ws, name, ','); ++count) {
    cpu::limit_simd(name);
    SCOPED_TRACE(name);
    ASSERT_EQ(name, cpu::simd_name());
    body();
  }
  cpu::limit_simd("");
  ASSERT_GT(count, 0);
}

}  // namespace lattice::support

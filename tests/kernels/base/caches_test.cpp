// Cache sizes are in the range that blocking expects, and the same at every call.
#include "lattice/kernels/cpu/base/caches.h"

#include <gtest/gtest.h>

namespace lattice::cpu {
namespace {

TEST(Caches, AreInRange) {
  const Caches& found = caches();
  EXPECT_GE(found.first, 16 << 10);
  EXPECT_LE(found.first, 256 << 10);
  EXPECT_GE(found.second, 256 << 10);
  EXPECT_LE(found.second, 8 << 20);
  EXPECT_EQ(&found, &caches());
}

}  // namespace
}  // namespace lattice::cpu

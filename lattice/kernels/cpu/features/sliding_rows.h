// Float32 copies of input rows whose window of positions moves on. Rows that the next window needs
// too are kept, so every row is copied about once.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <utility>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/conv_plan.h"

namespace lattice::cpu {

struct SlidingRows {
  Buffer<float> floats;
  int64_t first = 0;  // position p is at p - first
  Window held;        // positions whose rows are there

  // Forgets the rows, and makes room for n values.
  void resize(int64_t n) {
    if (floats.size() < n) floats = Buffer<float>(n + n / 4);
    held = {};
  }

  // Makes room for the rows of a window, of `stride` values, and keeps those that are there. The
  // caller copies the rows [held.hi, hi) and sets held.hi. `slack` values may be read after the
  // last row. Room for at most `most` values is made ahead of need.
  void slide(const Window& to, int64_t stride, int64_t slack, int64_t most) {
    const auto [lo, hi] = to;
    if (lo < held.lo || lo > held.hi) first = held.lo = held.hi = lo;
    const int64_t needed = (hi - lo) * stride + slack;
    if ((hi - first) * stride + slack > floats.size()) {
      Buffer<float> larger(needed > floats.size() ? std::max(needed, std::min(2 * needed, most))
                                                  : 0);
      float* moved = larger.empty() ? floats.data() : larger.data();
      if (held.hi > lo)
        std::memmove(moved, floats.data() + (lo - first) * stride,
                     static_cast<size_t>((held.hi - lo) * stride) * sizeof(float));
      if (!larger.empty()) floats = std::move(larger);
      first = lo;
    }
    held = {lo, std::max(held.hi, lo)};
  }
};

}  // namespace lattice::cpu

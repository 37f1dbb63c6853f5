#include "lattice/kernels/cpu/features/rotary.h"

#include <algorithm>
#include <cmath>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kTaskRows = 256;

template <typename T>
void rotate_rows(const RotaryShape& z, const T* x, const float* positions,
                 const Buffer<float>& frequencies, int64_t begin, int64_t end, T* out) {
  const int64_t pairs = frequencies.size(), all = pairs * z.axes;
  Buffer<float> cosines(all), sines(all);
  for (int64_t r = begin; r < end; ++r) {
    for (int64_t a = 0; a < z.axes; ++a)
      for (int64_t m = 0; m < pairs; ++m) {
        const double angle = double{positions[r * z.axes + a] * frequencies[m]};
        cosines[a * pairs + m] = static_cast<float>(std::cos(angle));
        sines[a * pairs + m] = static_cast<float>(z.inverse ? -std::sin(angle) : std::sin(angle));
      }
    for (int64_t h = 0; h < z.heads; ++h) {
      const T* from = x + (r * z.heads + h) * z.size;
      T* to = out + (r * z.heads + h) * z.size;
      for (int64_t a = 0; a < z.axes; ++a)
        for (int64_t m = 0; m < pairs; ++m) {
          const int64_t i = 2 * a * pairs + (z.halves ? m : 2 * m), j = i + (z.halves ? pairs : 1);
          const float x0 = widen(from[i]), x1 = widen(from[j]);
          const float c = cosines[a * pairs + m], s = sines[a * pairs + m];
          to[i] = narrow<T>(x0 * c - x1 * s);
          to[j] = narrow<T>(x0 * s + x1 * c);
        }
      std::copy(from + 2 * all, from + z.size, to + 2 * all);
    }
  }
}

}  // namespace

void rotary(const RotaryShape& z, const void* x, const float* positions, void* out) {
  const int64_t pairs = z.size / (2 * z.axes);
  Buffer<float> frequencies(pairs);
  for (int64_t m = 0; m < pairs; ++m)
    frequencies[m] =
        static_cast<float>(std::pow(z.base, -static_cast<double>(m) / static_cast<double>(pairs)));
  visit_float_type(z.storage, [&]<typename T>(T) {
    parallel_for((z.rows + kTaskRows - 1) / kTaskRows, [&](int64_t task) {
      rotate_rows<T>(z, static_cast<const T*>(x), positions, frequencies, task * kTaskRows,
                     std::min(z.rows, (task + 1) * kTaskRows), static_cast<T*>(out));
    });
  });
}

}  // namespace lattice::cpu

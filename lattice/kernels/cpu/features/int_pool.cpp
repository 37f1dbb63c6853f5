#include "lattice/kernels/cpu/features/int_pool.h"

#include <algorithm>
#include <cmath>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

void put(IntType out, float v, void* y, int64_t at) {
  if (out == IntType::f32) {
    static_cast<float*>(y)[at] = v;
  } else if (out == IntType::i16) {
    const auto most = static_cast<float>(int_input_most(out));
    static_cast<int16_t*>(y)[at] = static_cast<int16_t>(std::nearbyint(std::clamp(v, 0.0f, most)));
  } else {
    static_cast<uint8_t*>(y)[at] =
        static_cast<uint8_t>(std::nearbyint(std::clamp(v, 0.0f, 255.0f)));
  }
}

}  // namespace

void int_pool(const RelationLists& lists, const TileBounds& bounds, const uint8_t* x, int64_t c,
              Reduction mode, float scale, IntType out, void* y) {
  const int64_t n_k = lists.n_k();
  parallel_for(bounds.n_tiles, [&](int64_t tile) {
    const int64_t first = tile * bounds.tile, n = std::min(bounds.tile, lists.n_out - first);
    Buffer<int32_t> sums(n * c), edges(n);
    std::fill(sums.begin(), sums.end(), 0);
    std::fill(edges.begin(), edges.end(), 0);
    for (int64_t k = 0; k < n_k; ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      for (int64_t e = bounds.bounds[tile * n_k + k]; e < bounds.bounds[(tile + 1) * n_k + k];
           ++e) {
        const int64_t in = list.in_at(e), o = list.out_at(e) - first;
        const uint8_t* from = x + (lists.in_rows() ? lists.in_rows()[in] : in) * c;
        int32_t* to = sums.data() + o * c;
        ++edges[o];
        if (mode == Reduction::max)
          for (int64_t j = 0; j < c; ++j) to[j] = std::max<int32_t>(to[j], from[j]);
        else
          for (int64_t j = 0; j < c; ++j) to[j] += from[j];
      }
    }
    for (int64_t o = 0; o < n; ++o) {
      const float count = static_cast<float>(std::max(edges[o], 1));
      const float m = mode == Reduction::mean ? scale / count : mode == Reduction::max ? 1 : scale;
      const int64_t row = lists.out_rows() ? lists.out_rows()[first + o] : first + o;
      for (int64_t j = 0; j < c; ++j)
        put(out, static_cast<float>(sums[o * c + j]) * m, y, row * c + j);
    }
  });
}

}  // namespace lattice::cpu

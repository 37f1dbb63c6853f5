// The definition of int_conv, one value at a time.
#include <algorithm>
#include <cmath>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/int_conv.h"

namespace lattice::cpu {
namespace {

int32_t value_at(const void* data, IntType type, int64_t at) {
  if (type == IntType::i16) return static_cast<const int16_t*>(data)[at];
  return static_cast<const uint8_t*>(data)[at] - static_cast<int32_t>(int_zero(type));
}

float rounded(float v, float low, float high) { return std::nearbyint(std::clamp(v, low, high)); }

void put(const IntConvArgs& args, int64_t at, int32_t sum, float scale) {
  const float v = static_cast<float>(sum) * scale;
  if (args.out == IntType::f32) {
    static_cast<float*>(args.y)[at] = args.relu ? std::max(v, 0.0f) : v;
  } else if (args.out == IntType::i16) {
    static_cast<int16_t*>(args.y)[at] = static_cast<int16_t>(rounded(v, -32767, 32767));
  } else {
    const auto byte = static_cast<uint8_t>(args.out == IntType::u8 ? rounded(v, 0, 255)
                                                                   : rounded(v, -127, 127) + 128);
    static_cast<uint8_t*>(args.y)[at] = args.table ? args.table[byte] : byte;
  }
}

}  // namespace

void reference_int_conv(const RelationLists& lists, const IntLayer& layer, const IntConvArgs& args,
                        bool backwards) {
  const int64_t n_k = lists.n_k(), c_out = layer.c_out;
  std::vector<int32_t> sums(static_cast<size_t>(lists.n_out * c_out));
  for (int64_t o = 0; o < lists.n_out; ++o)
    std::copy(layer.bias, layer.bias + c_out, sums.begin() + o * c_out);
  for (int64_t i = 0; i < n_k; ++i) {
    const int64_t k = backwards ? n_k - 1 - i : i;
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    for (int64_t j = 0; j < list.size; ++j) {
      const int64_t e = backwards ? list.size - 1 - j : j;
      const int64_t in = lists.in_rows() ? lists.in_rows()[list.in_at(e)] : list.in_at(e);
      int32_t* to = sums.data() + list.out_at(e) * c_out;
      for (int64_t c = 0; c < layer.c_in; ++c) {
        const bool first = c < args.x.columns;
        const IntRows& rows = first ? args.x : args.more;
        const auto most = static_cast<int32_t>(int_input_most(layer.in));
        const int32_t x = std::clamp(
            value_at(rows.data, layer.in, in * rows.columns + (first ? c : c - args.x.columns)),
            -most, most);
        const int8_t* w = layer.w + (k * layer.c_in + c) * c_out;
        for (int64_t m = 0; m < c_out; ++m) to[m] += x * w[m];
      }
    }
  }
  for (int64_t p = 0; p < lists.n_out; ++p) {
    const int64_t row = (lists.out_rows() ? lists.out_rows()[p] : p) * c_out;
    for (int64_t m = 0; m < c_out; ++m) {
      int32_t sum = sums[static_cast<size_t>(p * c_out + m)];
      if (args.residual)
        sum += layer.factor[m] * value_at(args.residual, args.residual_type, row + m);
      put(args, row + m, sum, layer.scale[m]);
    }
  }
}

void quantize_rows(const float* x, int64_t n, int64_t c, const float* inverse, IntType type,
                   void* y) {
  const float limit = type == IntType::s8 ? 127 : static_cast<float>(int_input_most(type));
  parallel_range(n, 4096, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      for (int64_t j = i * c; j < (i + 1) * c; ++j) {
        const float v = x[j] * inverse[j - i * c];
        const float code = std::isnan(v) ? 0 : rounded(v, -limit, limit);
        if (type == IntType::s8)
          static_cast<uint8_t*>(y)[j] = static_cast<uint8_t>(code + 128);
        else
          static_cast<int16_t*>(y)[j] = static_cast<int16_t>(code);
      }
  });
}

}  // namespace lattice::cpu

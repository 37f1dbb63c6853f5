#include "lattice/kernels/cpu/features/packed.h"

#include <algorithm>
#include <cstring>

#include "lattice/kernels/cpu/base/hwy_targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/packed.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/block-inl.h"

#ifndef LATTICE_KERNELS_CPU_PACKED_CPP
#define LATTICE_KERNELS_CPU_PACKED_CPP
namespace lattice::cpu {
namespace {

// The codes and scales of one offset: word w of output channel m is codes[m * word_m + w * word_w].
template <typename T>
struct PackedBlock {
  const uint32_t* codes;
  const T* scales;
  const T* biases;
  int64_t word_m, word_w, scale_m, scale_g;

  PackedBlock(const PackedWeight& p, int64_t k) {
    const int64_t c_out = p.shape.c_out;
    const int64_t n_groups = (p.shape.in_group() + p.group_size - 1) / p.group_size;
    const int64_t n_words = n_groups * p.group_size * p.bits / 32;
    codes = p.codes + k * n_words * c_out;
    scales = static_cast<const T*>(p.scales) + k * n_groups * c_out;
    biases = static_cast<const T*>(p.biases) + k * n_groups * c_out;
    word_m = p.n_k == 1 ? n_words : 1;
    word_w = p.n_k == 1 ? 1 : c_out;
    scale_m = p.n_k == 1 ? n_groups : 1;
    scale_g = p.n_k == 1 ? 1 : c_out;
  }
};

// Eight codes of 4 bits, one in each byte.
inline uint64_t spread_nibbles(uint32_t word) {
  uint64_t v = word;
  v = (v | v << 16) & 0x0000ffff0000ffffu;
  v = (v | v << 8) & 0x00ff00ff00ff00ffu;
  return (v | v << 4) & 0x0f0f0f0f0f0f0f0fu;
}

constexpr int64_t kChunk = 16;  // codes that are spread to bytes at a time

template <int kBits>
void chunk_of_codes(const uint32_t* words, int64_t stride, uint8_t* bytes) {
  for (int64_t w = 0; w < kChunk * kBits / 32; ++w, bytes += 32 / kBits) {
    const uint32_t word = words[w * stride];
    if constexpr (kBits == 4) {
      const uint64_t eight = spread_nibbles(word);
      std::memcpy(bytes, &eight, 8);
    } else {
      std::memcpy(bytes, &word, 4);
    }
  }
}

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Rounded to T and back.
template <typename T>
HWY_INLINE Vec rounded(Vec v) {
  if constexpr (std::is_same_v<T, float>) {
    return v;
  } else {
    const Floats d;
    HWY_ALIGN T part[kLanes];
    store_all(v, d, part);
    return load(d, part);
  }
}

// scale * code + bias, not fused: the bits of a plain dequantization.
template <typename T, class I>
HWY_INLINE Vec expand(I codes, Vec scale, Vec bias) {
  const Floats d;
  return rounded<T>(hn::Add(hn::Mul(hn::ConvertTo(d, codes), scale), bias));
}

// n <= kLanes values with a stride, then zeros.
template <typename T>
HWY_INLINE Vec load_strided(const T* p, int64_t stride, int64_t n) {
  const Floats d;
  if (stride == 1) return load_until(d, p, p + n);
  HWY_ALIGN float part[kLanes] = {};
  for (int64_t j = 0; j < n; ++j) part[j] = widen(p[j * stride]);
  return hn::Load(d, part);
}
HWY_INLINE hn::Vec<hn::RebindToSigned<Floats>> load_words(const uint32_t* p, int64_t stride,
                                                          int64_t n) {
  const hn::RebindToSigned<Floats> di;
  if (stride == 1 && n == kLanes) return hn::LoadU(di, reinterpret_cast<const int32_t*>(p));
  HWY_ALIGN int32_t part[kLanes] = {};
  for (int64_t j = 0; j < n; ++j) part[j] = static_cast<int32_t>(p[j * stride]);
  return hn::Load(di, part);
}

// Lanes are output channels: a vector of words gives 32 / bits rows.
template <typename T, int kBits>
void fill_plain(const PackedWeight& p, int64_t k, int64_t column, int64_t columns, int64_t width,
                float* dst) {
  constexpr int64_t kCodes = 32 / kBits;
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const auto mask = hn::Set(di, (1 << kBits) - 1);
  const PackedBlock<T> block(p, k);
  const int64_t in_channels = p.shape.in_group();
  for (int64_t j = 0; j < width; j += kLanes) {
    const int64_t n = std::clamp<int64_t>(columns - j, 0, kLanes), room = width - j, m = column + j;
    for (int64_t first = 0; first < in_channels; first += p.group_size) {
      const int64_t at = m * block.scale_m + first / p.group_size * block.scale_g;
      // After the columns both are 0, and so is the weight.
      const Vec scale = load_strided(block.scales + at, block.scale_m, n);
      const Vec bias = load_strided(block.biases + at, block.scale_m, n);
      const int64_t end = std::min(first + p.group_size, in_channels);
      for (int64_t c = first; c < end; c += kCodes) {
        auto words =
            load_words(block.codes + m * block.word_m + c / kCodes * block.word_w, block.word_m, n);
        float* to = dst + c * width + j;
        if (end - c >= kCodes && room >= kLanes) {
          unroll<kCodes>([&](auto i) LATTICE_INLINE_LAMBDA {
            const auto codes = hn::And(hn::ShiftRight<i * kBits>(words), mask);
            hn::StoreU(expand<T>(codes, scale, bias), d, to + i * width);
          });
        } else {
          for (int64_t i = 0; i < std::min(kCodes, end - c);
               ++i, words = hn::ShiftRight<kBits>(words))
            store(expand<T>(hn::And(words, mask), scale, bias), d, to + i * width, room);
        }
      }
    }
  }
}

// Lanes are input channels: codes become bytes, then lanes, with the one scale of the row's output
// channel.
template <typename T, int kBits>
void fill_transposed(const PackedWeight& p, int64_t k, int64_t column, int64_t columns,
                     int64_t width, float* dst) {
  constexpr int64_t kCodes = 32 / kBits;
  const Floats d;
  const hn::RebindToSigned<Floats> di;
  const hn::Rebind<uint8_t, Floats> d8;
  const PackedBlock<T> block(p, k);
  const int64_t rows = p.shape.out_group(), in_channels = p.shape.in_group();
  const int64_t begin = column % in_channels, end = begin + columns;
  for (int64_t row = 0; row < rows; ++row, dst += width) {
    const int64_t m = column / in_channels * rows + row;
    std::fill(dst + columns, dst + width, 0.0f);
    for (int64_t chunk = begin / kChunk * kChunk; chunk < end; chunk += kChunk) {
      uint8_t bytes[2 * kChunk] = {};
      chunk_of_codes<kBits>(block.codes + m * block.word_m + chunk / kCodes * block.word_w,
                            block.word_w, bytes);
      const int64_t at = m * block.scale_m + chunk / p.group_size * block.scale_g;
      const Vec scale = hn::Set(d, widen(block.scales[at])),
                bias = hn::Set(d, widen(block.biases[at]));
      const int64_t stop = std::min(chunk + kChunk, end);
      for (int64_t c = std::max(chunk, begin); c < stop; c += kLanes) {
        const auto codes = hn::PromoteTo(di, hn::LoadU(d8, bytes + (c - chunk)));
        store(expand<T>(codes, scale, bias), d, dst + (c - begin), stop - c);
      }
    }
  }
}

void run_fill(const PackedWeight& p, int64_t k, int64_t column, int64_t columns, int64_t width,
              float* dst) {
  // With one channel per group the block spans groups, and both directions are the same.
  const bool transposed = p.transposed && !(p.shape.in_group() == 1 && p.shape.out_group() == 1);
  visit_float_type(p.shape.storage, [&](auto zero) {
    using T = decltype(zero);
    if (p.bits == 4)
      transposed ? fill_transposed<T, 4>(p, k, column, columns, width, dst)
                 : fill_plain<T, 4>(p, k, column, columns, width, dst);
    else
      transposed ? fill_transposed<T, 8>(p, k, column, columns, width, dst)
                 : fill_plain<T, 8>(p, k, column, columns, width, dst);
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_fill);

void PackedWeight::fill(int64_t k, int64_t column, int64_t columns, int64_t width,
                        float* dst) const {
  HWY_DYNAMIC_DISPATCH(run_fill)(*this, k, column, columns, width, dst);
}

}  // namespace lattice::cpu
#endif

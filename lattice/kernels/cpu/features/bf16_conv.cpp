// 1. Weights are packed once per call, [k][panel of 32][c / 2][32][2 values]: what the blocks of
//    int_list-inl.h read as four bytes of 32 columns.
// 2. Tasks are steps of a few tiles. For each panel the float32 sums of a step lie in a small
//    array, and list k adds its edges in blocks.
// 3. Sums get bias, norm, residual and ReLU and are rounded once.
#include "lattice/kernels/cpu/features/bf16_conv.h"

#include <stdexcept>

#if defined(__x86_64__)
#if defined(__GNUC__) && !defined(__clang__)
// GCC 12 takes the undefined vectors in its own intrinsics for mistakes.
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <cpuid.h>
#include <immintrin.h>

#include <algorithm>
#include <bit>
#include <string_view>

#include "lattice/kernels/cpu/base/simd.h"
#include "lattice/kernels/cpu/base/threads.h"

#define LATTICE_INT_TARGET __attribute__((target("avx512f,avx512vl,avx512dq,avx512bw,avx512bf16")))
#include "lattice/kernels/cpu/features/int_list-inl.h"

namespace lattice::cpu {
namespace {

struct Products {
  using V = __m512;
  static constexpr int kVectors = 2, kEdges = 6;
  static LATTICE_INT_INLINE V load(const void* p) { return _mm512_load_ps(p); }
  static LATTICE_INT_INLINE void store(V v, void* p) { _mm512_store_ps(p, v); }
  static LATTICE_INT_INLINE V add(V a, V b) { return _mm512_add_ps(a, b); }
  template <int M>
  static LATTICE_INT_INLINE void step(const uint8_t* x, const int64_t (&at)[M], const uint8_t* w,
                                      V (&sum)[M * kVectors]) {
    each<4>([&](auto s) LATTICE_INT_LAMBDA {
      __m512i b[kVectors];
      each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
        b[v] = _mm512_load_si512(w + s * 4 * kIntPanel + v * 64);
      });
      each<M>([&](auto m) LATTICE_INT_LAMBDA {
        const __m512i a = _mm512_set1_epi32(four_bytes(x + at[m] + 4 * s));
        each<kVectors>([&](auto v) LATTICE_INT_LAMBDA {
          V& to = sum[m * kVectors + v];
          to = _mm512_dpbf16_ps(to, (__m512bh)a, (__m512bh)b[v]);
        });
      });
    });
  }
};

// How the sums of one panel become rows.
struct End {
  alignas(64) float bias[kIntPanel] = {}, mean[kIntPanel] = {}, scale[kIntPanel] = {},
                    shift[kIntPanel] = {};
  const uint16_t* residual = nullptr;
  uint16_t* y = nullptr;
  int64_t columns = 0;
  bool norm = false, relu = false;

  // The rows of n positions, whose rows are order[0], order[1], ..., or first, first + 1, ...
  LATTICE_INT_TARGET void rows(const float* sums, const int32_t* order, int64_t first, int64_t n,
                               int64_t pitch) const {
    const auto mask_of = [&](int64_t c) {
      return static_cast<__mmask16>((1u << std::clamp<int64_t>(columns - c, 0, 16)) - 1);
    };
    const __mmask16 masks[2] = {mask_of(0), mask_of(16)};
    const bool whole = columns == kIntPanel;
    const End end = *this;
    const __m512 zero = _mm512_setzero_ps();
    for (int64_t p = 0; p < n; ++p, sums += kIntPanel) {
      const int64_t at = (order ? order[p] : first + p) * pitch;
      each<2>([&](auto i) LATTICE_INT_LAMBDA {
        constexpr int kAt = i * 16;
        __m512 v = _mm512_add_ps(_mm512_load_ps(sums + kAt), _mm512_load_ps(end.bias + kAt));
        if (end.norm) {
          v = _mm512_sub_ps(v, _mm512_load_ps(end.mean + kAt));
          v = _mm512_mul_ps(v, _mm512_load_ps(end.scale + kAt));
          v = _mm512_add_ps(v, _mm512_load_ps(end.shift + kAt));
        }
        if (end.residual) {
          const __m512i r =
              _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(masks[i], end.residual + at + kAt));
          v = _mm512_add_ps(v, _mm512_castsi512_ps(_mm512_slli_epi32(r, 16)));
        }
        // NaN stays NaN: only what is below 0 becomes 0.
        if (end.relu) v = _mm512_mask_mov_ps(v, _mm512_cmp_ps_mask(v, zero, _CMP_LT_OQ), zero);
        const auto rounded = (__m256i)_mm512_cvtneps_pbh(v);
        if (whole)  // masked stores of 16-bit values are slow on Zen
          _mm256_storeu_si256(reinterpret_cast<__m256i*>(end.y + at + kAt), rounded);
        else
          _mm256_mask_storeu_epi16(end.y + at + kAt, masks[i], rounded);
      });
    }
  }
};

class Bf16Conv {
 public:
  Bf16Conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args)
      : lists_(lists),
        bounds_(bounds),
        args_(args),
        c_out_(args.shape.c_out),
        row_bytes_((args.shape.c_in * 2 + 15) / 16 * 16),
        panels_((c_out_ + kIntPanel - 1) / kIntPanel) {
    const int64_t step_rows = lists.n_k() == 1 ? 64 : row_bytes_ <= 256 ? 1024 : 512;
    tiles_ = std::max<int64_t>(1, step_rows / bounds.tile);
    for (int64_t k = 0; k < lists.n_k(); ++k)
      if (!list(k).in && list(k).size == lists.n_out && lists.n_out > 0) whole_ = k;
    pack();
    x_ = static_cast<const uint8_t*>(args.x);
    if (lists.in_rows() || args.more || args.shape.c_in * 2 != row_bytes_) copy_rows();
  }

  void run() const {
    const int64_t steps = (bounds_.n_tiles + tiles_ - 1) / tiles_;
    const int64_t split = steps < 4 * thread_count() ? panels_ : 1;
    parallel_for(steps * split, [&](int64_t i) {
      const int64_t begin = i / split * tiles_, p = i % split;
      step(begin, std::min(begin + tiles_, bounds_.n_tiles), panels_ * p / split,
           panels_ * (p + 1) / split);
    });
  }

 private:
  const OffsetList& list(int64_t k) const { return lists_.lists[static_cast<size_t>(k)]; }
  int64_t block_bytes() const { return row_bytes_ * kIntPanel; }

  void pack() {
    const int64_t c_in = args_.shape.c_in;
    blocks_ = Buffer<uint8_t>(lists_.n_k() * panels_ * block_bytes());
    parallel_for(lists_.n_k() * panels_, [&](int64_t i) {
      const int64_t k = i / panels_, column = i % panels_ * kIntPanel;
      auto* to = reinterpret_cast<uint16_t*>(blocks_.data() + i * block_bytes());
      std::fill(to, to + block_bytes() / 2, uint16_t{0});
      if (list(k).size == 0) return;
      Buffer<float> rows(c_in * kIntPanel);
      args_.weight->fill(k, column, std::min(kIntPanel, c_out_ - column), kIntPanel, rows.data());
      for (int64_t c = 0; c < c_in; ++c)
        for (int64_t j = 0; j < kIntPanel; ++j) {
          const auto bits = std::bit_cast<uint32_t>(rows[c * kIntPanel + j]);
          to[(c / 2 * kIntPanel + j) * 2 + c % 2] = static_cast<uint16_t>(bits >> 16);
        }
    });
  }

  void copy_rows() {
    const auto two = static_cast<size_t>(args_.more_columns * 2),
               one = static_cast<size_t>(args_.shape.c_in * 2) - two,
               all = static_cast<size_t>(row_bytes_);
    copy_ = Buffer<uint8_t>(lists_.n_in * row_bytes_);
    const auto *x = static_cast<const uint8_t*>(args_.x),
               *more = static_cast<const uint8_t*>(args_.more);
    parallel_range(lists_.n_in, 2048, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const auto row = static_cast<size_t>(lists_.in_rows() ? lists_.in_rows()[p] : p);
        uint8_t* to = copy_.data() + p * row_bytes_;
        std::memcpy(to, x + row * one, one);
        if (more) std::memcpy(to + one, more + row * two, two);
        std::memset(to + one + two, 0, all - one - two);
      }
    });
    x_ = copy_.data();
  }

  // Tiles [t0, t1), panels [p0, p1). The list of every row with itself comes first and writes the
  // sums instead of adding to them.
  void step(int64_t t0, int64_t t1, int64_t p0, int64_t p1) const {
    const int64_t first = t0 * bounds_.tile;
    const int64_t n = std::min(t1 * bounds_.tile, lists_.n_out) - first;
    Buffer<int32_t> sums(n * kIntPanel), same(n);  // sums: the bits of float32
    for (int64_t p = 0; p < n; ++p) same[p] = static_cast<int32_t>(first + p);
    for (int64_t p = p0; p < p1; ++p) {
      if (whole_ >= 0)
        add(whole_, p, first, n, first, same.data(), sums.data());
      else
        std::fill(sums.begin(), sums.end(), 0);
      for (int64_t k = 0; k < lists_.n_k(); ++k) {
        const int64_t begin = bounds_.bounds[t0 * lists_.n_k() + k],
                      end = bounds_.bounds[t1 * lists_.n_k() + k];
        if (k != whole_ && begin < end)
          add(k, p, begin, end - begin, first, same.data(), sums.data());
      }
      finish(first, n, p, reinterpret_cast<const float*>(sums.data()));
    }
  }

  // Edges [begin, begin + n) of list k.
  void add(int64_t k, int64_t p, int64_t begin, int64_t n, int64_t first, const int32_t* same,
           int32_t* sums) const {
    alignas(64) static constexpr int32_t kZeros[kIntPanel] = {};
    const OffsetList& edges = list(k);
    const IntListCall call{.x = x_,
                           .pitch = row_bytes_,
                           .in = edges.in ? edges.in + begin : same + (begin - first),
                           .out = edges.out ? edges.out + begin : same + (begin - first),
                           .n = n,
                           .bytes = row_bytes_,
                           .w = blocks_.data() + (k * panels_ + p) * block_bytes(),
                           .sums = sums,
                           .first = static_cast<int32_t>(first),
                           .start = kZeros};
    if (k == whole_)
      cpu::list<Products, IntStart::given, Sums>(call, true);
    else
      cpu::list<Products, IntStart::sums, Sums>(call, lists_.out_once);
  }

  void finish(int64_t first, int64_t n, int64_t p, const float* sums) const {
    const int64_t column = p * kIntPanel;
    const NormAfter& norm = args_.norm;
    End end;
    end.columns = std::min(kIntPanel, c_out_ - column);
    for (int64_t c = 0; c < end.columns; ++c) {
      if (args_.bias) end.bias[c] = widen(static_cast<const bfloat_t*>(args_.bias)[column + c]);
      if (!norm.mean) continue;
      end.mean[c] = norm.mean[column + c];
      end.scale[c] = norm.scale[column + c];
      end.shift[c] = norm.shift[column + c];
    }
    end.norm = norm.mean != nullptr, end.relu = norm.relu;
    end.residual = static_cast<const uint16_t*>(norm.residual);
    if (end.residual) end.residual += column;
    end.y = static_cast<uint16_t*>(args_.y) + column;
    const int32_t* order = lists_.out_rows();
    end.rows(sums, order ? order + first : nullptr, first, n, c_out_);
  }

  const RelationLists& lists_;
  const TileBounds& bounds_;
  const ConvArgs& args_;
  int64_t c_out_, row_bytes_, panels_, tiles_ = 1;
  int64_t whole_ = -1;  // the list of every row with itself
  Buffer<uint8_t> blocks_, copy_;
  const uint8_t* x_ = nullptr;
};

}  // namespace

bool has_bf16_products() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  static const bool found = __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1) != 0;
  return found && std::string_view(simd_name()).starts_with("AVX3");
}

void bf16_conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args) {
  check_call("bf16_conv", lists, bounds, args.shape);
  if (args.shape.groups != 1 || args.shape.storage != FloatType::bf16 || args.add_shared_first)
    throw std::invalid_argument("[bf16_conv] expected bfloat16 rows and one group");
  if (!has_bf16_products())
    throw std::invalid_argument("[bf16_conv] this machine, or LATTICE_SIMD, has no AVX-512 BF16");
  Bf16Conv(lists, bounds, args).run();
}

}  // namespace lattice::cpu
#else
namespace lattice::cpu {
bool has_bf16_products() { return false; }
void bf16_conv(const RelationLists&, const TileBounds&, const ConvArgs&) {
  throw std::invalid_argument("[bf16_conv] this machine has no AVX-512 BF16");
}
}  // namespace lattice::cpu
#endif

// Blocks of edges for any way to multiply bytes. A file that names an instruction set defines
// LATTICE_INT_TARGET, the attribute of its functions, and a struct D:
//
//   V, kVectors            a vector of sums, and how many hold the 32 columns of a panel
//   kEdges                 edges of a block
//   load, store, add, mul  of V and int32
//   widen(p)               V of the uint8 or int16 values at p
//   put<kOut>(t, scale, relu, y)  the 32 sums t, scaled, clamped and rounded, to y
//   step<M>(x, at, w, sum) sum[m * kVectors + v] += 16 bytes of row x + at[m] times their weights
//
// The functions name their instruction sets themselves, because Highway's targets do not know these
// extensions in all versions that we build with.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#include "lattice/kernels/cpu/features/int_list.h"

#if defined(__GNUC__) || defined(__clang__)
#define LATTICE_INT_LAMBDA LATTICE_INT_TARGET __attribute__((always_inline))
#define LATTICE_INT_INLINE LATTICE_INT_LAMBDA inline
#else
#define LATTICE_INT_LAMBDA
#define LATTICE_INT_INLINE inline
#endif

namespace lattice::cpu {
namespace {

template <class F, int... I>
LATTICE_INT_INLINE void each_of(std::integer_sequence<int, I...>, F&& f) {
  (f(std::integral_constant<int, I>()), ...);
}
// f(0), ..., f(N - 1) with constant arguments, so that arrays of vectors live in registers.
template <int N, class F>
LATTICE_INT_INLINE void each(F&& f) {
  each_of(std::make_integer_sequence<int, N>(), f);
}

LATTICE_INT_INLINE int32_t four_bytes(const uint8_t* p) {
  int32_t bits;
  std::memcpy(&bits, p, 4);
  return bits;
}

// Hides where an address came from: see pin() of block-inl.h.
LATTICE_INT_INLINE void hide(int64_t& value) {
#if defined(__GNUC__) || defined(__clang__)
  asm("" : "+r"(value));
#endif
  (void)value;
}

template <class D>
constexpr int kLanesOf = static_cast<int>(kIntPanel) / D::kVectors;

// The range of the numbers that are stored, and what stands for 0.
template <IntType kOut>
constexpr float kMost = kOut == IntType::u8   ? 255
                        : kOut == IntType::s8 ? 127
                                              : 32767;
template <IntType kOut>
constexpr float kLeast = kOut == IntType::u8 ? 0 : -kMost<kOut>;
template <IntType kOut>
constexpr int32_t kZero = kOut == IntType::s8 ? 128 : 0;
template <IntType kOut>
using Stored = std::conditional_t<kOut == IntType::f32, float,
                                  std::conditional_t<kOut == IntType::i16, int16_t, uint8_t>>;

// The 32 sums t of one row, whose first column is value `at` of y. R: the type of the residual, or
// void.
template <class D, IntType kOut, class R>
LATTICE_INT_INLINE void end_row(const IntEnd& end, typename D::V (&t)[D::kVectors], const void* r,
                                Stored<kOut>* y) {
  if constexpr (!std::is_void_v<R>)
    each<D::kVectors>([&](auto v) LATTICE_INT_LAMBDA {
      constexpr int kAt = v * kLanesOf<D>;
      t[v] =
          D::add(t[v], D::mul(D::widen(static_cast<const R*>(r) + kAt), D::load(end.factor + kAt)));
    });
  D::template put<kOut>(t, end.scale, end.relu, y);
}

LATTICE_INT_INLINE int64_t first_value(const IntEnd& end, int64_t position) {
  return (end.order ? end.order[position] : position) * end.pitch;
}

template <class D, IntType kOut, class R>
LATTICE_INT_TARGET void end_panel(const IntEnd& given, const int32_t* sums, int64_t first,
                                  int64_t n) {
  const IntEnd end = given;
  using Residual = std::conditional_t<std::is_void_v<R>, uint8_t, R>;
  const auto columns = static_cast<size_t>(end.columns);
  constexpr int64_t kAhead = 8;
  for (int64_t p = 0; p < n; ++p, sums += kIntPanel) {
    const int64_t at = first_value(end, first + p);
    if (end.order && p + kAhead < n) {
      const int64_t ahead = first_value(end, first + p + kAhead);
      __builtin_prefetch(static_cast<const Stored<kOut>*>(end.y) + ahead);
      if (!std::is_void_v<R>)
        __builtin_prefetch(static_cast<const Residual*>(end.residual) + ahead);
    }
    const Residual* r =
        std::is_void_v<R> ? nullptr : static_cast<const Residual*>(end.residual) + at;
    Stored<kOut>* y = static_cast<Stored<kOut>*>(end.y) + at;
    typename D::V t[D::kVectors];
    each<D::kVectors>([&](auto v) LATTICE_INT_LAMBDA { t[v] = D::load(sums + v * kLanesOf<D>); });
    if (columns == kIntPanel) {
      end_row<D, kOut, R>(end, t, r, y);
    } else {
      Residual padded[kIntPanel] = {};
      Stored<kOut> made[kIntPanel];
      if (!std::is_void_v<R>) std::memcpy(padded, r, columns * sizeof(Residual));
      end_row<D, kOut, R>(end, t, padded, made);
      std::memcpy(y, made, columns * sizeof(made[0]));
    }
    if constexpr (sizeof(*y) == 1)
      if (end.table)
        for (size_t c = 0; c < columns; ++c) y[c] = end.table[y[c]];
  }
}

template <class D, IntType kOut>
IntEndKernel end_with(const IntEnd& end) {
  if (!end.residual) return end_panel<D, kOut, void>;
  return end.residual_type == IntType::i16 ? end_panel<D, kOut, int16_t>
                                           : end_panel<D, kOut, uint8_t>;
}
template <class D>
IntEndKernel end_of(const IntEnd& end) {
  switch (end.out) {
    case IntType::u8:
      return end_with<D, IntType::u8>(end);
    case IntType::s8:
      return end_with<D, IntType::s8>(end);
    case IntType::i16:
      return end_with<D, IntType::i16>(end);
    default:
      return end_with<D, IntType::f32>(end);
  }
}

// End: Sums for sums that go back to memory; otherwise the residual's type as in end_row.
struct Sums {};

template <class D, int M, IntStart kStart, class End>
LATTICE_INT_INLINE void block(const IntListCall& call, int64_t e) {
  typename D::V sum[M * D::kVectors];
  int64_t at[M];
  each<M>([&](auto m) LATTICE_INT_LAMBDA {
    at[m] = int64_t{call.in[e + m]} * call.pitch;
    const int32_t* sums = call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    each<D::kVectors>([&](auto v) LATTICE_INT_LAMBDA {
      typename D::V& to = sum[m * D::kVectors + v];
      to = D::load((kStart == IntStart::given ? call.start : sums) + v * kLanesOf<D>);
      if constexpr (kStart == IntStart::both)
        to = D::add(to, D::load(call.start + v * kLanesOf<D>));
    });
  });
  const uint8_t *x = call.x, *w = call.w;
  for (const uint8_t* end = w + call.bytes * kIntPanel; w != end; w += 16 * kIntPanel, x += 16) {
    each<M>([&](auto m) LATTICE_INT_LAMBDA { hide(at[m]); });
    D::template step<M>(x, at, w, sum);
  }
  each<M>([&](auto m) LATTICE_INT_LAMBDA {
    if constexpr (std::is_same_v<End, Sums>) {
      int32_t* to = call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
      each<D::kVectors>([&](auto v) LATTICE_INT_LAMBDA {
        D::store(sum[m * D::kVectors + v], to + v * kLanesOf<D>);
      });
    } else {
      typename D::V t[D::kVectors];
      each<D::kVectors>([&](auto v) LATTICE_INT_LAMBDA { t[v] = sum[m * D::kVectors + v]; });
      const int64_t y = first_value(*call.end, call.out[e + m]);
      const auto* r = static_cast<const uint8_t*>(call.end->residual);
      end_row<D, IntType::u8, End>(*call.end, t, r ? r + y : r,
                                   static_cast<uint8_t*>(call.end->y) + y);
    }
  });
}

template <class D, IntStart kStart, class End>
LATTICE_INT_TARGET void list(const IntListCall& given, bool once) {
  const IntListCall call = given;
  int64_t e = 0;
  if (once) {
    for (; e + D::kEdges <= call.n; e += D::kEdges) block<D, D::kEdges, kStart, End>(call, e);
    each<D::kEdges - 1>([&](auto m) LATTICE_INT_LAMBDA {
      if (call.n - e == m + 1) {
        block<D, m + 1, kStart, End>(call, e);
        e += m + 1;
      }
    });
  }
  for (; e < call.n; ++e) block<D, 1, kStart, End>(call, e);
}

template <class D>
IntListKernel list_of(const IntListForm& form) {
  if (form.end)
    return form.end->residual ? list<D, IntStart::given, uint8_t> : list<D, IntStart::given, void>;
  if (form.start == IntStart::sums) return list<D, IntStart::sums, Sums>;
  return form.start == IntStart::given ? list<D, IntStart::given, Sums>
                                       : list<D, IntStart::both, Sums>;
}

}  // namespace
}  // namespace lattice::cpu

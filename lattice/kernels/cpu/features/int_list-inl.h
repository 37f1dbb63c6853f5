// Blocks of edges for any way to multiply bytes. A file that names an instruction set defines
// LATTICE_INT_TARGET, the attribute of its functions, and a struct D:
//
//   V, kVectors            a vector of sums, and how many hold the 32 columns of a panel
//   kEdges                 edges of a block
//   load, store, add       of V and int32
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

template <class D, int M, IntStart kStart>
LATTICE_INT_INLINE void block(const IntListCall& call, int64_t e) {
  constexpr int kLanesOf = static_cast<int>(kIntPanel) / D::kVectors;
  typename D::V sum[M * D::kVectors];
  int64_t at[M];
  each<M>([&](auto m) LATTICE_INT_LAMBDA {
    at[m] = int64_t{call.in[e + m]} * call.pitch;
    const int32_t* sums = call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    each<D::kVectors>([&](auto v) LATTICE_INT_LAMBDA {
      typename D::V& to = sum[m * D::kVectors + v];
      to = D::load((kStart == IntStart::given ? call.start : sums) + v * kLanesOf);
      if constexpr (kStart == IntStart::both) to = D::add(to, D::load(call.start + v * kLanesOf));
    });
  });
  const uint8_t *x = call.x, *w = call.w;
  for (const uint8_t* end = w + call.bytes * kIntPanel; w != end; w += 16 * kIntPanel, x += 16) {
    each<M>([&](auto m) LATTICE_INT_LAMBDA { hide(at[m]); });
    D::template step<M>(x, at, w, sum);
  }
  each<M>([&](auto m) LATTICE_INT_LAMBDA {
    int32_t* to = call.sums + int64_t{call.out[e + m] - call.first} * kIntPanel;
    each<D::kVectors>(
        [&](auto v) LATTICE_INT_LAMBDA { D::store(sum[m * D::kVectors + v], to + v * kLanesOf); });
  });
}

template <class D, IntStart kStart>
LATTICE_INT_TARGET void list(const IntListCall& given, bool once) {
  const IntListCall call = given;
  int64_t e = 0;
  if (once) {
    for (; e + D::kEdges <= call.n; e += D::kEdges) block<D, D::kEdges, kStart>(call, e);
    each<D::kEdges - 1>([&](auto m) LATTICE_INT_LAMBDA {
      if (call.n - e == m + 1) {
        block<D, m + 1, kStart>(call, e);
        e += m + 1;
      }
    });
  }
  for (; e < call.n; ++e) block<D, 1, kStart>(call, e);
}

template <class D>
IntListKernel list_of(IntStart start) {
  if (start == IntStart::sums) return list<D, IntStart::sums>;
  return start == IntStart::given ? list<D, IntStart::given> : list<D, IntStart::both>;
}

}  // namespace
}  // namespace lattice::cpu

// Operations of a simdgroup of 32 threads: each is one exchange of all lanes' values.
#pragma once

#include "common.h"

namespace metal {

namespace shim {
// 8, 16, 32 bit integers, half, float and vectors of them.
template <typename T>
constexpr __constant bool lane_type =
    (integers<T> && sizeof(element<T>) <= 4 && !is_same_v<element<T>, bool>) ||
    is_same_v<element<T>, half> || is_same_v<element<T>, float>;
template <typename T>
struct Lanes {
  T value[32];
  uint mask;  // lanes that take part
  bool has(int lane) const __private { return lane >= 0 && lane < 32 && (mask >> lane & 1); }
};
template <typename T>
MSL_UNSEEN inline void exchange(T mine, thread Lanes<T>& all, uint site) {
  all.mask = msl_exchange((size_t)&mine, sizeof(T), (size_t)&all.value[0], site);
}
template <typename T, typename F>
MSL_UNSEEN inline T reduce(T mine, F f, uint site) {
  Lanes<T> all;
  exchange(mine, all, site);
  T r = mine;
  bool first = true;
  for (int i = 0; i < 32; ++i)
    if (all.has(i)) {
      r = first ? all.value[i] : f(r, all.value[i]);
      first = false;
    }
  return r;
}
template <typename T, typename F>
MSL_UNSEEN inline T scan(T mine, T r, int last, F f, uint site) {
  Lanes<T> all;
  exchange(mine, all, site);
  for (int i = 0; i <= last; ++i)
    if (all.has(i)) r = f(r, all.value[i]);
  return r;
}
template <typename T>
MSL_UNSEEN inline T pick(T mine, int lane, uint site) {
  Lanes<T> all;
  exchange(mine, all, site);
  return all.has(lane) ? all.value[lane] : mine;
}
METAL_FUNC int lane() { return (int)msl_lane(); }
}  // namespace shim

#define MSL_LANES                                                     \
  template <typename T, enable_if_t<shim::lane_type<T>, bool> = true> \
  METAL_FUNC
#define MSL_LANES_INT                                                                      \
  template <typename T, enable_if_t<shim::lane_type<T> && shim::integers<T>, bool> = true> \
  METAL_FUNC
#define MSL_REDUCE(which, name, expression)                                     \
  which T name(T d, MSL_SITE) {                                                 \
    return shim::reduce(d, [](T a, T b) -> T { return expression; }, msl_site); \
  }
MSL_REDUCE(MSL_LANES, simd_sum, a + b)
MSL_REDUCE(MSL_LANES, simd_product, a* b)
MSL_REDUCE(MSL_LANES, simd_max, max(a, b))
MSL_REDUCE(MSL_LANES, simd_min, min(a, b))
MSL_REDUCE(MSL_LANES_INT, simd_and, a& b)
MSL_REDUCE(MSL_LANES_INT, simd_or, a | b)
MSL_REDUCE(MSL_LANES_INT, simd_xor, a ^ b)
#define MSL_SCAN(name, start, last, expression)                                                \
  MSL_LANES T name(T d, MSL_SITE) {                                                            \
    return shim::scan(                                                                         \
        d, T(start), shim::lane() - last, [](T a, T b) -> T { return expression; }, msl_site); \
  }
MSL_SCAN(simd_prefix_inclusive_sum, 0, 0, a + b)
MSL_SCAN(simd_prefix_exclusive_sum, 0, 1, a + b)
MSL_SCAN(simd_prefix_inclusive_product, 1, 0, a* b)
MSL_SCAN(simd_prefix_exclusive_product, 1, 1, a* b)
#define MSL_SHUFFLE(name, source) \
  MSL_LANES T name(T d, ushort k, MSL_SITE) { return shim::pick(d, source, msl_site); }
MSL_SHUFFLE(simd_broadcast, (int)k)
MSL_SHUFFLE(simd_shuffle, (int)k)
MSL_SHUFFLE(simd_shuffle_down, shim::lane() + (int)k)
MSL_SHUFFLE(simd_shuffle_up, shim::lane() - (int)k)
MSL_SHUFFLE(simd_shuffle_xor, shim::lane() ^ (int)k)
MSL_SHUFFLE(simd_shuffle_rotate_down, (shim::lane() + (int)k) & 31)
MSL_SHUFFLE(simd_shuffle_rotate_up, (shim::lane() - (int)k) & 31)
MSL_SHUFFLE(quad_broadcast, (shim::lane() & ~3) + (int)k)
MSL_SHUFFLE(quad_shuffle, (shim::lane() & ~3) + (int)k)
MSL_SHUFFLE(quad_shuffle_xor, shim::lane() ^ ((int)k & 3))
MSL_LANES T simd_broadcast_first(T d, MSL_SITE) {
  shim::Lanes<T> all;
  shim::exchange(d, all, msl_site);
  return all.value[__builtin_ctz(all.mask)];
}
#define MSL_FILL(name, source, inside, outside)                                        \
  MSL_LANES T name(T d, shim::given<T> fill, ushort k, ushort modulo = 32, MSL_SITE) { \
    shim::Lanes<T> all, fills;                                                         \
    shim::exchange(d, all, msl_site);                                                  \
    shim::exchange((T)fill, fills, msl_site);                                          \
    const int me = shim::lane(), base = me / modulo * modulo, s = source;              \
    return inside ? all.value[s] : fills.value[outside];                               \
  }
MSL_FILL(simd_shuffle_and_fill_up, me - (int)k, s >= base, s + modulo)
MSL_FILL(simd_shuffle_and_fill_down, me + (int)k, s < base + modulo, s - modulo)
METAL_FUNC bool simd_any(bool b, MSL_SITE) { return simd_or((uint)b, msl_site) != 0; }
METAL_FUNC bool simd_all(bool b, MSL_SITE) { return simd_and((uint)b, msl_site) != 0; }

struct simd_vote {  // methods without address space: clang's temporaries have none
  typedef ulong vote_t;
  ulong bits;
  explicit operator ulong() const { return bits; }
  bool all() const { return bits == 0xffffffffu; }
  bool any() const { return bits != 0; }
};
METAL_FUNC simd_vote simd_ballot(bool b, MSL_SITE) {
  return simd_vote{(ulong)simd_or(b ? 1u << shim::lane() : 0u, msl_site)};
}
METAL_FUNC simd_vote simd_active_threads_mask(MSL_SITE) {
  return simd_vote{(ulong)simd_or(1u << shim::lane(), msl_site)};
}
METAL_FUNC bool simd_is_first(MSL_SITE) {
  return simd_min((uint)shim::lane(), msl_site) == msl_lane();
}

#define MSL_QUAD(name, expression)       \
  MSL_LANES T name(T d, MSL_SITE) {      \
    shim::Lanes<T> all;                  \
    shim::exchange(d, all, msl_site);    \
    const int first = shim::lane() & ~3; \
    T a = all.value[first];              \
    for (int i = 1; i < 4; ++i) {        \
      const T b = all.value[first + i];  \
      a = expression;                    \
    }                                    \
    return a;                            \
  }
MSL_QUAD(quad_sum, a + b)
MSL_QUAD(quad_product, a* b)
MSL_QUAD(quad_max, max(a, b))
MSL_QUAD(quad_min, min(a, b))

}  // namespace metal

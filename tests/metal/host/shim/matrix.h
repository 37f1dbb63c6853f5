// simdgroup_matrix: 8x8 numbers in 32 lanes, two in each. Which lane holds which is not documented
// by Apple: the runtime chooses (msl_matrix_place), at random or as MLX's own kernels rely on.
#pragma once

#include "vectors.h"

namespace metal {

template <typename T, int C, int R>
struct simdgroup_matrix {
  static_assert(C == 8 && R == 8, "only 8x8 simdgroup matrices exist");
  static_assert(is_same_v<T, half> || is_same_v<T, float> || is_same_v<T, bfloat>,
                "simdgroup_matrix: elements are half, bfloat or float");
  typedef vec<T, 2> storage_type;
  storage_type msl_pair;
  simdgroup_matrix() thread = default;
  explicit simdgroup_matrix(T diagonal) thread {
    for (uint j = 0; j < 2; ++j) msl_pair[j] = msl_matrix_place(j) % 9 == 0 ? diagonal : T(0);
  }
  thread storage_type& thread_elements() thread { return msl_pair; }
  const thread storage_type& thread_elements() const thread { return msl_pair; }
};
typedef simdgroup_matrix<half, 8, 8> simdgroup_half8x8;
typedef simdgroup_matrix<float, 8, 8> simdgroup_float8x8;
typedef simdgroup_matrix<bfloat, 8, 8> simdgroup_bfloat8x8;

template <typename T, int C, int R>
METAL_FUNC simdgroup_matrix<T, C, R> make_filled_simdgroup_matrix(T v) {
  simdgroup_matrix<T, C, R> m;
  m.msl_pair = vec<T, 2>(v);
  return m;
}

#define MSL_MATRIX_MEMORY(space)                                                                  \
  template <typename T, int C, int R>                                                             \
  inline void simdgroup_load(thread simdgroup_matrix<T, C, R>& m, const space T* from,            \
                             ulong stride = C, vec<ulong, 2> origin = vec<ulong, 2>(0ul),         \
                             bool turned = false) {                                               \
    for (uint j = 0; j < 2; ++j) {                                                                \
      const uint r = msl_matrix_place(j) / 8, c = msl_matrix_place(j) % 8;                        \
      m.msl_pair[j] = from[(origin.y + (turned ? c : r)) * stride + origin.x + (turned ? r : c)]; \
    }                                                                                             \
  }                                                                                               \
  template <typename T, int C, int R>                                                             \
  inline void simdgroup_store(simdgroup_matrix<T, C, R> m, space T* to, ulong stride = C,         \
                              vec<ulong, 2> origin = vec<ulong, 2>(0ul), bool turned = false) {   \
    for (uint j = 0; j < 2; ++j) {                                                                \
      const uint r = msl_matrix_place(j) / 8, c = msl_matrix_place(j) % 8;                        \
      to[(origin.y + (turned ? c : r)) * stride + origin.x + (turned ? r : c)] = m.msl_pair[j];   \
    }                                                                                             \
  }
MSL_MATRIX_MEMORY(__global)
MSL_MATRIX_MEMORY(__local)

template <typename D, typename A, typename B, typename C>
MSL_UNSEEN inline void simdgroup_multiply_accumulate(thread simdgroup_matrix<D, 8, 8>& d,
                                                     simdgroup_matrix<A, 8, 8> a,
                                                     simdgroup_matrix<B, 8, 8> b,
                                                     simdgroup_matrix<C, 8, 8> c, MSL_SITE) {
  float sums[2] = {(float)c.msl_pair.x, (float)c.msl_pair.y};
  msl_multiply_matrices((float)a.msl_pair.x, (float)a.msl_pair.y, (float)b.msl_pair.x,
                        (float)b.msl_pair.y, (size_t)&sums[0], msl_site);
  d.msl_pair.x = (D)sums[0];
  d.msl_pair.y = (D)sums[1];
}
template <typename D, typename A, typename B>
METAL_FUNC void simdgroup_multiply(thread simdgroup_matrix<D, 8, 8>& d, simdgroup_matrix<A, 8, 8> a,
                                   simdgroup_matrix<B, 8, 8> b, MSL_SITE) {
  const simdgroup_matrix<D, 8, 8> zero = make_filled_simdgroup_matrix<D, 8, 8>(D(0));
  simdgroup_multiply_accumulate(d, a, b, zero, msl_site);
}

}  // namespace metal

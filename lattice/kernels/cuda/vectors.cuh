// vectors.metal for CUDA, where an access of several values must be aligned to them. It is one
// access where the address allows it, else one per value.
#pragma once

namespace lattice {
using namespace metal;

template <typename T, int kCount>
struct alignas(sizeof(T)) Values {
  T v[kCount];
};
// The same, aligned to all its bytes or to 16.
template <typename T, int kCount>
struct alignas(kCount * sizeof(T) < 16 ? kCount * sizeof(T) : 16) Whole {
  T v[kCount];
};
template <typename T, int kCount>
METAL_FUNC bool is_whole(const T* p) {
  return (unsigned long long)p % alignof(Whole<T, kCount>) == 0;
}

template <int kCount, typename T>
METAL_FUNC Values<T, kCount> values_at(const T* p) {
  Values<T, kCount> values;
  if (is_whole<T, kCount>(p)) {
    const Whole<T, kCount> found = *(const Whole<T, kCount>*)p;
#pragma unroll
    for (int j = 0; j < kCount; ++j) values.v[j] = found.v[j];
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j) values.v[j] = p[j];
  }
  return values;
}
template <int kCount, typename T>
METAL_FUNC void put_values(T* p, Values<T, kCount> values) {
  if (is_whole<T, kCount>(p)) {
    Whole<T, kCount> whole;
#pragma unroll
    for (int j = 0; j < kCount; ++j) whole.v[j] = values.v[j];
    *(Whole<T, kCount>*)p = whole;
  } else {
#pragma unroll
    for (int j = 0; j < kCount; ++j) p[j] = values.v[j];
  }
}

}  // namespace lattice

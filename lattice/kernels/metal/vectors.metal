// Neighboring values that a thread reads or writes at once. Not a topic of its own.
//
// Arrays of a kernel may begin at any element, so their values are aligned as elements are.
// Apple's GPUs read up to four neighboring values at once all the same.
#pragma once

namespace lattice {
using namespace metal;

template <typename T, int kCount>
struct alignas(sizeof(T)) Values {
  T v[kCount];
};

template <int kCount, typename T>
METAL_FUNC Values<T, kCount> values_at(const device T* p) {
  return *(const device Values<T, kCount>*)p;
}
template <int kCount, typename T>
METAL_FUNC Values<T, kCount> values_at(const constant T* p) {
  Values<T, kCount> values;
#pragma clang loop unroll(full)
  for (int j = 0; j < kCount; ++j) values.v[j] = p[j];
  return values;
}
template <int kCount, typename T>
METAL_FUNC void put_values(device T* p, Values<T, kCount> values) {
  *(device Values<T, kCount>*)p = values;
}

}  // namespace lattice

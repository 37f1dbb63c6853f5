#include "lattice/kernels/cpu/features/reference.h"

#include <algorithm>

namespace lattice::cpu {
namespace {

int64_t row_at(const std::shared_ptr<const Buffer<int32_t>>& order, int64_t position) {
  return order ? (*order)[position] : position;
}

// The storage types round from float32; a float64 sum is rounded to that first.
template <typename T>
void round_to(const Buffer<double>& sums, T* to) {
  for (int64_t i = 0; i < sums.size(); ++i) to[i] = narrow<T>(static_cast<float>(sums[i]));
}

}  // namespace

template <typename T>
void reference_conv(const RelationLists& lists, const ReferenceConv<T>& args) {
  const auto [x, w, strides, bias, y, c_in, c_out, groups] = args;
  const int64_t in_group = c_in / groups, out_group = c_out / groups;
  Buffer<double> sums(lists.n_out * c_out);
  for (int64_t i = 0; i < sums.size(); ++i) sums[i] = bias ? double{widen(bias[i % c_out])} : 0.0;
  for (int64_t k = 0; k < lists.n_k(); ++k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    for (int64_t e = 0; e < list.size; ++e) {
      const T* row = x + row_at(lists.in_order, list.in_at(e)) * c_in;
      double* to = sums.data() + row_at(lists.out_order, list.out_at(e)) * c_out;
      for (int64_t m = 0; m < c_out; ++m)
        for (int64_t c = 0; c < in_group; ++c)
          to[m] += double{widen(row[m / out_group * in_group + c])} *
                   double{widen(w[k * strides.k + c * strides.in + m * strides.out])};
    }
  }
  round_to(sums, y);
}

template <typename T>
void reference_outer(const RelationLists& lists, const T* x, int64_t c_in, const T* g,
                     int64_t c_out, T* u, int64_t groups) {
  const int64_t in_group = c_in / groups, out_group = c_out / groups;
  Buffer<double> sums(lists.n_k() * in_group * c_out);
  std::fill(sums.begin(), sums.end(), 0.0);
  for (int64_t k = 0; k < lists.n_k(); ++k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    double* to = sums.data() + k * in_group * c_out;
    for (int64_t e = 0; e < list.size; ++e) {
      const T* row = x + row_at(lists.in_order, list.in_at(e)) * c_in;
      const T* grad = g + row_at(lists.out_order, list.out_at(e)) * c_out;
      for (int64_t c = 0; c < in_group; ++c)
        for (int64_t m = 0; m < c_out; ++m)
          to[c * c_out + m] +=
              double{widen(row[m / out_group * in_group + c])} * double{widen(grad[m])};
    }
  }
  round_to(sums, u);
}

#define LATTICE_INSTANTIATE(T)                                                                  \
  template void reference_conv(const RelationLists&, const ReferenceConv<T>&);                  \
  template void reference_outer(const RelationLists&, const T*, int64_t, const T*, int64_t, T*, \
                                int64_t);
LATTICE_INSTANTIATE(float)
LATTICE_INSTANTIATE(half_t)
LATTICE_INSTANTIATE(bfloat_t)
#undef LATTICE_INSTANTIATE

}  // namespace lattice::cpu

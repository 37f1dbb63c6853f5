#include "lattice/kernels/cpu/features/reference.h"

#include <algorithm>

namespace lattice::cpu {
namespace {

// Row `position` of x (., c).
template <typename T>
const T* row_at(const void* x, int64_t c, const int32_t* order, int64_t position) {
  return static_cast<const T*>(x) + (order ? order[position] : position) * c;
}

// The storage types round from float32; a float64 sum is rounded to that first.
template <typename T>
void round_to(const Buffer<double>& sums, void* to) {
  for (int64_t i = 0; i < sums.size(); ++i)
    static_cast<T*>(to)[i] = narrow<T>(static_cast<float>(sums[i]));
}

}  // namespace

void reference_conv(const RelationLists& lists, const DenseWeight& w, const ConvArgs& args) {
  const int64_t c_in = args.shape.c_in, c_out = args.shape.c_out;
  const int64_t in_group = args.shape.in_group(), out_group = args.shape.out_group();
  visit_float_type(args.shape.storage, [&]<typename T>(T) {
    const T *weight = static_cast<const T*>(w.data), *bias = static_cast<const T*>(args.bias);
    Buffer<double> sums(lists.n_out * c_out);
    for (int64_t i = 0; i < sums.size(); ++i) sums[i] = bias ? double{widen(bias[i % c_out])} : 0.0;
    for (int64_t k = 0; k < lists.n_k(); ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      for (int64_t e = 0; e < list.size; ++e) {
        const T* row = row_at<T>(args.x, c_in, lists.in_rows(), list.in_at(e));
        const int64_t out = list.out_at(e);
        double* to = sums.data() + (lists.out_order ? (*lists.out_order)[out] : out) * c_out;
        for (int64_t m = 0; m < c_out; ++m)
          for (int64_t c = 0; c < in_group; ++c) {
            const int64_t g = m / out_group, at = k * w.stride_k + c * w.stride_in +
                                                  g * w.stride_group + m % out_group * w.stride_out;
            to[m] += double{widen(row[g * in_group + c])} * double{widen(weight[at])};
          }
      }
    }
    round_to<T>(sums, args.y);
  });
}

void reference_outer(const RelationLists& lists, const OuterArgs& args) {
  const int64_t c_in = args.shape.c_in, c_out = args.shape.c_out;
  const int64_t in_group = args.shape.in_group(), out_group = args.shape.out_group();
  visit_float_type(args.shape.storage, [&]<typename T>(T) {
    Buffer<double> sums(lists.n_k() * in_group * c_out);
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t k = 0; k < lists.n_k(); ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      double* to = sums.data() + k * in_group * c_out;
      for (int64_t e = 0; e < list.size; ++e) {
        const T* row = row_at<T>(args.x, c_in, lists.in_rows(), list.in_at(e));
        const T* grad = row_at<T>(args.y, c_out, lists.out_rows(), list.out_at(e));
        for (int64_t c = 0; c < in_group; ++c)
          for (int64_t m = 0; m < c_out; ++m)
            to[c * c_out + m] +=
                double{widen(row[m / out_group * in_group + c])} * double{widen(grad[m])};
      }
    }
    round_to<T>(sums, args.u);
  });
}

}  // namespace lattice::cpu

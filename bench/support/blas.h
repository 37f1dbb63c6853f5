// What a good BLAS reaches: a large square product, and convolution as gather, product and scatter.
#pragma once

#if defined(LATTICE_HAS_BLAS)

#include <algorithm>
#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/geometry/relation_lists.h"
#include "lattice/routes/conv.h"

extern "C" {
void sgemm_(const char* ta, const char* tb, const int* m, const int* n, const int* k,
            const float* alpha, const float* a, const int* lda, const float* b, const int* ldb,
            const float* beta, float* c, const int* ldc);
void openblas_set_num_threads(int n);
}

namespace lattice::bench {

// c (rows, n) = a (rows, k) b (k, n), row-major.
inline void gemm(int rows, int n, int k, const float* a, const float* b, float* c) {
  const float one = 1, zero = 0;
  sgemm_("N", "N", &n, &rows, &k, &one, b, &n, a, &k, &zero, c, &n);
}

class LargeGemm {
 public:
  explicit LargeGemm(int threads) : a_(kSize * kSize, 0.5f), b_(a_), c_(a_) {
    openblas_set_num_threads(threads);
  }
  ~LargeGemm() { openblas_set_num_threads(1); }
  double flop() const { return 2.0 * kSize * kSize * kSize; }
  void run() { gemm(kSize, kSize, kSize, a_.data(), b_.data(), c_.data()); }

 private:
  static constexpr int kSize = 2048;
  std::vector<float> a_, b_, c_;
};

// y = conv(x, w) offset by offset, 1,024 edges at a time in the relation's local order, so
// gathered rows and results stay in cache: what a careful programmer writes on top of a BLAS.
// float32, one group, one thread.
inline void gather_gemm_scatter(const routes::ConvAsked& call, float* y) {
  constexpr int64_t kEdges = 1024;
  const cpu::RelationLists& lists = call.relation->lists();
  const int c_in = static_cast<int>(call.c_in), c_out = static_cast<int>(call.c_out);
  const float* x = call.x.data<float>();
  const float* w = call.weight.w.data<float>();
  const auto& strides = call.weight.w.strides();
  const auto row = [](const auto& order, int64_t p) { return order ? int64_t{(*order)[p]} : p; };
  std::vector<float> rows(static_cast<size_t>(kEdges * c_in)),
      products(static_cast<size_t>(kEdges * c_out)), weight(static_cast<size_t>(c_in * c_out));
  openblas_set_num_threads(1);
  std::fill(y, y + lists.n_out * c_out, 0.0f);
  for (int64_t k = 0; k < lists.n_k(); ++k) {
    const cpu::OffsetList& list = lists.lists[static_cast<size_t>(k)];
    for (int c = 0; c < c_in; ++c)
      for (int m = 0; m < c_out; ++m)
        weight[static_cast<size_t>(c * c_out + m)] =
            w[k * strides[0] + c * strides[1] + m * strides[2]];
    for (int64_t e = 0; e < list.size; e += kEdges) {
      const int64_t n = std::min(kEdges, list.size - e);
      for (int64_t i = 0; i < n; ++i)
        std::copy_n(x + row(lists.in_order, list.in_at(e + i)) * c_in, c_in,
                    rows.data() + i * c_in);
      gemm(static_cast<int>(n), c_out, c_in, rows.data(), weight.data(), products.data());
      for (int64_t i = 0; i < n; ++i) {
        float* to = y + row(lists.out_order, list.out_at(e + i)) * c_out;
        const float* from = products.data() + i * c_out;
        for (int m = 0; m < c_out; ++m) to[m] += from[m];
      }
    }
  }
}

}  // namespace lattice::bench

#endif

#include "lattice/kernels/cpu/pairs.h"

#include <algorithm>

#include "lattice/kernels/cpu/memory.h"
#include "lattice/kernels/cpu/targets.h"
#include "lattice/kernels/cpu/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/pairs.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/block-inl.h"

#ifndef LATTICE_KERNELS_CPU_PAIRS_CPP
#define LATTICE_KERNELS_CPU_PAIRS_CPP
namespace lattice::cpu {
namespace {

constexpr int64_t kEdgesAhead =
    2;  // matrices asked for early: the machine's own prefetcher does not know where the next one is

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Up to n values, the rest 0.
template <typename T>
HWY_INLINE Vec load_some(Floats d, const T* p, int64_t n) {
  return load_until(d, p, p + std::min<int64_t>(n, kLanes));
}

// y[m] += sum_c x[c] a[c, m]: rows of the matrix are contiguous. `ahead` is a matrix that will be read soon.
template <typename T>
HWY_INLINE void add_rows(const float* HWY_RESTRICT x, const T* HWY_RESTRICT a, const T* ahead, int64_t stride,
                         int64_t c_in, int64_t c_out, float* HWY_RESTRICT y) {
  const Floats d;
  constexpr int kVectors = 4;
  int64_t m = 0;
  for (; m + kVectors * kLanes <= c_out; m += kVectors * kLanes) {
    Vec sum[kVectors];
    unroll<kVectors>([&](auto v) LATTICE_INLINE_LAMBDA { sum[v] = hn::LoadU(d, y + m + v * kLanes); });
    for (int64_t c = 0; c < c_in; ++c) {
      prefetch_row(ahead + c * stride + m, kVectors * kLanes);
      const Vec f = hn::Set(d, x[c]);
      unroll<kVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
        sum[v] = hn::MulAdd(f, load(d, a + c * stride + m + v * kLanes), sum[v]);
      });
    }
    unroll<kVectors>([&](auto v) LATTICE_INLINE_LAMBDA { hn::StoreU(sum[v], d, y + m + v * kLanes); });
  }
  for (; m < c_out; m += kLanes) {
    Vec sum[2] = {hn::LoadU(d, y + m), hn::Zero(d)};
    for (int64_t c = 0; c < c_in; ++c) {
      prefetch_row(ahead + c * stride + m, std::min<int64_t>(c_out - m, kLanes));
      sum[c & 1] = hn::MulAdd(hn::Set(d, x[c]), load_some(d, a + c * stride + m, c_out - m), sum[c & 1]);
    }
    hn::StoreU(hn::Add(sum[0], sum[1]), d, y + m);
  }
}

// The same for a matrix whose columns are contiguous: a dot product for each m.
template <typename T>
HWY_INLINE void add_dots(const float* HWY_RESTRICT x, const T* HWY_RESTRICT a, const T* ahead, int64_t stride,
                         int64_t c_in, int64_t c_out, float* HWY_RESTRICT y) {
  const Floats d;
  for (int64_t m = 0; m < c_out; ++m) {
    const T* column = a + m * stride;
    prefetch_row(ahead + m * stride, c_in);
    Vec sum[2] = {hn::Zero(d), hn::Zero(d)};
    int64_t c = 0;
    for (; c + 2 * kLanes <= c_in; c += 2 * kLanes) {
      sum[0] = hn::MulAdd(hn::LoadU(d, x + c), load(d, column + c), sum[0]);
      sum[1] = hn::MulAdd(hn::LoadU(d, x + c + kLanes), load(d, column + c + kLanes), sum[1]);
    }
    for (; c < c_in; c += kLanes)  // x is padded with zeros
      sum[0] = hn::MulAdd(hn::LoadU(d, x + c), load_some(d, column + c, c_in - c), sum[0]);
    y[m] += hn::GetLane(hn::SumOfLanes(d, hn::Add(sum[0], sum[1])));
  }
}

template <typename T>
void apply_run(const PairEdges& edges, const PairShape& shape, const T* x, const Matrices& a, int64_t begin,
               int64_t end, T* y) {
  const Floats d;
  const int64_t G = shape.groups, c_in = shape.c_in, c_out = shape.c_out, x_stride = round_up(c_in, kLine),
                y_stride = round_up(c_out, kLine);
  const T* data = static_cast<const T*>(a.data);
  Buffer<float> floats(x_stride + kLine + G * y_stride + kLine);
  float* xs = floats.data();
  float* sums = xs + x_stride + kLine;
  const int64_t last = edges.offsets[end];
  for (int64_t r = begin; r < end; ++r) {
    std::fill(sums, sums + G * y_stride, 0.0f);
    for (int64_t e = edges.offsets[r]; e < edges.offsets[r + 1]; ++e) {
      const int64_t edge = edges.order[e];
      const T* matrix = data + edges.k[edge] * a.stride_k;
      const T* ahead = data + edges.k[edges.order[std::min(last - 1, e + kEdgesAhead)]] * a.stride_k;
      for (int64_t g = 0; g < G; ++g) {
        const T* row = x + (edges.in[edge] * G + g) * c_in;
        for (int64_t c = 0; c < x_stride; c += kLanes)
          hn::StoreU(c < c_in ? load_some(d, row + c, c_in - c) : hn::Zero(d), d, xs + c);
        if (a.stride_m == 1)
          add_rows(xs, matrix + g * a.stride_g, ahead + g * a.stride_g, a.stride_c, c_in, c_out, sums + g * y_stride);
        else
          add_dots(xs, matrix + g * a.stride_g, ahead + g * a.stride_g, a.stride_m, c_in, c_out, sums + g * y_stride);
      }
    }
    for (int64_t g = 0; g < G; ++g)
      for (int64_t m = 0; m < c_out; m += kLanes)
        store(hn::LoadU(d, sums + g * y_stride + m), d, y + (r * G + g) * c_out + m, c_out - m);
  }
}

template <typename T>
void outer_run(const PairEdges& edges, const PairShape& shape, const T* x, const T* y, int64_t begin, int64_t end,
               T* u) {
  const Floats d;
  const int64_t G = shape.groups, c_in = shape.c_in, c_out = shape.c_out;
  for (int64_t r = begin; r < end; ++r)
    for (int64_t g = 0; g < G; ++g) {
      T* matrix = u + (r * G + g) * c_in * c_out;
      for (int64_t c = 0; c < c_in; ++c)
        for (int64_t m = 0; m < c_out; m += kLanes) {
          Vec sum = hn::Zero(d);
          for (int64_t e = edges.offsets[r]; e < edges.offsets[r + 1]; ++e) {
            const int64_t edge = edges.order[e];
            const T* to = y + (edges.out[edge] * G + g) * c_out + m;
            sum =
                hn::MulAdd(hn::Set(d, widen(x[(edges.in[edge] * G + g) * c_in + c])), load_some(d, to, c_out - m), sum);
          }
          store(sum, d, matrix + c * c_out + m, c_out - m);
        }
    }
}

void run_apply(const PairEdges& edges, const PairShape& shape, const void* x, const Matrices& a, int64_t begin,
               int64_t end, void* y) {
  visit_storage(shape.storage, [&]<typename T>(T) {
    apply_run(edges, shape, static_cast<const T*>(x), a, begin, end, static_cast<T*>(y));
  });
}

void run_outer_matrices(const PairEdges& edges, const PairShape& shape, const void* x, const void* y, int64_t begin,
                        int64_t end, void* u) {
  visit_storage(shape.storage, [&]<typename T>(T) {
    outer_run(edges, shape, static_cast<const T*>(x), static_cast<const T*>(y), begin, end, static_cast<T*>(u));
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {

HWY_EXPORT(run_apply);
HWY_EXPORT(run_outer_matrices);

// Runs of groups with about equal numbers of edges and groups.
template <typename F>
void each_run(const PairEdges& edges, const F& body) {
  constexpr int64_t kGrain = 256;
  const auto cost = [&](int64_t r) { return int64_t{edges.offsets[r]} + r; };
  const int64_t runs = (cost(edges.n_groups) + kGrain - 1) / kGrain;
  const auto first = [&](int64_t run) {
    int64_t lo = 0, hi = edges.n_groups;
    while (lo < hi) {
      const int64_t mid = (lo + hi) / 2;
      if (cost(mid) < run * kGrain)
        lo = mid + 1;
      else
        hi = mid;
    }
    return lo;
  };
  parallel_for(runs, [&](int64_t run) {
    const int64_t begin = first(run), end = run + 1 == runs ? edges.n_groups : first(run + 1);
    if (begin < end) body(begin, end);
  });
}

}  // namespace

void apply_matrices(const PairEdges& edges, const PairShape& shape, const void* x, const Matrices& a, void* y) {
  each_run(edges, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_apply)(edges, shape, x, a, begin, end, y);
  });
}

void outer_matrices(const PairEdges& edges, const PairShape& shape, const void* x, const void* y, void* u) {
  each_run(edges, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_outer_matrices)(edges, shape, x, y, begin, end, u);
  });
}

}  // namespace lattice::cpu
#endif

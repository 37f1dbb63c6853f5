#include "lattice/kernels/cpu/features/per_edge.h"

#include <algorithm>
#include <type_traits>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/per_edge.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/block-inl.h"

#ifndef LATTICE_KERNELS_CPU_PAIRS_CPP
#define LATTICE_KERNELS_CPU_PAIRS_CPP
namespace lattice::cpu {
namespace {

// The number of matrices that are read at the same time: a single stream of reads does not use the
// whole bandwidth of the memory.
constexpr int kTogether = 4;

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

// Pointers to the rows of x (padded with zeros), the matrices and the products of a group of
// kTogether edges.
template <typename T>
struct Products {
  const float* x;
  int64_t x_stride;
  const T* matrix[kTogether];
  float* y;
  int64_t y_stride;
};

// y[j, m] = sum_c x[j, c] a[j][c, m]: rows of the matrices are contiguous.
template <typename T>
HWY_INLINE void multiply_rows(const Products<T>& p, int64_t stride, int64_t c_in, int64_t c_out) {
  const Floats d;
  constexpr int kVectors = 2;
  int64_t m = 0;
  for (; m + kVectors * kLanes <= c_out; m += kVectors * kLanes) {
    Vec sum[kTogether * kVectors];
    unroll<kTogether * kVectors>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
    for (int64_t c = 0; c < c_in; ++c)
      unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA {
        const Vec f = hn::Set(d, p.x[j * p.x_stride + c]);
        unroll<kVectors>([&](auto v) LATTICE_INLINE_LAMBDA {
          sum[j * kVectors + v] = hn::MulAdd(f, load(d, p.matrix[j] + c * stride + m + v * kLanes),
                                             sum[j * kVectors + v]);
        });
      });
    unroll<kTogether * kVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
      hn::StoreU(sum[i], d, p.y + i / kVectors * p.y_stride + m + i % kVectors * kLanes);
    });
  }
  for (; m < c_out; m += kLanes) {
    Vec sum[kTogether];
    unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA { sum[j] = hn::Zero(d); });
    for (int64_t c = 0; c < c_in; ++c)
      unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA {
        sum[j] = hn::MulAdd(hn::Set(d, p.x[j * p.x_stride + c]),
                            load_some(d, p.matrix[j] + c * stride + m, c_out - m), sum[j]);
      });
    unroll<kTogether>(
        [&](auto j) LATTICE_INLINE_LAMBDA { hn::StoreU(sum[j], d, p.y + j * p.y_stride + m); });
  }
}

// The same for matrices whose columns are contiguous: a dot product for each m.
template <typename T>
HWY_INLINE void multiply_dots(const Products<T>& p, int64_t stride, int64_t c_in, int64_t c_out) {
  const Floats d;
  for (int64_t m = 0; m < c_out; ++m) {
    Vec sum[kTogether];
    unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA { sum[j] = hn::Zero(d); });
    int64_t c = 0;
    for (; c + kLanes <= c_in; c += kLanes)
      unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA {
        sum[j] = hn::MulAdd(hn::LoadU(d, p.x + j * p.x_stride + c),
                            load(d, p.matrix[j] + m * stride + c), sum[j]);
      });
    if (c < c_in)
      unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA {
        sum[j] = hn::MulAdd(hn::LoadU(d, p.x + j * p.x_stride + c),
                            load_some(d, p.matrix[j] + m * stride + c, c_in - c), sum[j]);
      });
    unroll<kTogether>([&](auto j) LATTICE_INLINE_LAMBDA {
      p.y[j * p.y_stride + m] = hn::GetLane(hn::SumOfLanes(d, sum[j]));
    });
  }
}

// The products of kTogether edges are computed together, even if they go to different rows, and are
// then added to their rows in order.
template <typename T>
void apply_run(const PerEdgeEdges& edges, const ConvShape& shape, const T* x, const Matrices& a,
               int64_t begin, int64_t end, T* y) {
  const Floats d;
  const int64_t G = shape.groups, c_in = shape.in_group(), c_out = shape.out_group(),
                x_stride = round_up(c_in, kLine), y_stride = round_up(c_out, kLine),
                width = G * y_stride;
  const T* data = static_cast<const T*>(a.data);
  Buffer<float> floats(kTogether * x_stride + (kTogether + 1) * width);
  float* xs = floats.data();
  float* products = xs + kTogether * x_stride;
  float* sums = products + kTogether * width;
  const int64_t last = edges.offsets[end];
  int64_t made = edges.offsets[begin];  // products of edges before this one exist
  const auto make = [&] {
    for (int64_t g = 0; g < G; ++g) {
      Products<T> p{xs, x_stride, {}, products + g * y_stride, width};
      for (int j = 0; j < kTogether; ++j) {
        const int64_t edge =
            edges.order[std::min(last - 1, made + j)];  // past the end the last one again
        p.matrix[j] = data + edges.k[edge] * a.stride_k + g * a.stride_g;
        const T* row = x + (edges.in[edge] * G + g) * c_in;
        for (int64_t c = 0; c < x_stride; c += kLanes)
          hn::StoreU(c < c_in ? load_some(d, row + c, c_in - c) : hn::Zero(d), d,
                     xs + j * x_stride + c);
      }
      if (a.stride_m == 1)
        multiply_rows(p, a.stride_c, c_in, c_out);
      else
        multiply_dots(p, a.stride_m, c_in, c_out);
    }
    made += kTogether;
  };
  for (int64_t r = begin; r < end; ++r) {
    std::fill(sums, sums + width, 0.0f);
    for (int64_t e = edges.offsets[r]; e < edges.offsets[r + 1]; ++e) {
      if (e == made) make();
      const float* product = products + (e - edges.offsets[begin]) % kTogether * width;
      for (int64_t i = 0; i < width; i += kLanes)
        hn::StoreU(hn::Add(hn::LoadU(d, sums + i), hn::LoadU(d, product + i)), d, sums + i);
    }
    for (int64_t g = 0; g < G; ++g)
      for (int64_t m = 0; m < c_out; m += kLanes)
        store(hn::LoadU(d, sums + g * y_stride + m), d, y + (r * G + g) * c_out + m, c_out - m);
  }
}

// Writes n values to any address past the caches: memory that is written once and not read soon
// need not be fetched first.
template <typename T>
HWY_INLINE void write_past(const T* HWY_RESTRICT from, int64_t n, T* HWY_RESTRICT to) {
  // Vectors of bits: NEON has none of the 16-bit float types.
  using Bits = std::conditional_t<sizeof(T) == 2, uint16_t, uint32_t>;
  static_assert(sizeof(T) == sizeof(Bits));
  const hn::ScalableTag<Bits> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto bytes = static_cast<int64_t>(lanes * static_cast<int64_t>(sizeof(T)));
  const int64_t odd =
      static_cast<int64_t>(reinterpret_cast<uintptr_t>(to) % static_cast<uintptr_t>(bytes));
  int64_t i = std::min(n, odd ? (bytes - odd) / static_cast<int64_t>(sizeof(T)) : 0);
  std::copy_n(from, i, to);
  for (; i + lanes <= n; i += lanes)
    hn::Stream(hn::LoadU(d, reinterpret_cast<const Bits*>(from + i)), d,
               reinterpret_cast<Bits*>(to + i));
  std::copy_n(from + i, n - i, to + i);
}

template <typename T>
void outer_run(const PerEdgeEdges& edges, const ConvShape& shape, const T* x, const T* y,
               int64_t begin, int64_t end, T* u) {
  const Floats d;
  const int64_t G = shape.groups, c_in = shape.in_group(), c_out = shape.out_group(),
                size = c_in * c_out, stride = round_up(c_out, kLine);
  Buffer<float> floats((c_in + 1) * stride);
  float *sums = floats.data(), *ys = sums + c_in * stride;
  Buffer<T> made(size);
  for (int64_t r = begin; r < end; ++r)
    for (int64_t g = 0; g < G; ++g) {
      std::fill(sums, ys, 0.0f);
      for (int64_t e = edges.offsets[r]; e < edges.offsets[r + 1]; ++e) {
        const int64_t edge = edges.order[e];
        const T* to = y + (edges.out[edge] * G + g) * c_out;
        const T* from = x + (edges.in[edge] * G + g) * c_in;
        for (int64_t m = 0; m < c_out; m += kLanes)
          hn::StoreU(load_some(d, to + m, c_out - m), d, ys + m);
        for (int64_t c = 0; c < c_in; ++c) {
          const Vec f = hn::Set(d, widen(from[c]));
          float* sum = sums + c * stride;
          for (int64_t m = 0; m < c_out; m += kLanes)
            hn::StoreU(hn::MulAdd(f, hn::LoadU(d, ys + m), hn::LoadU(d, sum + m)), d, sum + m);
        }
      }
      for (int64_t c = 0; c < c_in; ++c)
        for (int64_t m = 0; m < c_out; m += kLanes)
          store(hn::LoadU(d, sums + c * stride + m), d, made.data() + c * c_out + m, c_out - m);
      write_past(made.data(), size, u + (r * G + g) * size);
    }
  hwy::FlushStream();
}

void run_apply(const PerEdgeEdges& edges, const ConvShape& shape, const void* x, const Matrices& a,
               int64_t begin, int64_t end, void* y) {
  visit_float_type(shape.storage, [&]<typename T>(T) {
    apply_run(edges, shape, static_cast<const T*>(x), a, begin, end, static_cast<T*>(y));
  });
}

void run_outer_matrices(const PerEdgeEdges& edges, const ConvShape& shape, const void* x,
                        const void* y, int64_t begin, int64_t end, void* u) {
  visit_float_type(shape.storage, [&]<typename T>(T) {
    outer_run(edges, shape, static_cast<const T*>(x), static_cast<const T*>(y), begin, end,
              static_cast<T*>(u));
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
void each_run(const PerEdgeEdges& edges, const F& body) {
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

void apply_matrices(const PerEdgeEdges& edges, const ConvShape& shape, const void* x,
                    const Matrices& a, void* y) {
  each_run(edges, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_apply)(edges, shape, x, a, begin, end, y);
  });
}

void outer_matrices(const PerEdgeEdges& edges, const ConvShape& shape, const void* x, const void* y,
                    void* u) {
  each_run(edges, [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(run_outer_matrices)(edges, shape, x, y, begin, end, u);
  });
}

}  // namespace lattice::cpu
#endif

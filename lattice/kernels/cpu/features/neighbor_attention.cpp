#include "lattice/kernels/cpu/features/neighbor_attention.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/neighbor_attention.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/exp-inl.h"
#include "lattice/kernels/cpu/features/lane_sum-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// The number of rows of one task.
constexpr int64_t kTaskRows = 128;
constexpr float kMost = std::numeric_limits<float>::infinity();

float exp_of(float x) {
  const Floats d;
  return hn::GetLane(exp_vector(d, hn::Set(d, x)));
}

// One row of (heads, size) as float32 in memory that is padded to whole lines per head.
struct Padded {
  int64_t heads, size, pitch;
  Padded(int64_t n_heads, int64_t head_size)
      : heads(n_heads), size(head_size), pitch(round_up(head_size, kLine)) {}
  int64_t row() const { return heads * pitch; }
  template <typename T>
  void read(const T* from, const T* end, float* to) const {
    const Floats d;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t j = 0; j < pitch; j += kLanes) {
        const Vec x = j < size ? load_until(d, from + h * size + j, end) : hn::Zero(d);
        const int64_t left = std::clamp<int64_t>(size - j, 0, kLanes);
        hn::Store(hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(left)), x), d,
                  to + h * pitch + j);
      }
  }
  template <typename T>
  void write(const float* from, const float* factors, T* to) const {
    const Floats d;
    for (int64_t h = 0; h < heads; ++h)
      for (int64_t j = 0; j < size; j += kLanes)
        store(hn::Mul(hn::Set(d, factors[h]), hn::Load(d, from + h * pitch + j)), d,
              to + h * size + j, std::min(kLanes, size - j));
  }
};

// <a, b> of one head: a is padded, b is read in place; lanes of b beyond the head are multiplied by
// zeros.
template <typename T>
HWY_INLINE float dot(const float* HWY_RESTRICT a, const T* HWY_RESTRICT b, const T* b_end,
                     int64_t size) {
  const Floats d;
  Vec sum[kSumVectors];
  unroll<kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA { sum[i] = hn::Zero(d); });
  for (int64_t j = 0; j < size; j += kLine)
    unroll<kSumVectors>([&](auto i) LATTICE_INLINE_LAMBDA {
      const int64_t at = j + i * kLanes;
      if (at + kLanes <= size) {
        sum[i] = hn::MulAdd(hn::Load(d, a + at), load(d, b + at), sum[i]);
      } else if (at < size) {
        const Vec x = hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(size - at)),
                                         load_until(d, b + at, b_end));
        sum[i] = hn::MulAdd(hn::Load(d, a + at), x, sum[i]);
      }
    });
  return total_of(sum);
}

// to += w b for one head; what is written beyond the head is not read later.
template <typename T>
HWY_INLINE void add_scaled(float w, const T* HWY_RESTRICT b, const T* b_end, int64_t size,
                           float* HWY_RESTRICT to) {
  const Floats d;
  const Vec by = hn::Set(d, w);
  int64_t j = 0;
  for (; j + kLanes <= size; j += kLanes)
    hn::Store(hn::MulAdd(by, load(d, b + j), hn::Load(d, to + j)), d, to + j);
  if (j < size)
    hn::Store(hn::MulAdd(by, load_until(d, b + j, b_end), hn::Load(d, to + j)), d, to + j);
}

// A call with the types of its rows.
template <typename T>
struct Edges {
  const NeighborAttention& a;
  const T *q, *k, *v, *q_end, *k_end, *v_end;
  int64_t row;
  explicit Edges(const NeighborAttention& given)
      : a(given),
        q(static_cast<const T*>(a.q)),
        k(static_cast<const T*>(a.k)),
        v(static_cast<const T*>(a.v)),
        q_end(q + (q ? a.queries * a.heads * a.size : 0)),
        k_end(k + (k ? a.sources * a.heads * a.size : 0)),
        v_end(v + a.sources * a.heads * a.size),
        row(a.heads * a.size) {}
  void prefetch(const T* x, int64_t e, int64_t last) const {
    if (x && e + 4 < last) prefetch_row(x + a.rows[e + 4] * row, row);
  }
  // Logits of edge e for all heads; query is padded and scaled.
  void logits(const Padded& shape, const float* query, int64_t e, float* to) const {
    for (int64_t h = 0; h < a.heads; ++h) {
      float x = a.bias ? a.bias[e * a.heads + h] : 0.0f;
      if (q) x += dot(query + h * shape.pitch, k + a.rows[e] * row + h * a.size, k_end, a.size);
      to[h] = x;
    }
  }
};

template <typename T>
void forward_rows(const NeighborAttention& a, int64_t begin, int64_t end, T* out, float* lse) {
  const Edges<T> x(a);
  const Padded shape(a.heads, a.size);
  int64_t most = 0;
  for (int64_t i = begin; i < end; ++i)
    most = std::max<int64_t>(most, a.offsets[i + 1] - a.offsets[i]);
  Buffer<float> query(shape.row()), sum(shape.row()), weights(most * a.heads), top(a.heads),
      total(a.heads), factor(a.heads);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = a.offsets[i], last = a.offsets[i + 1];
    std::fill(sum.begin(), sum.end(), 0.0f);
    std::fill(top.begin(), top.end(), -kMost);
    std::fill(total.begin(), total.end(), 0.0f);
    if (x.q) {
      shape.read(x.q + i * x.row, x.q_end, query.data());
      for (float& value : query) value *= a.scale;
    }
    for (int64_t e = first; e < last; ++e) {
      x.prefetch(x.k, e, last);
      float* w = weights.data() + (e - first) * a.heads;
      x.logits(shape, query.data(), e, w);
      for (int64_t h = 0; h < a.heads; ++h) top[h] = w[h] > top[h] ? w[h] : top[h];
    }
    for (int64_t e = first; e < last; ++e) {
      x.prefetch(x.v, e, last);
      float* w = weights.data() + (e - first) * a.heads;
      for (int64_t h = 0; h < a.heads; ++h) {
        const float weight = exp_of(w[h] - (top[h] == -kMost ? 0.0f : top[h]));
        total[h] += weight;
        add_scaled(weight, x.v + a.rows[e] * x.row + h * a.size, x.v_end, a.size,
                   sum.data() + h * shape.pitch);
      }
    }
    for (int64_t h = 0; h < a.heads; ++h) {
      // A sum of 0 means that no edge was seen. NaN stays NaN.
      lse[i * a.heads + h] = total[h] == 0.0f ? kMost : top[h] + std::log(total[h]);
      factor[h] = total[h] == 0.0f ? 0.0f : 1.0f / total[h];
    }
    shape.write(sum.data(), factor.data(), out + i * x.row);
  }
}

// Weights and derivatives of the logits of all edges of some queries, and dq.
template <typename T>
void backward_queries(const NeighborAttention& a, const NeighborAttentionGradients& y,
                      int64_t begin, int64_t end, float* weights, float* slopes) {
  const Edges<T> x(a);
  const Padded shape(a.heads, a.size);
  const T* g = static_cast<const T*>(y.g);
  const T* o = static_cast<const T*>(y.out);
  const T *g_end = g + a.queries * x.row, *o_end = o + a.queries * x.row;
  Buffer<float> query(shape.row()), slope(shape.row()), sum(shape.row()), delta(a.heads),
      scales(a.heads);
  std::fill(scales.begin(), scales.end(), a.scale);
  for (int64_t i = begin; i < end; ++i) {
    const int64_t first = a.offsets[i], last = a.offsets[i + 1];
    if (x.q) {
      shape.read(x.q + i * x.row, x.q_end, query.data());
      for (float& value : query) value *= a.scale;
      std::fill(sum.begin(), sum.end(), 0.0f);
    }
    shape.read(g + i * x.row, g_end, slope.data());
    for (int64_t h = 0; h < a.heads; ++h)
      delta[h] = dot(slope.data() + h * shape.pitch, o + i * x.row + h * a.size, o_end, a.size);
    for (int64_t e = first; e < last; ++e) {
      x.prefetch(x.k, e, last);
      x.prefetch(x.v, e, last);
      float* w = weights + e * a.heads;
      x.logits(shape, query.data(), e, w);
      for (int64_t h = 0; h < a.heads; ++h) {
        w[h] = exp_of(w[h] - y.lse[i * a.heads + h]);
        const float dp = dot(slope.data() + h * shape.pitch, x.v + a.rows[e] * x.row + h * a.size,
                             x.v_end, a.size);
        const float ds = slopes[e * a.heads + h] = w[h] * (dp - delta[h]);
        if (x.q)
          add_scaled(ds, x.k + a.rows[e] * x.row + h * a.size, x.k_end, a.size,
                     sum.data() + h * shape.pitch);
      }
    }
    if (x.q) shape.write(sum.data(), scales.data(), static_cast<T*>(y.dq) + i * x.row);
  }
}

// dk and dv of some sources.
template <typename T>
void backward_sources(const NeighborAttention& a, const NeighborAttentionGradients& y,
                      int64_t begin, int64_t end, const float* weights, const float* slopes) {
  const Edges<T> x(a);
  const Padded shape(a.heads, a.size);
  const T* g = static_cast<const T*>(y.g);
  const T* g_end = g + a.queries * x.row;
  Buffer<float> dk(shape.row()), dv(shape.row()), scales(a.heads), ones(a.heads);
  std::fill(scales.begin(), scales.end(), a.scale);
  std::fill(ones.begin(), ones.end(), 1.0f);
  for (int64_t j = begin; j < end; ++j) {
    std::fill(dk.begin(), dk.end(), 0.0f);
    std::fill(dv.begin(), dv.end(), 0.0f);
    for (int64_t at = y.back_offsets[j]; at < y.back_offsets[j + 1]; ++at) {
      const int64_t e = y.back_edges[at], i = y.edge_queries[e];
      for (int64_t h = 0; h < a.heads; ++h) {
        add_scaled(weights[e * a.heads + h], g + i * x.row + h * a.size, g_end, a.size,
                   dv.data() + h * shape.pitch);
        if (x.q)
          add_scaled(slopes[e * a.heads + h], x.q + i * x.row + h * a.size, x.q_end, a.size,
                     dk.data() + h * shape.pitch);
      }
    }
    shape.write(dv.data(), ones.data(), static_cast<T*>(y.dv) + j * x.row);
    if (x.q) shape.write(dk.data(), scales.data(), static_cast<T*>(y.dk) + j * x.row);
  }
}

void each_block(int64_t rows, const auto& body) {
  parallel_for((rows + kTaskRows - 1) / kTaskRows, [&](int64_t block) {
    body(block * kTaskRows, std::min(rows, (block + 1) * kTaskRows));
  });
}

void run_neighbors(const NeighborAttention& a, void* out, float* lse) {
  visit_float_type(a.storage, [&]<typename T>(T) {
    each_block(a.queries, [&](int64_t begin, int64_t end) {
      forward_rows<T>(a, begin, end, static_cast<T*>(out), lse);
    });
  });
}

void run_neighbor_gradients(const NeighborAttention& a, const NeighborAttentionGradients& y) {
  const int64_t edges = a.offsets[a.queries];
  Buffer<float> weights(edges * a.heads), own(y.dbias ? 0 : edges * a.heads);
  float* slopes = y.dbias ? y.dbias : own.data();
  visit_float_type(a.storage, [&]<typename T>(T) {
    each_block(a.queries, [&](int64_t begin, int64_t end) {
      backward_queries<T>(a, y, begin, end, weights.data(), slopes);
    });
    each_block(a.sources, [&](int64_t begin, int64_t end) {
      backward_sources<T>(a, y, begin, end, weights.data(), slopes);
    });
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
namespace {
HWY_EXPORT(run_neighbors);
HWY_EXPORT(run_neighbor_gradients);
}  // namespace

void neighbor_attention(const NeighborAttention& a, void* out, float* lse) {
  HWY_DYNAMIC_DISPATCH(run_neighbors)(a, out, lse);
}

void neighbor_attention_gradients(const NeighborAttention& a, const NeighborAttentionGradients& y) {
  HWY_DYNAMIC_DISPATCH(run_neighbor_gradients)(a, y);
}

}  // namespace lattice::cpu
#endif

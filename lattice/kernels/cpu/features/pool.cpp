#include "lattice/kernels/cpu/features/pool.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "lattice/kernels/cpu/base/threads.h"

namespace lattice::cpu {
namespace {

float weight_of(const float* weights, int64_t k) { return weights ? weights[k] : 1.0f; }

int64_t row_at(const std::shared_ptr<const Buffer<int32_t>>& order, int64_t position) {
  return order ? (*order)[position] : position;
}

// Sum of the weights of the edges of each input position, as one factor per position.
Buffer<float> in_factors(const RelationLists& lists, const float* weights) {
  Buffer<float> factors(lists.n_in);
  std::fill(factors.begin(), factors.end(), 0.0f);
  for (int64_t k = 0; k < lists.n_k(); ++k) {
    const OffsetList& list = lists.lists[static_cast<size_t>(k)];
    for (int64_t e = 0; e < list.size; ++e) factors[list.in_at(e)] += weight_of(weights, k);
  }
  for (float& f : factors) f = 1.0f / f;
  return factors;
}

// Calls body(segments) for each tile, several at a time: one segment per output position, entries
// by offset and list order.
template <typename F>
void each_tile(const RelationLists& lists, const TileBounds& bounds, const float* weights,
               const float* factors, const F& body) {
  const int64_t n_k = lists.n_k(), tile = bounds.tile;
  const int32_t* in_order = lists.in_rows();
  if (n_k == 1 && lists.lists[0].in && !in_order &&
      !lists.out_order) {  // the list itself; long segments have all threads
    const OffsetList& list = lists.lists[0];
    Buffer<int32_t> offsets(lists.n_out + 1);
    std::fill(offsets.begin(), offsets.end(), 0);
    for (int64_t e = 0; e < list.size; ++e) ++offsets[list.out[e] + 1];
    std::partial_sum(offsets.begin(), offsets.end(), offsets.begin());
    Buffer<float> floats(weights || factors ? list.size : 0);
    for (int64_t e = 0; e < floats.size(); ++e)
      floats[e] = weight_of(weights, 0) * (factors ? factors[list.in[e]] : 1);
    return body(Segments{lists.n_out, offsets.data(), list.in, nullptr, floats.data()});
  }
  parallel_for(bounds.n_tiles, [&](int64_t t) {
    const int64_t first = t * tile, n = std::min(tile, lists.n_out - first);
    const int32_t* from = bounds.bounds.data() + t * n_k;
    const int32_t* to = from + n_k;
    int64_t entries = 0;
    for (int64_t k = 0; k < n_k; ++k) entries += to[k] - from[k];
    Buffer<int32_t> ints(3 * n + 2 + entries);
    Buffer<float> floats(weights || factors ? entries : 0);
    int32_t* offsets = ints.data();
    int32_t* cursor = offsets + n + 1;
    int32_t* out_rows = cursor + n + 1;
    int32_t* rows = out_rows + n;
    std::fill(cursor, cursor + n + 1, 0);
    for (int64_t k = 0; k < n_k; ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      for (int64_t e = from[k]; e < to[k]; ++e) ++cursor[list.out_at(e) - first + 1];
    }
    std::partial_sum(cursor, cursor + n + 1, offsets);
    std::copy(offsets, offsets + n, cursor);
    for (int64_t k = 0; k < n_k; ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      const float w = weight_of(weights, k);
      for (int64_t e = from[k]; e < to[k]; ++e) {
        const int32_t in = list.in_at(e), at = cursor[list.out_at(e) - first]++;
        rows[at] = in_order ? in_order[in] : in;
        if (!floats.empty()) floats[at] = factors ? w * factors[in] : w;
      }
    }
    for (int64_t i = 0; i < n; ++i)
      out_rows[i] = static_cast<int32_t>(row_at(lists.out_order, first + i));
    body(Segments{n, offsets, rows, out_rows, floats.data()});
  });
}

template <typename T>
struct Reference {
  const RelationLists& lists;
  int64_t channels;
  // f(input row, output row, offset) for each edge.
  template <typename F>
  void edges(const F& f) const {
    for (int64_t k = 0; k < lists.n_k(); ++k) {
      const OffsetList& list = lists.lists[static_cast<size_t>(k)];
      for (int64_t e = 0; e < list.size; ++e)
        f(row_at(lists.in_order, list.in_at(e)), row_at(lists.out_order, list.out_at(e)), k);
    }
  }
  static double at(const void* x, int64_t i) { return double{widen(static_cast<const T*>(x)[i])}; }
  static void round(const Buffer<double>& sums, void* y) {
    for (int64_t i = 0; i < sums.size(); ++i)
      static_cast<T*>(y)[i] = narrow<T>(static_cast<float>(sums[i]));
  }
  Buffer<double> zeros(int64_t n) const {
    Buffer<double> out(n);
    std::fill(out.begin(), out.end(), 0.0);
    return out;
  }
};

}  // namespace

void pool(const RelationLists& lists, const TileBounds& bounds, const RowArray& x, PoolMode mode,
          const float* offset_weights, void* y) {
  const bool extreme = mode == PoolMode::max || mode == PoolMode::min;
  const float* weights = extreme ? nullptr : offset_weights;
  Buffer<float> factors;
  if (mode == PoolMode::mean_adjoint) factors = in_factors(lists, weights);
  const Reduction reduction = mode == PoolMode::max    ? Reduction::max
                              : mode == PoolMode::min  ? Reduction::min
                              : mode == PoolMode::mean ? Reduction::mean
                                                       : Reduction::sum;
  each_tile(lists, bounds, weights, factors.data(),
            [&](const Segments& s) { reduce_segments(s, x, reduction, y); });
}

void pool_match(const RelationLists& lists, const TileBounds& bounds, const void* a, const void* b,
                const RowArray& x, void* y) {
  each_tile(lists, bounds, nullptr, nullptr,
            [&](const Segments& s) { max_match_segments(s, a, b, x, y); });
}

void pool_share(const RelationLists& lists, const TileBounds& bounds, const void* a,
                const RowArray& b, const void* g, void* y) {
  each_tile(lists, bounds, nullptr, nullptr,
            [&](const Segments& s) { tie_share_segments(s, a, b, g, y); });
}

void pool_argmax(const RelationLists& lists, const TileBounds& bounds, const RowArray& x,
                 int32_t* rows, Reduction kind) {
  each_tile(lists, bounds, nullptr, nullptr,
            [&](const Segments& s) { argmax_segments(s, x, rows, kind); });
}

void reference_pool(const RelationLists& lists, const RowArray& x, PoolMode mode,
                    const float* offset_weights, void* y) {
  visit_float_type(x.storage, [&]<typename T>(T) {
    const Reference<T> r{lists, x.channels};
    Buffer<double> sums = r.zeros(lists.n_out * x.channels), in = r.zeros(lists.n_in),
                   out = r.zeros(lists.n_out);
    r.edges([&](int64_t i, int64_t o, int64_t k) {
      in[i] += double{weight_of(offset_weights, k)};
      out[o] += double{weight_of(offset_weights, k)};
    });
    const double sign = mode == PoolMode::max ? 1 : mode == PoolMode::min ? -1 : 0;
    if (sign != 0)
      for (int64_t i = 0; i < sums.size(); ++i)
        sums[i] = out[i / x.channels] > 0 ? -sign * INFINITY : 0.0;
    r.edges([&](int64_t i, int64_t o, int64_t k) {
      const double w =
          double{weight_of(offset_weights, k)} / (mode == PoolMode::mean_adjoint ? in[i] : 1.0);
      for (int64_t c = 0; c < x.channels; ++c) {
        double& to = sums[o * x.channels + c];
        const double v = r.at(x.x, i * x.channels + c);
        if (sign == 0)
          to += w * v;
        else if (sign * v > sign * to || std::isnan(v))
          to = v;
      }
    });
    if (mode == PoolMode::mean)
      for (int64_t i = 0; i < sums.size(); ++i)
        if (out[i / x.channels] > 0) sums[i] /= out[i / x.channels];
    r.round(sums, y);
  });
}

void reference_pool_match(const RelationLists& lists, const void* a, const void* b,
                          const RowArray& x, void* y) {
  visit_float_type(x.storage, [&]<typename T>(T) {
    const Reference<T> r{lists, x.channels};
    Buffer<double> sums = r.zeros(lists.n_out * x.channels);
    r.edges([&](int64_t i, int64_t o, int64_t) {
      for (int64_t c = 0; c < x.channels; ++c)
        if (r.at(a, o * x.channels + c) == r.at(b, i * x.channels + c))
          sums[o * x.channels + c] += r.at(x.x, i * x.channels + c);
    });
    r.round(sums, y);
  });
}

void reference_pool_share(const RelationLists& lists, const void* a, const RowArray& b,
                          const void* g, void* y) {
  visit_float_type(b.storage, [&]<typename T>(T) {
    const Reference<T> r{lists, b.channels};
    Buffer<double> counts = r.zeros(lists.n_out * b.channels);
    r.edges([&](int64_t i, int64_t o, int64_t) {
      for (int64_t c = 0; c < b.channels; ++c)
        counts[o * b.channels + c] +=
            r.at(a, o * b.channels + c) == r.at(b.x, i * b.channels + c) ? 1 : 0;
    });
    for (int64_t i = 0; i < counts.size(); ++i)
      counts[i] = counts[i] > 0 ? r.at(g, i) / counts[i] : 0.0;
    r.round(counts, y);
  });
}

}  // namespace lattice::cpu

#include "lattice/kernels/cpu/features/buckets.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/buckets.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/block-inl.h"

#ifndef LATTICE_KERNELS_CPU_BUCKETS_CPP
#define LATTICE_KERNELS_CPU_BUCKETS_CPP
namespace lattice::cpu {
namespace {

// n edges: row in[e] of x (., c), which ends at x_end, goes to output position out[e].
struct BucketEdges {
  const float *x, *x_end;
  int64_t c;
  const int32_t *in, *out;
  int64_t n;
};

}  // namespace
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// N vectors of columns of the sum of n rows of x (., c).
template <int N>
HWY_INLINE void sum_columns(const float* HWY_RESTRICT x, int64_t c,
                            const int32_t* HWY_RESTRICT rows, int64_t n, int64_t column,
                            float* HWY_RESTRICT to) {
  const Floats d;
  Vec sum[N];
  const float* first = x + rows[0] * c + column;
  unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA { sum[v] = hn::LoadU(d, first + v * kLanes); });
  for (int64_t i = 1; i < n; ++i) {
    const float* row = x + rows[i] * c + column;
    unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA {
      sum[v] = hn::Add(sum[v], hn::LoadU(d, row + v * kLanes));
    });
  }
  unroll<N>([&](auto v) LATTICE_INLINE_LAMBDA { hn::StoreU(sum[v], d, to + column + v * kLanes); });
}

// Sums over the runs of equal `out` among the edges. Writes the sums and where they go; returns
// their number.
int64_t sum_buckets(const BucketEdges& edges, int32_t first_out, float* sums, int32_t* sums_out) {
  const Floats d;
  const auto [x, x_end, c, in, out, n] = edges;
  int64_t buckets = 0;
  for (int64_t e = 0, end; e < n; e = end, ++buckets, sums += c) {
    for (end = e + 1; end < n && out[end] == out[e];) ++end;
    sums_out[buckets] = out[e] - first_out;
    int64_t column = 0;
    for (; column + 4 * kLanes <= c; column += 4 * kLanes)
      sum_columns<4>(x, c, in + e, end - e, column, sums);
    for (; column + kLanes <= c; column += kLanes)
      sum_columns<1>(x, c, in + e, end - e, column, sums);
    if (column == c) continue;
    Vec sum = load_until(d, x + in[e] * c + column, x_end);
    for (int64_t i = e + 1; i < end; ++i)
      sum = hn::Add(sum, load_until(d, x + in[i] * c + column, x_end));
    store(sum, d, sums + column, c - column);
  }
  return buckets;
}

// Rows order[begin .. end) of `from` (n, c), widened.
void widen_rows(FloatType storage, const void* from, int64_t n, int64_t c, const int32_t* order,
                int64_t begin, int64_t end, float* to) {
  visit_float_type(storage, [&]<typename T>(T) {
    constexpr int64_t kAhead = 16;
    const Floats d;
    const T *rows = static_cast<const T*>(from), *last = rows + n * c;
    for (int64_t p = begin; p < end; ++p, to += c) {
      if (order && p + kAhead < end) prefetch_row(rows + order[p + kAhead] * c, c);
      const T* row = rows + (order ? order[p] : p) * c;
      for (int64_t j = 0; j < c; j += kLanes) store(load_until(d, row + j, last), d, to + j, c - j);
    }
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(sum_buckets);
HWY_EXPORT(widen_rows);
namespace {

// The sums of a part take about kPartFloats values, or kPartResults times the size of the result if
// that is more, because every part is added to the result.
constexpr int64_t kPartFloats = int64_t{1} << 20, kPartResults = 5;
constexpr int64_t kChainFloats = int64_t{2} << 20;  // results of all chains
constexpr int64_t kMaxChains = 16;

class BucketOuter {
 public:
  BucketOuter(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args)
      : lists_(lists),
        bounds_(bounds),
        args_(args),
        size_(lists.n_k() * args.shape.in_group() * args.shape.c_out) {
    // The mean number of buckets per edge is a good enough estimate for every part.
    const int64_t most = std::max(kPartFloats, kPartResults * size_) / args.shape.c_in;
    double buckets = 0;
    for (int64_t t = 0; t < bounds.n_tiles; ++t) {
      int64_t edges = 0;
      for (int64_t k = 0; k < lists.n_k(); ++k) edges += at(t + 1, k) - at(t, k);
      const double more = static_cast<double>(edges) * static_cast<double>(lists.n_buckets) /
                          static_cast<double>(lists.n_edges);
      if (t == 0 || buckets + more > static_cast<double>(most)) parts_.push_back(t), buckets = 0;
      buckets += more;
    }
    parts_.push_back(bounds.n_tiles);
  }

  void run() const {
    const int64_t n_parts = static_cast<int64_t>(parts_.size()) - 1;
    const int64_t chains =
        std::max<int64_t>(1, std::min({kMaxChains, kChainFloats / size_, n_parts}));
    Buffer<float> sums(chains * size_);
    const auto run_chain = [&](int64_t c) {
      float* to = sums.data() + c * size_;
      std::fill_n(to, size_, 0.0f);
      Scratch scratch(*this);
      for (int64_t part = n_parts * c / chains; part < n_parts * (c + 1) / chains; ++part)
        add_part(part, to, scratch);
    };
    if (chains == 1) {
      run_chain(0);  // the threads are left to `outer`
    } else {
      parallel_for(chains, run_chain);
    }
    parallel_range(size_, 1 << 14, [&](int64_t begin, int64_t end) {
      for (int64_t c = 1; c < chains; ++c)
        for (int64_t i = begin; i < end; ++i) sums[i] += sums[c * size_ + i];
      visit_float_type(args_.shape.storage, [&]<typename T>(T) {
        for (int64_t i = begin; i < end; ++i) static_cast<T*>(args_.u)[i] = narrow<T>(sums[i]);
      });
    });
  }

 private:
  // The first edge of list k in a tile.
  int64_t at(int64_t tile, int64_t k) const { return bounds_.bounds[tile * lists_.n_k() + k]; }

  struct Scratch {
    explicit Scratch(const BucketOuter& o) : u(o.size_) {
      lists.lists.resize(static_cast<size_t>(o.lists_.n_k()));
      bounds.n_tiles = 1;
      bounds.bounds = Buffer<int32_t>(2 * o.lists_.n_k());
    }
    RelationLists lists;  // of the sums of a part
    TileBounds bounds;
    Buffer<float> x, sums, y, u;
    Buffer<int32_t> sums_out, iota;
  };

  template <typename T>
  static void resize(Buffer<T>& buffer, int64_t size) {
    if (buffer.size() < size) buffer = Buffer<T>(size + size / 4);
  }

  void add_part(int64_t part, float* to, Scratch& s) const {
    const int64_t n_k = lists_.n_k(), c_in = args_.shape.c_in, c_out = args_.shape.c_out;
    const int64_t t0 = parts_[static_cast<size_t>(part)],
                  t1 = parts_[static_cast<size_t>(part) + 1];
    const int64_t first = t0 * bounds_.tile,
                  rows = std::min(lists_.n_out, t1 * bounds_.tile) - first;
    int64_t n = 0;  // buckets
    for (int64_t k = 0; k < n_k; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      for (int64_t e = at(t0, k); e < at(t1, k); ++e)
        n += e == at(t0, k) || list.out_at(e) != list.out_at(e - 1);
    }
    if (n == 0) return;
    const int32_t* bounds = bounds_.bounds.data();
    const auto [lo, hi] = input_window(lists_, bounds + t0 * n_k, bounds + t1 * n_k, 0, n_k);
    resize(s.x, (hi - lo) * c_in);
    resize(s.sums, n * c_in);
    resize(s.sums_out, n);
    resize(s.y, rows * c_out);
    const int64_t longest = std::max({n, hi, first + rows});
    if (s.iota.size() < longest) {
      resize(s.iota, longest);
      std::iota(s.iota.begin(), s.iota.end(), 0);
    }
    HWY_DYNAMIC_DISPATCH(widen_rows)
    (args_.shape.storage, args_.x, lists_.n_in, c_in, lists_.in_rows(), lo, hi, s.x.data());
    HWY_DYNAMIC_DISPATCH(widen_rows)
    (args_.shape.storage, args_.y, lists_.n_out, c_out, lists_.out_rows(), first, first + rows,
     s.y.data());
    const float* x = s.x.data() - lo * c_in;
    int64_t done = 0;
    for (int64_t k = 0; k < n_k; ++k) {
      const OffsetList& list = lists_.lists[static_cast<size_t>(k)];
      const int32_t* in = (list.in ? list.in : s.iota.data()) + at(t0, k);
      const int32_t* out = (list.out ? list.out : s.iota.data()) + at(t0, k);
      const int64_t made = HWY_DYNAMIC_DISPATCH(sum_buckets)(
          {x, x + hi * c_in, c_in, in, out, at(t1, k) - at(t0, k)}, static_cast<int32_t>(first),
          s.sums.data() + done * c_in, s.sums_out.data() + done);
      s.lists.lists[static_cast<size_t>(k)] = {s.iota.data() + done, s.sums_out.data() + done,
                                               made};
      s.bounds.bounds[k] = 0;
      s.bounds.bounds[n_k + k] = static_cast<int32_t>(made);
      done += made;
    }
    s.lists.n_in = s.lists.n_edges = n;
    s.lists.n_out = s.bounds.tile = rows;
    outer(s.lists, s.bounds,
          {{c_in, c_out, args_.shape.groups}, s.sums.data(), s.y.data(), s.u.data()});
    for (int64_t i = 0; i < size_; ++i) to[i] += s.u[i];
  }

  const RelationLists& lists_;
  const TileBounds& bounds_;
  const OuterArgs& args_;
  int64_t size_;                // of the result
  std::vector<int64_t> parts_;  // first tile of each part, and the end
};

}  // namespace

bool buckets_pay(const RelationLists& lists, const ConvShape& shape) {
  return lists.in_order && lists.n_buckets > 0 &&
         static_cast<double>(lists.n_edges) >=
             static_cast<double>(lists.n_buckets) * kOuterShared.edges &&
         shape.out_group() >= kOuterShared.columns;
}

void outer_of_buckets(const RelationLists& lists, const TileBounds& bounds, const OuterArgs& args) {
  check_call("outer", lists, bounds, args.shape);
  if (lists.n_edges == 0 || lists.n_buckets == 0) return outer(lists, bounds, args);
  BucketOuter(lists, bounds, args).run();
}

}  // namespace lattice::cpu
#endif

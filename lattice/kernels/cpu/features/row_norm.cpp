#include "lattice/kernels/cpu/features/row_norm.h"

#include <algorithm>
#include <cmath>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/row_norm.cpp"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "lattice/kernels/cpu/base/float_types-inl.h"
#include "lattice/kernels/cpu/base/threads.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Calls step(c, count) for each vector of channels; count lanes of it are channels.
template <class Step>
HWY_INLINE void for_channels(int64_t channels, Step step) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<float>()));
  for (int64_t c = 0; c < channels; c += lanes) step(c, std::min(lanes, channels - c));
}

// The mean over the channels of the vectors that value(c, count) gives; lanes that are no channels
// must be 0.
template <class D, class Value>
HWY_INLINE float mean_of(D d, int64_t channels, Value value) {
  auto sum = hn::Zero(d);
  for_channels(channels,
               [&](int64_t c, int64_t count) HWY_ATTR { sum = hn::Add(sum, value(c, count)); });
  return hn::GetLane(hn::SumOfLanes(d, sum)) / static_cast<float>(channels);
}

template <typename T>
struct Row {
  const T* x;
  int64_t channels;
  float mean = 0, scale = 0;

  HWY_INLINE Row(const RowNorm& call, const T* x, int64_t channels) : x(x), channels(channels) {
    const hn::ScalableTag<float> d;
    if (call.centered)
      mean = mean_of(d, channels, [&](int64_t c, int64_t) HWY_ATTR {
        return load_until(d, x + c, x + channels);
      });
    const float square = mean_of(d, channels, [&](int64_t c, int64_t count) HWY_ATTR {
      const auto v =
          hn::IfThenElseZero(hn::FirstN(d, static_cast<size_t>(count)),
                             hn::Sub(load_until(d, x + c, x + channels), hn::Set(d, mean)));
      return hn::Mul(v, v);
    });
    scale = 1.0f / std::sqrt(square + call.eps);
  }
  // (x - m) r.
  template <class D>
  HWY_INLINE hn::Vec<D> at(D d, int64_t c) const {
    return hn::Mul(hn::Sub(load_until(d, x + c, x + channels), hn::Set(d, mean)),
                   hn::Set(d, scale));
  }
};

template <typename T>
void norm_rows_piece(const RowNorm& call, T* y, int64_t begin, int64_t end, int64_t channels) {
  const hn::ScalableTag<float> d;
  for (int64_t r = begin; r < end; ++r) {
    const Row<T> row(call, static_cast<const T*>(call.x) + r * channels, channels);
    for_channels(channels, [&](int64_t c, int64_t count) HWY_ATTR {
      auto v = row.at(d, c);
      if (call.weight) v = hn::Mul(v, load_until(d, call.weight + c, call.weight + channels));
      if (call.bias) v = hn::Add(v, load_until(d, call.bias + c, call.bias + channels));
      store(v, d, y + r * channels + c, count);
    });
  }
}

template <typename T>
void norm_back_piece(const RowNorm& call, const T* g, T* dx, float* e, int64_t begin, int64_t end,
                     int64_t channels) {
  const hn::ScalableTag<float> d;
  for (int64_t r = begin; r < end; ++r) {
    const Row<T> row(call, static_cast<const T*>(call.x) + r * channels, channels);
    const T* mine = g + r * channels;
    const auto weighted = [&](int64_t c) HWY_ATTR {
      const auto v = load_until(d, mine + c, mine + channels);
      return call.weight ? hn::Mul(v, load_until(d, call.weight + c, call.weight + channels)) : v;
    };
    float first = 0;
    if (call.centered)
      first = mean_of(d, channels, [&](int64_t c, int64_t) HWY_ATTR { return weighted(c); });
    const float second = mean_of(d, channels, [&](int64_t c, int64_t) HWY_ATTR {
      return hn::Mul(weighted(c), row.at(d, c));  // weighted is 0 after the channels
    });
    for_channels(channels, [&](int64_t c, int64_t count) HWY_ATTR {
      const auto h = row.at(d, c);
      const auto v = hn::NegMulAdd(h, hn::Set(d, second), hn::Sub(weighted(c), hn::Set(d, first)));
      store(hn::Mul(v, hn::Set(d, row.scale)), d, dx + r * channels + c, count);
      if (e)
        store(hn::Mul(load_until(d, mine + c, mine + channels), h), d, e + r * channels + c, count);
    });
  }
}

void row_norm_piece(const Rows& shape, const RowNorm& call, void* y, int64_t begin, int64_t end) {
  visit_float_type(shape.storage, [&]<typename T>(T) {
    norm_rows_piece<T>(call, static_cast<T*>(y), begin, end, shape.channels);
  });
}

void row_norm_back_piece(const Rows& shape, const RowNorm& call, const void* g, void* dx, float* e,
                         int64_t begin, int64_t end) {
  visit_float_type(shape.storage, [&]<typename T>(T) {
    norm_back_piece<T>(call, static_cast<const T*>(g), static_cast<T*>(dx), e, begin, end,
                       shape.channels);
  });
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(row_norm_piece);
HWY_EXPORT(row_norm_back_piece);

namespace {
int64_t grain(const Rows& shape) {
  return std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(shape.channels, 1));
}
}  // namespace

void row_norm(const Rows& shape, const RowNorm& call, void* y) {
  if (shape.channels == 0) return;
  parallel_range(shape.rows, grain(shape), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(row_norm_piece)(shape, call, y, begin, end);
  });
}

void row_norm_back(const Rows& shape, const RowNorm& call, const void* g, void* dx, float* e) {
  if (shape.channels == 0) return;
  parallel_range(shape.rows, grain(shape), [&](int64_t begin, int64_t end) {
    HWY_DYNAMIC_DISPATCH(row_norm_back_piece)(shape, call, g, dx, e, begin, end);
  });
}

}  // namespace lattice::cpu
#endif

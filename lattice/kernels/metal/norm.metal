// Batch norm with the sum and the ReLU that follow it, and its gradient:
//
//   y = relu((x - mean) r weight + bias + residual),  r = 1 / sqrt(var + eps)
//   g' = g where y > 0,  s0 = sum g',  s1 = sum g' (x - mean)
//   dx = weight r (g' - s0 / n - (x - mean) r^2 s1 / n), without the last two if mean is given
//
// Three launches each. Groups add up parts of a fixed number of rows, for 32 channels. Then one
// simdgroup per channel combines the parts in a fixed order. Then every value is made. So no bit
// depends on the number of groups. Squares are those of differences from the mean of the part: a
// mean of 10^4 standard deviations costs no digit of the variance (Chan, Golub, LeVeque,
// "Algorithms for Computing the Sample Variance", The American Statistician 1983).
#include "lattice/kernels/metal/arguments.metal"
#include "lattice/kernels/metal/vectors.metal"
#include "lattice/kernels/portable/norm_sizes.h"

namespace lattice {
using namespace metal;

constant constexpr int kNormStrips = 8;  // simdgroups of a group; each takes every 8th row

// The sum over the simdgroups, in their order, for every thread. memory: a float per thread.
METAL_FUNC float sum_strips(float own, threadgroup float* memory, ThreadPlace place) {
  threadgroup_barrier(mem_flags::mem_threadgroup);  // the last sums are read
  memory[place.id] = own;
  threadgroup_barrier(mem_flags::mem_threadgroup);
  float sum = 0.0f;
  for (int i = 0; i < kNormStrips; ++i) sum += memory[32 * i + int(place.lane)];
  return sum;
}

// The rows and the channel of a thread that adds up a part.
struct NormPart {
  int part, first, last, c;
  bool there;
};
METAL_FUNC NormPart norm_part(NormSizes sizes, ThreadPlace place) {
  const int part = int(place.group.x), first = part * sizes.part,
            c = 32 * int(place.group.y) + int(place.lane);
  return {part, first, min(sizes.rows, first + sizes.part), c, c < sizes.channels};
}
METAL_FUNC size_t norm_at(int row, int c, NormSizes sizes) {
  return size_t(row) * size_t(sizes.channels) + size_t(c);
}

// parts (parts, 3, channels): of each part its mean, what rounding left of it, and the sum of
// squares around both together.
template <typename X>
METAL_FUNC void norm_parts(X x, device float* parts, NormSizes sizes, threadgroup float* memory,
                           ThreadPlace place) {
  const NormPart own = norm_part(sizes, place);
  const int begin = own.first + int(place.simdgroup);
  const float count = float(own.last - own.first);
  float sum = 0.0f, rest = 0.0f, squares = 0.0f;
  for (int r = begin; own.there && r < own.last; r += kNormStrips)
    sum += float(x[norm_at(r, own.c, sizes)]);
  const float mean = sum_strips(sum, memory, place) / count;
  for (int r = begin; own.there && r < own.last; r += kNormStrips) {
    const float away = float(x[norm_at(r, own.c, sizes)]) - mean;
    rest += away;
    squares += away * away;
  }
  rest = sum_strips(rest, memory, place) / count;  // what rounding left of the mean
  squares = sum_strips(squares, memory, place);
  if (place.simdgroup != 0 || !own.there) return;
  const size_t channels = size_t(sizes.channels),
               to = size_t(3 * own.part) * channels + size_t(own.c);
  parts[to] = mean;
  parts[to + channels] = rest;
  parts[to + 2 * channels] = squares - rest * rest * count;
}

// mean and var of every channel. A simdgroup has one channel.
template <typename P>
METAL_FUNC void norm_combine(P parts, device float* mean, device float* var, NormSizes sizes,
                             uint channel, uint lane) {
  const int rows = sizes.rows, part = sizes.part, n = (rows + part - 1) / part;
  const size_t channels = size_t(sizes.channels), c = size_t(channel);
  const float near = parts[c];  // the means differ little from each other
  float sum = 0.0f, squares = 0.0f;
  for (int p = int(lane); p < n; p += 32) {
    const size_t at = size_t(3 * p) * channels + c;
    sum += float(min(part, rows - p * part)) * ((parts[at] - near) + parts[at + channels]);
  }
  const float all = near + simd_sum(sum) / float(rows);
  for (int p = int(lane); p < n; p += 32) {
    const size_t at = size_t(3 * p) * channels + c;
    const float away = (parts[at] - all) + parts[at + channels];
    squares += parts[at + 2 * channels];
    squares += float(min(part, rows - p * part)) * away * away;
  }
  squares = simd_sum(squares);
  if (lane != 0) return;
  mean[c] = all;
  var[c] = squares / float(rows);
}

// What a norm knows of a channel.
template <typename M, typename V, typename W, typename B>
struct NormChannels {
  M mean;
  V var;
  W weight;
  B bias;
};
template <typename M, typename V, typename W, typename B>
METAL_FUNC NormChannels<M, V, W, B> norm_channels(M mean, V var, W weight, B bias) {
  return {mean, var, weight, bias};
}

// y, kEach neighboring channels per thread. Without kAdd `residual` is not read.
template <int kEach, bool kAdd, bool kRelu, typename X, typename Channels, typename R, typename T>
METAL_FUNC void norm_apply(X x, Channels of, R residual, device T* y, NormSizes sizes, uint2 at) {
  const int first = int(at.x) * kEach;
  const size_t from = norm_at(int(at.y), first, sizes);
  const auto own = values_at<kEach>(x + from);
  const auto added = values_at<kEach>(residual + (kAdd ? from : 0));
  Values<T, kEach> found;
#pragma clang loop unroll(full)
  for (int j = 0; j < kEach; ++j) {
    const int c = first + j;
    const float scale = rsqrt(float(of.var[c]) + sizes.eps) * float(of.weight[c]);
    float value = (float(own.v[j]) - float(of.mean[c])) * scale + float(of.bias[c]);
    if (kAdd) value += float(added.v[j]);
    found.v[j] = T(kRelu ? max(value, 0.0f) : value);
  }
  put_values<kEach>(y + from, found);
}

// What the gradient reads of rows, and the mean. Without kRelu y is not read.
template <typename X, typename G, typename Y, typename M>
struct NormRows {
  X x;
  G g;
  Y y;
  M mean;
};
template <typename X, typename G, typename Y, typename M>
METAL_FUNC NormRows<X, G, Y, M> norm_rows(X x, G g, Y y, M mean) {
  return {x, g, y, mean};
}

// parts (parts, 2, channels): s0 and s1 of each part.
template <bool kRelu, typename Rows>
METAL_FUNC void norm_slope_parts(Rows in, device float* parts, NormSizes sizes,
                                 threadgroup float* memory, ThreadPlace place) {
  const NormPart own = norm_part(sizes, place);
  const float middle = own.there ? float(in.mean[own.c]) : 0.0f;
  float s0 = 0.0f, s1 = 0.0f;
  for (int r = own.first + int(place.simdgroup); own.there && r < own.last; r += kNormStrips) {
    const size_t from = norm_at(r, own.c, sizes);
    const float slope = !kRelu || float(in.y[from]) > 0.0f ? float(in.g[from]) : 0.0f;
    s0 += slope;
    s1 += slope * (float(in.x[from]) - middle);
  }
  s0 = sum_strips(s0, memory, place);
  s1 = sum_strips(s1, memory, place);
  if (place.simdgroup != 0 || !own.there) return;
  const size_t to = size_t(2 * own.part) * size_t(sizes.channels) + size_t(own.c);
  parts[to] = s0;
  parts[to + size_t(sizes.channels)] = s1;
}

// Gradients of channels, and the numbers (3, channels) with which dx = a g' + b (x - mean) + d.
template <typename W, typename B>
struct NormSlopes {
  device float* line;
  device W* weight;
  device B* bias;
  device float* mean;
  device float* var;
};
template <typename W, typename B>
METAL_FUNC NormSlopes<W, B> norm_slopes(device float* line, device W* weight, device B* bias,
                                        device float* mean, device float* var) {
  return {line, weight, bias, mean, var};
}

template <typename P, typename V, typename I, typename W, typename B>
METAL_FUNC void norm_slope_combine(P parts, V var, I weight, NormSlopes<W, B> to, NormSizes sizes,
                                   uint channel, uint lane) {
  const int n = (sizes.rows + sizes.part - 1) / sizes.part;
  const size_t channels = size_t(sizes.channels), c = size_t(channel);
  float s0 = 0.0f, s1 = 0.0f;
  for (int p = int(lane); p < n; p += 32) {
    s0 += parts[size_t(2 * p) * channels + c];
    s1 += parts[size_t(2 * p + 1) * channels + c];
  }
  s0 = simd_sum(s0);
  s1 = simd_sum(s1);
  if (lane != 0) return;
  const float r = rsqrt(float(var[c]) + sizes.eps), a = r * float(weight[c]),
              share = sizes.given ? 0.0f : -1.0f / float(sizes.rows);
  to.line[c] = a;
  to.line[channels + c] = share * a * r * r * s1;
  to.line[2 * channels + c] = share * a * s0;
  to.weight[c] = W(r * s1);
  to.bias[c] = B(s0);
  to.mean[c] = -a * s0;
  to.var[c] = -0.5f * a * r * r * s1;
}

// dx, and with kKeep g' of the residual too, kEach neighboring channels per thread.
template <int kEach, bool kRelu, bool kKeep, typename Rows, typename L, typename T>
METAL_FUNC void norm_slope_apply(Rows in, L line, device T* dx, device T* kept, NormSizes sizes,
                                 uint2 at) {
  const int first = int(at.x) * kEach, channels = sizes.channels;
  const size_t from = norm_at(int(at.y), first, sizes);
  const auto own = values_at<kEach>(in.x + from);
  const auto slopes = values_at<kEach>(in.g + from);
  const auto made = values_at<kEach>(in.y + from);
  Values<T, kEach> found, passed;
#pragma clang loop unroll(full)
  for (int j = 0; j < kEach; ++j) {
    const int c = first + j;
    const float slope = !kRelu || float(made.v[j]) > 0.0f ? float(slopes.v[j]) : 0.0f;
    const float away = float(own.v[j]) - float(in.mean[c]);
    found.v[j] = T(line[c] * slope + line[channels + c] * away + line[2 * channels + c]);
    passed.v[j] = T(slope);
  }
  put_values<kEach>(dx + from, found);
  if (kKeep) put_values<kEach>(kept + from, passed);
}

}  // namespace lattice

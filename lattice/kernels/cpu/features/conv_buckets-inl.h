// Convolution where many edges of one offset share an output row, as on points: the input rows of
// these edges are added first, and each sum is multiplied once. Included once per Highway target.
#include "lattice/kernels/cpu/features/conv-inl.h"

#if defined(LATTICE_KERNELS_CPU_CONV_BUCKETS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_CONV_BUCKETS_INL_H
#undef LATTICE_KERNELS_CPU_CONV_BUCKETS_INL_H
#else
#define LATTICE_KERNELS_CPU_CONV_BUCKETS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Room for `size` sums of rows.
struct BucketRoom {
  int64_t size;
  float* rows;          // of round_up(c_in, kLine) values
  int32_t* out;         // output positions
  const int32_t* iota;  // 0 .. size - 1
};

// Adds the edges of `given` in buckets: edges with one output position follow each other. Input
// rows may be loaded up to x_end; with `ahead` they are asked for ahead.
void add_buckets(void (*add)(const ListCall&), const ListCall& given, const float* x_end,
                 bool ahead, const BucketRoom& room) {
  constexpr int64_t kAhead = 16;
  const Floats d;
  const int64_t c_in = given.c_in, stride = round_up(c_in, kLine);
  const int32_t *in = given.in, *out = given.out;
  ListCall call = given;
  call.rows = {room.rows, stride, INT32_MAX};
  call.in = room.iota;
  call.out = room.out;
  call.scattered = false;
  for (int64_t e = 0; e < given.n;) {
    int64_t n = 0;
    for (int64_t end; e < given.n && n < room.size; e = end, ++n) {
      for (end = e + 1; end < given.n && out[end] == out[e];) ++end;
      if (ahead)
        for (int64_t i = e; i < end; ++i)
          if (i + kAhead < given.n)
            prefetch_row(given.rows.x + given.rows.at(in[i + kAhead]), c_in);
      room.out[n] = out[e];
      float* HWY_RESTRICT to = room.rows + n * stride;
      int64_t c = 0;
      for (; c + 4 * kLanes <= c_in; c += 4 * kLanes)
        sum_bucket<4>(given.rows, in + e, end - e, c, to);
      for (; c + 2 * kLanes <= c_in; c += 2 * kLanes)
        sum_bucket<2>(given.rows, in + e, end - e, c, to);
      for (; c + kLanes <= c_in; c += kLanes) sum_bucket<1>(given.rows, in + e, end - e, c, to);
      if (c < c_in) {
        Vec sum = load_until(d, given.rows.x + given.rows.at(in[e]) + c, x_end);
        for (int64_t i = e + 1; i < end; ++i)
          sum = hn::Add(sum, load_until(d, given.rows.x + given.rows.at(in[i]) + c, x_end));
        hn::Store(sum, d, to + c);
      }
    }
    call.n = n;
    add(call);
  }
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

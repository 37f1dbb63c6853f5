// 1. Rows of x are read by position. Where positions are not rows, x comes in several parts or its
//    rows have no whole number of 16 bytes, x is copied once in the order of the positions; bytes
//    make this copy a hundredth of the work of a 3x3x3 kernel.
// 2. Tasks are steps of a few tiles. For each panel of 32 output columns the int32 sums of a step
//    lie in a small array; list k adds its edges with the packed block (k, panel).
// 3. The sums get residual, scale, clamp and rounding on their way to memory.
#include "lattice/kernels/cpu/features/int_conv.h"

#include <algorithm>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/conv_plan.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/features/int_conv.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#include "lattice/kernels/cpu/features/int_conv-inl.h"

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

class IntConv {
 public:
  IntConv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args)
      : lists_(lists), bounds_(bounds), args_(args), weight_(*args.weight) {
    const int64_t bytes = int_type_bytes(weight_.in);
    const bool direct = !lists.in_rows() && !args.more.data && weight_.in == IntType::u8 &&
                        args.x.columns * bytes == weight_.row_bytes;
    if (!direct) copy_rows(bytes);
    x_ = direct ? static_cast<const uint8_t*>(args.x.data) : copy_.data();
    // Sums of a step stay in the second-level cache, and long lists have few block ends.
    constexpr int64_t kStepRows = 1024, kLongStepRows = 256;
    int64_t rows = args.step_rows;
    if (!rows) rows = weight_.row_bytes <= 64 ? kStepRows : kLongStepRows;
    if (!args.step_rows && lists.n_k() == 1) rows = 64;
    tiles_ = std::max<int64_t>(1, rows / bounds.tile);
    for (int64_t k = 0; k < lists.n_k(); ++k)
      if (!list(k).in && list(k).size == lists.n_out && lists.n_out > 0) whole_ = k;
  }

  void run() const {
    const int64_t steps = (bounds_.n_tiles + tiles_ - 1) / tiles_;
    const int64_t split = steps < 4 * thread_count() ? weight_.panels : 1;
    parallel_for(steps * split, [&](int64_t i) {
      const int64_t begin = i / split * tiles_, p = i % split;
      step(begin, std::min(begin + tiles_, bounds_.n_tiles), weight_.panels * p / split,
           weight_.panels * (p + 1) / split);
    });
  }

 private:
  const OffsetList& list(int64_t k) const { return lists_.lists[static_cast<size_t>(k)]; }

  void copy_rows(int64_t bytes) {
    copy_ = Buffer<uint8_t>(lists_.n_in * weight_.row_bytes);
    const auto first = static_cast<size_t>(args_.x.columns * bytes),
               more = static_cast<size_t>(args_.more.columns * bytes),
               all = static_cast<size_t>(weight_.row_bytes);
    const auto* x = static_cast<const uint8_t*>(args_.x.data);
    const auto* behind = static_cast<const uint8_t*>(args_.more.data);
    parallel_range(lists_.n_in, 2048, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const auto row = static_cast<size_t>(lists_.in_rows() ? lists_.in_rows()[p] : p);
        uint8_t* to = copy_.data() + p * weight_.row_bytes;
        std::memcpy(to, x + row * first, first);
        if (behind) std::memcpy(to + first, behind + row * more, more);
        std::memset(to + first + more, 0, all - first - more);
        if (weight_.in == IntType::i16) clamp_row(reinterpret_cast<int16_t*>(to));
      }
    });
  }

  void clamp_row(int16_t* row) const {
    const auto most = static_cast<int16_t>(int_input_most(IntType::i16));
    for (int64_t i = 0; i < weight_.row_bytes / 2; ++i)
      row[i] = std::clamp<int16_t>(row[i], static_cast<int16_t>(-most), most);
  }

  // Tiles [t0, t1), panels [p0, p1).
  void step(int64_t t0, int64_t t1, int64_t p0, int64_t p1) const {
    const int64_t n_k = lists_.n_k(), first = t0 * bounds_.tile;
    const int64_t n = std::min(t1 * bounds_.tile, lists_.n_out) - first;
    Buffer<int32_t> sums(n * kIntPanel), same(n);
    for (int64_t p = 0; p < n; ++p) same[p] = static_cast<int32_t>(first + p);
    for (int64_t p = p0; p < p1; ++p) {
      const int32_t* start = weight_.bias.data() + p * kIntPanel;
      if (whole_ >= 0)
        add(whole_, first, n, first, p, true, same.data(), sums.data());
      else if (!args_.one_edge_each)
        for (int64_t r = 0; r < n; ++r)
          std::copy(start, start + kIntPanel, sums.data() + r * kIntPanel);
      for (int64_t k = 0; k < n_k; ++k) {
        if (k == whole_) continue;
        const int64_t begin = bounds_.bounds[t0 * n_k + k], end = bounds_.bounds[t1 * n_k + k];
        if (begin < end)
          add(k, begin, end - begin, first, p, args_.one_edge_each, same.data(), sums.data());
      }
      finish(first, n, p, sums.data());
    }
  }

  void add(int64_t k, int64_t begin, int64_t n, int64_t first, int64_t p, bool put,
           const int32_t* same, int32_t* sums) const {
    const OffsetList& edges = list(k);
    const int32_t* in = edges.in ? edges.in + begin : same + (begin - first);
    const int32_t* out = edges.out ? edges.out + begin : same + (begin - first);
    const IntListCall call{x_,
                           weight_.row_bytes,
                           in,
                           out,
                           n,
                           weight_.row_bytes,
                           weight_.block(k, p),
                           sums,
                           static_cast<int32_t>(first),
                           weight_.bias.data() + p * kIntPanel};
    int_list_kernel(weight_.in, weight_.row_bytes, put)(call, lists_.out_once || put);
  }

  void finish(int64_t first, int64_t n, int64_t p, const int32_t* sums) const {
    const int64_t column = p * kIntPanel, c_out = weight_.c_out;
    const bool residual = args_.residual != nullptr;
    const auto shifted = [&](const void* data, IntType type) {
      return static_cast<const uint8_t*>(data) + column * int_type_bytes(type);
    };
    const IntFinishCall call{
        {weight_.scale.data() + column, residual ? weight_.factor.data() + column : nullptr},
        sums,
        n,
        std::min(kIntPanel, c_out - column),
        c_out,
        first,
        lists_.out_rows(),
        residual ? shifted(args_.residual, args_.residual_type) : nullptr,
        const_cast<uint8_t*>(shifted(args_.y, args_.out))};
    args_.residual_type == IntType::u8 ? finish_as<uint8_t>(args_.out, call)
                                       : finish_as<int16_t>(args_.out, call);
  }

  const RelationLists& lists_;
  const TileBounds& bounds_;
  const IntConvArgs& args_;
  const IntWeight& weight_;
  const uint8_t* x_ = nullptr;
  Buffer<uint8_t> copy_;
  int64_t tiles_ = 1;
  int64_t whole_ = -1;  // the list of every row with itself
};

void run_int_conv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args) {
  IntConv(lists, bounds, args).run();
}
const char* int_target_name() {
  return with_vnni() ? "AVX3 with VNNI" : hwy::TargetName(HWY_TARGET);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {
HWY_EXPORT(run_int_conv);
HWY_EXPORT(int_target_name);

void int_conv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args) {
  const IntWeight& weight = *args.weight;
  check_call("int_conv", lists, bounds, {weight.c_in, weight.c_out});
  if (weight.n_k != lists.n_k() || args.x.columns + args.more.columns != weight.c_in ||
      (args.residual && weight.factor.empty()))
    throw std::invalid_argument("[int_conv] the weight does not fit lists, columns or residual");
  HWY_DYNAMIC_DISPATCH(run_int_conv)(lists, bounds, args);
}

const char* int_conv_target() { return HWY_DYNAMIC_DISPATCH(int_target_name)(); }

}  // namespace lattice::cpu
#endif

// 1. Rows of x are read by position. Where positions are rows and rows have a whole number of 16
//    bytes, the kernels read x, and a second part behind it, where they lie. Otherwise x is copied
//    once in the order of the positions; bytes make this copy a hundredth of the work of a 3x3x3
//    kernel.
// 2. Tasks are steps of a few tiles. For each panel of 32 output columns the int32 sums of a step
//    lie in a small array; list k adds its edges with the packed block (k, panel).
// 3. The sums get residual, scale, clamp and rounding on their way to memory (int_finish.h).
#include "lattice/kernels/cpu/features/int_conv.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/conv_plan.h"
#include "lattice/kernels/cpu/features/int_finish.h"

namespace lattice::cpu {
namespace {

class IntConv {
 public:
  IntConv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args)
      : lists_(lists), bounds_(bounds), args_(args), weight_(*args.weight) {
    find_parts();
    shifted_ = !weight_.shift.empty() && (weight_.in == IntType::s8) != (args.dot == IntDot::sdot);
    // So many rows that the sums of a step stay in the second-level cache, and that long lists are
    // rarely interrupted.
    constexpr int64_t kStepRows = 1024, kLongStepRows = 256, kPointwiseRows = 64;
    int64_t rows = args.step_rows;
    if (!rows) rows = weight_.row_bytes <= 64 ? kStepRows : kLongStepRows;
    if (!args.step_rows && lists.n_k() == 1) rows = kPointwiseRows;
    tiles_ = std::max<int64_t>(1, rows / bounds.tile);
    for (int64_t k = 0; k < lists.n_k(); ++k)
      if (!list(k).in && list(k).size == lists.n_out && lists.n_out > 0) whole_ = k;
    // The first list to reach its output rows writes them instead of adding. With a shift it cannot
    // begin with the bias.
    writes_ = !shifted_ && (args.one_edge_each || whole_ >= 0);
    if (shifted_) whole_ = -1;
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
  // Columns of the input rows that lie together.
  struct Part {
    const uint8_t* x;
    int64_t pitch, bytes;
    int64_t begin;  // byte of the row at which the part begins
  };

  const OffsetList& list(int64_t k) const { return lists_.lists[static_cast<size_t>(k)]; }

  void find_parts() {
    const int64_t bytes = int_type_bytes(weight_.in), first = args_.x.columns * bytes,
                  more = args_.more.columns * bytes;
    const bool direct = !lists_.in_rows() && bytes == 1 && first % 16 == 0 && more % 16 == 0;
    if (!direct) {
      copy_rows(first, more);
      parts_.push_back({copy_.data(), weight_.row_bytes, weight_.row_bytes, 0});
      return;
    }
    parts_.push_back({static_cast<const uint8_t*>(args_.x.data), first, first, 0});
    if (more) parts_.push_back({static_cast<const uint8_t*>(args_.more.data), more, more, first});
  }

  void copy_rows(int64_t first, int64_t more) {
    copy_ = Buffer<uint8_t>(lists_.n_in * weight_.row_bytes);
    const auto one = static_cast<size_t>(first), two = static_cast<size_t>(more),
               all = static_cast<size_t>(weight_.row_bytes);
    const auto* x = static_cast<const uint8_t*>(args_.x.data);
    const auto* behind = static_cast<const uint8_t*>(args_.more.data);
    parallel_range(lists_.n_in, 2048, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        const auto row = static_cast<size_t>(lists_.in_rows() ? lists_.in_rows()[p] : p);
        uint8_t* to = copy_.data() + p * weight_.row_bytes;
        std::memcpy(to, x + row * one, one);
        if (behind) std::memcpy(to + one, behind + row * two, two);
        std::memset(to + one + two, 0, all - one - two);
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
      if (!writes_)
        for (int64_t r = 0; r < n; ++r)
          std::copy(start, start + kIntPanel, sums.data() + r * kIntPanel);
      if (whole_ >= 0) add(whole_, first, n, first, p, IntStart::given, same.data(), sums.data());
      const IntStart others = shifted_                         ? IntStart::both
                              : writes_ && args_.one_edge_each ? IntStart::given
                                                               : IntStart::sums;
      for (int64_t k = 0; k < n_k; ++k) {
        if (k == whole_) continue;
        const int64_t begin = bounds_.bounds[t0 * n_k + k], end = bounds_.bounds[t1 * n_k + k];
        if (begin < end) add(k, begin, end - begin, first, p, others, same.data(), sums.data());
      }
      finish(first, n, p, sums.data());
    }
  }

  void add(int64_t k, int64_t begin, int64_t n, int64_t first, int64_t p, IntStart start,
           const int32_t* same, int32_t* sums) const {
    const OffsetList& edges = list(k);
    IntListCall call{.in = edges.in ? edges.in + begin : same + (begin - first),
                     .out = edges.out ? edges.out + begin : same + (begin - first),
                     .n = n,
                     .sums = sums,
                     .first = static_cast<int32_t>(first)};
    call.start = start == IntStart::both
                     ? weight_.shift.data() + (k * weight_.panels + p) * kIntPanel
                     : weight_.bias.data() + p * kIntPanel;
    for (const Part& part : parts_) {
      call.x = part.x, call.pitch = part.pitch, call.bytes = part.bytes;
      call.w = weight_.block(k, p) + part.begin * kIntPanel;
      const IntListForm form{weight_.in != IntType::i16, weight_.row_bytes,
                             part.begin ? IntStart::sums : start};
      int_list_kernel(args_.dot, form)(call, lists_.out_once || start == IntStart::given);
    }
  }

  void finish(int64_t first, int64_t n, int64_t p, const int32_t* sums) const {
    const int64_t column = p * kIntPanel;
    const auto shifted = [&](const void* data, IntType type) {
      return static_cast<const uint8_t*>(data) + column * int_type_bytes(type);
    };
    const bool residual = args_.residual != nullptr;
    int_finish({.sums = sums,
                .scale = weight_.scale.data() + column,
                .factor = residual ? weight_.factor.data() + column : nullptr,
                .n = n,
                .columns = std::min(kIntPanel, weight_.c_out - column),
                .pitch = weight_.c_out,
                .first = first,
                .order = lists_.out_rows(),
                .residual = residual ? shifted(args_.residual, args_.residual_type) : nullptr,
                .residual_type = args_.residual_type,
                .out = args_.out,
                .relu = args_.relu,
                .table = args_.table,
                .y = const_cast<uint8_t*>(shifted(args_.y, args_.out))});
  }

  const RelationLists& lists_;
  const TileBounds& bounds_;
  const IntConvArgs& args_;
  const IntWeight& weight_;
  std::vector<Part> parts_;
  Buffer<uint8_t> copy_;
  int64_t tiles_ = 1;
  int64_t whole_ = -1;    // the list of every row with itself
  bool shifted_ = false;  // see IntWeight::shift
  bool writes_ = false;
};

}  // namespace

void int_conv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args) {
  const IntWeight& weight = *args.weight;
  check_call("int_conv", lists, bounds, {weight.c_in, weight.c_out});
  if (weight.n_k != lists.n_k() || args.x.columns + args.more.columns != weight.c_in ||
      (args.residual && weight.factor.empty()))
    throw std::invalid_argument("[int_conv] the weight does not fit lists, columns or residual");
  if (!has(args.dot))
    throw std::invalid_argument(std::string("[int_conv] this machine has no ") + name(args.dot));
  IntConv(lists, bounds, args).run();
}

}  // namespace lattice::cpu

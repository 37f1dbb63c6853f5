// 1. Rows of x with a whole number of 16 bytes are read where they lie, with a second part behind
//    them, if positions are rows or if few edges read a row. Otherwise x is copied once in the
//    order of the positions; bytes make this copy a hundredth of the work of a 3x3x3 kernel.
// 2. Tasks are steps of a few tiles. For each panel of 32 output columns the int32 sums of a step
//    lie in a small array; list k adds its edges with the packed block (k, panel).
// 3. The sums get residual, scale, clamp and rounding on their way to memory. Rows that have one
//    edge are finished in registers.
#include "lattice/kernels/cpu/features/int_conv.h"

#include <algorithm>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "lattice/kernels/cpu/base/threads.h"
#include "lattice/kernels/cpu/features/conv_plan.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kAhead = 16;  // rows that are asked for before they are copied

// Asks for rows that are scattered in memory before they are read. 2x2x2 down at C = 64 on room
// takes 0.6 of the time.
void prefetch(const uint8_t* row, int64_t bytes) {
#if defined(__GNUC__) || defined(__clang__)
  for (int64_t b = 0; b < bytes; b += 64) __builtin_prefetch(row + b);
#endif
  (void)row;
  (void)bytes;
}

class IntConv {
 public:
  IntConv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args)
      : lists_(lists), bounds_(bounds), args_(args), weight_(*args.weight) {
    find_parts();
    shifted_ = !weight_.shift.empty() && (weight_.in == IntType::s8) != (args.dot == IntDot::sdot);
    // So many rows that the sums of a step stay in the second-level cache, and that long lists are
    // rarely interrupted.
    constexpr int64_t kStepRows = 1024, kLongStepRows = 512, kPointwiseRows = 64;
    int64_t rows = args.step_rows;
    if (!rows) rows = weight_.row_bytes <= 128 ? kStepRows : kLongStepRows;
    if (!args.step_rows && lists.n_k() == 1) rows = kPointwiseRows;
    tiles_ = std::max<int64_t>(1, rows / bounds.tile);
    for (int64_t k = 0; k < lists.n_k(); ++k)
      if (!list(k).in && list(k).size == lists.n_out && lists.n_out > 0) whole_ = k;
    // The first list to reach its output rows writes them instead of adding.
    writes_ = args.one_edge_each || whole_ >= 0;
    single_ = whole_ >= 0 && lists.n_k() == 1;
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
    constexpr int64_t kFewReads = 2;
    const bool direct = bytes == 1 && first % 16 == 0 && more % 16 == 0 &&
                        (!lists_.in_rows() || lists_.n_edges <= kFewReads * lists_.n_in);
    if (direct) in_rows_ = lists_.in_rows();
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
    const int32_t* order = lists_.in_rows();
    parallel_range(lists_.n_in, 2048, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        if (order && p + kAhead < end) {
          const auto ahead = static_cast<size_t>(order[p + kAhead]);
          prefetch(x + ahead * one, first);
          if (behind) prefetch(behind + ahead * two, more);
        }
        const auto row = static_cast<size_t>(order ? order[p] : p);
        uint8_t* to = copy_.data() + p * weight_.row_bytes;
        std::memcpy(to, x + row * one, one);
        if (behind) std::memcpy(to + one, behind + row * two, two);
        if (all > one + two) std::memset(to + one + two, 0, all - one - two);
        if (weight_.in == IntType::i16) clamp_row(reinterpret_cast<int16_t*>(to));
      }
    });
  }

  void clamp_row(int16_t* row) const {
    const auto most = static_cast<int16_t>(int_input_most(IntType::i16));
    for (int64_t i = 0; i < weight_.row_bytes / 2; ++i)
      row[i] = std::clamp<int16_t>(row[i], static_cast<int16_t>(-most), most);
  }

  // Tiles [t0, t1) and panel p, the first of which is p0, and the memory of a step.
  struct Step {
    int64_t t0, t1, p0, p;
    int64_t first, n;      // output positions
    int32_t *sums, *same;  // same: the positions
    int32_t* rows;         // of the edges of a list, where rows are not positions
  };

  // Tiles [t0, t1), panels [p0, p1).
  void step(int64_t t0, int64_t t1, int64_t p0, int64_t p1) const {
    const int64_t first = t0 * bounds_.tile;
    const int64_t n = std::min(t1 * bounds_.tile, lists_.n_out) - first;
    Buffer<int32_t> sums(n * kIntPanel), same(n), rows(in_rows_ ? longest(t0, t1) : 0);
    for (int64_t p = 0; p < n; ++p) same[p] = static_cast<int32_t>(first + p);
    for (int64_t p = p0; p < p1; ++p)
      panel({t0, t1, p0, p, first, n, sums.data(), same.data(), rows.data()});
  }

  // Edges of list k before tile t.
  int64_t edge(int64_t t, int64_t k) const { return bounds_.bounds[t * lists_.n_k() + k]; }

  int64_t longest(int64_t t0, int64_t t1) const {
    int64_t most = 0;
    for (int64_t k = 0; k < lists_.n_k(); ++k) most = std::max(most, edge(t1, k) - edge(t0, k));
    return most;
  }

  void panel(const Step& s) const {
    const int32_t* bias = weight_.bias.data() + s.p * kIntPanel;
    if (!writes_)
      for (int64_t r = 0; r < s.n; ++r) std::copy(bias, bias + kIntPanel, s.sums + r * kIntPanel);
    const IntEnd end = end_of(s.p);
    const bool at_once = single_ && parts_.size() == 1 && ends_in_registers(end);
    if (whole_ >= 0) add(s, whole_, s.first, s.n, IntStart::given, at_once ? &end : nullptr);
    const IntStart others = args_.one_edge_each ? IntStart::given
                            : shifted_          ? IntStart::both
                                                : IntStart::sums;
    for (int64_t k = 0; k < lists_.n_k(); ++k) {
      const int64_t begin = edge(s.t0, k), n = edge(s.t1, k) - begin;
      if (k != whole_ && n > 0) add(s, k, begin, n, others, at_once ? &end : nullptr);
    }
    if (!at_once) int_end_kernel(args_.dot, end)(end, s.sums, s.first, s.n);
  }

  // Adds edges [begin, begin + n) of list k, or ends their rows.
  void add(const Step& s, int64_t k, int64_t begin, int64_t n, IntStart start,
           const IntEnd* end) const {
    const OffsetList& edges = list(k);
    IntListCall call{.in = edges.in ? edges.in + begin : s.same + (begin - s.first),
                     .out = edges.out ? edges.out + begin : s.same + (begin - s.first),
                     .n = n,
                     .sums = s.sums,
                     .first = static_cast<int32_t>(s.first),
                     .end = end};
    if (in_rows_) {
      for (int64_t e = 0; e < n; ++e) {
        s.rows[e] = in_rows_[call.in[e]];
        if (s.p == s.p0)
          for (const Part& part : parts_) prefetch(part.x + s.rows[e] * part.pitch, part.bytes);
      }
      call.in = s.rows;
    }
    const int32_t* bias = weight_.bias.data() + s.p * kIntPanel;
    const int32_t* shift =
        shifted_ ? weight_.shift.data() + (k * weight_.panels + s.p) * kIntPanel : nullptr;
    alignas(64) int32_t both[kIntPanel];
    if (shifted_)
      for (int64_t j = 0; j < kIntPanel; ++j) both[j] = bias[j] + shift[j];
    call.start = start == IntStart::both ? shift : shifted_ ? both : bias;
    for (const Part& part : parts_) {
      call.x = part.x, call.pitch = part.pitch, call.bytes = part.bytes;
      call.w = weight_.block(k, s.p) + part.begin * kIntPanel;
      const IntListForm form{weight_.in != IntType::i16, weight_.row_bytes,
                             part.begin ? IntStart::sums : start, end};
      int_list_kernel(args_.dot, form)(call, lists_.out_once || start == IntStart::given);
    }
  }

  IntEnd end_of(int64_t p) const {
    const int64_t column = p * kIntPanel;
    const auto from = [&](const void* data, IntType type) {
      return static_cast<const uint8_t*>(data) + column * int_type_bytes(type);
    };
    const bool residual = args_.residual != nullptr;
    return {.scale = weight_.scale.data() + column,
            .factor = residual ? weight_.factor.data() + column : nullptr,
            .columns = std::min(kIntPanel, weight_.c_out - column),
            .pitch = weight_.c_out,
            .order = lists_.out_rows(),
            .residual = residual ? from(args_.residual, args_.residual_type) : nullptr,
            .residual_type = args_.residual_type,
            .out = args_.out,
            .relu = args_.relu,
            .table = args_.table,
            .y = const_cast<uint8_t*>(from(args_.y, args_.out))};
  }

  const RelationLists& lists_;
  const TileBounds& bounds_;
  const IntConvArgs& args_;
  const IntWeight& weight_;
  std::vector<Part> parts_;
  Buffer<uint8_t> copy_;
  const int32_t* in_rows_ = nullptr;  // position -> row, where x is not copied
  int64_t tiles_ = 1;
  int64_t whole_ = -1;    // the list of every row with itself
  bool shifted_ = false;  // see IntWeight::shift
  bool writes_ = false, single_ = false;
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

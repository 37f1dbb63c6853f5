// The weights of a convolution as its kernels read them: one packed block per offset and panel.
// Weights of at most 64 MiB are packed once per call, or kept from earlier calls. Otherwise a block
// is made where it is used. Included once per Highway target.
#include "lattice/kernels/cpu/features/conv-inl.h"

#if defined(LATTICE_KERNELS_CPU_CONV_WEIGHTS_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_KERNELS_CPU_CONV_WEIGHTS_INL_H
#undef LATTICE_KERNELS_CPU_CONV_WEIGHTS_INL_H
#else
#define LATTICE_KERNELS_CPU_CONV_WEIGHTS_INL_H
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

class ConvWeights {
 public:
  ConvWeights(const RelationLists& lists, const ConvArgs& args)
      : lists_(lists),
        args_(args),
        rows_(args.c_in / args.groups),
        depthwise_(is_depthwise(args.c_in, args.c_out, args.groups)),
        panels_(cut_panels(args.c_in, args.c_out, args.groups, kLanes, kMaxVectors)) {
    constexpr int64_t kPackedFloats = int64_t{64} << 18;  // 64 MiB
    for (Panel& p : panels_) {
      p.begin = offset_floats_;
      offset_floats_ += block_floats(p);
    }
    packs_all_ = args.weight->keep_all() && lists.n_k() * offset_floats_ <= kPackedFloats;
  }

  const std::vector<Panel>& panels() const { return panels_; }
  // All blocks are in memory during the call.
  bool packs_all() const { return packs_all_; }
  // The blocks could be in memory, but there are too many.
  bool too_large() const { return args_.weight->keep_all() && !packs_all_; }
  int64_t block_floats(const Panel& p) const {
    return round_up(rows_, paired(p) ? 2 : 1) * p.vectors * kLanes;
  }

  // Before the first block: packs all weights, or those that have edges, unless they are kept from
  // other calls.
  void pack() {
    if (!packs_all_) return;
    const int64_t size = lists_.n_k() * offset_floats_;
    if (auto origin = args_.weight->origin(lists_.n_k(), args_.groups)) {
      origin->layout.insert(origin->layout.end(), {HWY_TARGET, args_.c_in, args_.c_out});
      kept_ = kept_weights(*origin, size, [&](float* to) { pack_into(to, true); });
    }
    if (!kept_) {
      own_ = Buffer<float>(size);
      pack_into(own_.data(), false);
    }
    all_ = kept_ ? kept_->data() : own_.data();
  }

  // The block of offset k and panel p; `room` is where it is made if it is not in memory.
  const float* block(int64_t k, const Panel& p, float* room) const {
    if (packs_all_) return all_ + k * offset_floats_ + p.begin;
    fill(k, p, room);
    return room;
  }

 private:
  bool paired(const Panel& p) const { return !depthwise_ && kListKernels[p.vectors - 1].paired; }

  // Rows of columns; paired, rows c and c + 1 interleaved.
  void fill(int64_t k, const Panel& p, float* dst) const {
    const int64_t width = p.vectors * kLanes;
    args_.weight->fill(k, p.column, p.columns, width, dst);
    if (!paired(p)) return;
    float pair[2 * kMaxVectors * kLanes];
    for (int64_t c = 0; c < rows_; c += 2, dst += 2 * width) {
      for (int64_t j = 0; j < width; ++j) {
        pair[2 * j] = dst[j];
        pair[2 * j + 1] = c + 1 < rows_ ? dst[width + j] : 0.0f;
      }
      std::copy(pair, pair + 2 * width, dst);
    }
  }

  void pack_into(float* to, bool all) const {
    const auto n_panels = static_cast<int64_t>(panels_.size());
    parallel_for(lists_.n_k() * n_panels, [&](int64_t i) {
      const int64_t k = i / n_panels;
      const Panel& p = panels_[static_cast<size_t>(i % n_panels)];
      if (all || lists_.lists[k].size > 0) fill(k, p, to + k * offset_floats_ + p.begin);
    });
  }

  const RelationLists& lists_;
  const ConvArgs& args_;
  int64_t rows_;  // input channels of a group
  bool depthwise_;
  std::vector<Panel> panels_;
  int64_t offset_floats_ = 0;  // blocks of one offset
  bool packs_all_ = true;
  KeptWeights kept_ = nullptr;
  Buffer<float> own_;
  const float* all_ = nullptr;  // of kept_ or own_
};

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

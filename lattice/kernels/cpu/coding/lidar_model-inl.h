// The loop over the bits of a level, compiled for every instruction set. It consists of plain loops
// over arrays of fixed length, which compilers turn into vector code.
#if defined(LATTICE_LIDAR_MODEL_INL) == defined(HWY_TARGET_TOGGLE)
#ifdef LATTICE_LIDAR_MODEL_INL
#undef LATTICE_LIDAR_MODEL_INL
#else
#define LATTICE_LIDAR_MODEL_INL
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

inline uint64_t mixed(uint64_t a, uint64_t b, uint64_t c) {
  uint64_t h = (a + 1) * 0x9e3779b97f4a7c15u + b * 0xbf58476d1ce4e5b9u + c * 0x94d049bb133111ebu;
  h ^= h >> 29;
  h *= 0xd6e8feb86659fd93u;
  return h ^ h >> 32;
}

template <bool kReading>
class LevelCoder {
  using M = LidarModel;
  using Counter = M::Counter;

 public:
  LevelCoder(M& model, const LidarLevel& call) : model_(model), call_(call), level_(*call.level) {}

  void run() {
    level_.masks.resize(level_.size());
    size_t parent = 0;
    unsigned rest = call_.parents ? call_.parents->masks[0] : 0;
    see_parent(parent);
    for (size_t i = 0; i < level_.size(); ++i) {
      if (call_.parents) {
        if (rest == 0) {
          rest = call_.parents->masks[++parent];
          see_parent(parent);
        }
        index_ = static_cast<uint32_t>(std::countr_zero(rest));
        rest &= rest - 1;
      }
      if (call_.hidden)
        for (size_t m = 0; m < LidarNet::kChannels; ++m)
          hidden_[m] = call_.hidden[i * LidarNet::kChannels + m];
      const uint8_t given = kReading ? 0 : call_.given[i];
      level_.masks[i] = call_.fast && call_.hidden ? fast_mask(given) : mask(i, given);
      call_.meter->next([&] { return call_.share(i); });
    }
  }

 private:
  bool code(int p, bool bit) {
    const auto zero = static_cast<uint32_t>(std::clamp(65536 - p, kLeast, 65536 - kLeast));
    if constexpr (kReading) return call_.decoder->decode_bit(zero);
    call_.encoder->encode_bit(bit, zero);
    return bit;
  }

  // 256 ln(p1 / p0) of the next bit by the network.
  int logit(uint32_t prefix) const {
    const int16_t* w = call_.net->bits() + size_t{prefix} * LidarNet::kChannels;
    int32_t sum = 0;
    for (int m = 0; m < LidarNet::kChannels; ++m) sum += int32_t{hidden_[m]} * w[m];
    return std::clamp((sum + call_.net->constants()[prefix]) >> 7, 1 - kDomain, kDomain - 1);
  }

  uint8_t fast_mask(uint8_t given) {
    uint32_t prefix = 1;  // a one, then the bits so far, which stand in reverse below
    uint32_t got = 0;
    for (int j = 0; j < 8; ++j) {
      if (j == 7 && got == 0) return 128;
      prefix = 1u << j | got;
      const bool bit = code(squash(logit(prefix)), given >> j & 1);
      got |= uint32_t{bit} << j;
    }
    return static_cast<uint8_t>(got);
  }

  void see_parent(size_t parent) {
    parent_nodes_ = parent_mask_ = 0;
    if (!call_.parents) return;
    parent_mask_ = call_.parents->masks[parent];
    const int32_t* around = call_.parents->around.data() + parent * kAround;
    for (int s = 0; s < kAround; ++s) parent_nodes_ |= uint32_t{around[s] >= 0} << s;
  }

  void see_node(size_t i) {
    occupied_ = unknown_ = 0;
    nodes_ = 1u << kSelf;
    const int32_t* around = level_.around.data() + i * kAround;
    const auto me = static_cast<int32_t>(i);
    for (size_t s = 0; s < kAround; ++s) {
      const int32_t n = around[s];
      if (n < 0) continue;
      nodes_ |= 1u << s;
      if (n < me)
        occupied_ |= kCells.cells[s][level_.masks[static_cast<size_t>(n)]];
      else
        unknown_ |= kCells.cells[s][255];
    }
    constexpr std::array<size_t, 3> kBefore{12, 10, 4};  // -x, -y, -z
    for (size_t a = 0; a < 3; ++a) {
      const int32_t n = around[kBefore[a]];
      beside_[a] = n < 0 ? 0u : n < me ? level_.masks[static_cast<size_t>(n)] : 256u;
    }
    const Place& place = (*call_.places)[i];
    range_ = place.range >> 1;
    const auto side = [&](size_t a) { return uint32_t{place.direction[a] > 16} << a; };
    const int x = std::abs(place.direction[0] - 16), y = std::abs(place.direction[1] - 16),
              z = std::abs(place.direction[2] - 16);
    const uint32_t steep = 4 * z >= std::max(x, y) ? 3u : x > 2 * y ? 0u : y > 2 * x ? 1u : 2u;
    direction_ = (side(0) | side(1) | side(2)) * 4 + steep;
  }

  // The scanner turns a fixed number of beams, so points lie at few heights over distance, and at
  // few azimuths. Whether a beam can meet a child is learned from these, in steps of 1/2048 and
  // 1/1024 of an eighth of a turn. Square roots of IEEE 754 have the same bits everywhere.
  void see_rays(size_t i) {
    constexpr int64_t kFar = int64_t{1} << 30;
    std::array<std::array<int64_t, 2>, 3> d;  // from the sensor, in halves of a child
    for (size_t a = 0; a < 3; ++a)
      for (int64_t b = 0; b < 2; ++b)
        d[a][static_cast<size_t>(b)] =
            std::clamp(2 * (2 * int64_t{level_.nodes[i][a + 1]} + b) + 1 -
                           ((2 * call_.sensor[a] + 1) >> (call_.shift - 1)),
                       -kFar, kFar);
    for (size_t j = 0; j < 4; ++j) {
      const int64_t x = d[0][j & 1], y = d[1][j >> 1], across = std::abs(x), along = std::abs(y);
      const int64_t most = std::max({across, along, int64_t{1}});
      azimuth_[j] = static_cast<uint32_t>((std::min(across, along) << 10) / most) << 3 |
                    uint32_t{x < 0} | uint32_t{y < 0} << 1 | uint32_t{across < along} << 2;
      const auto far = static_cast<int64_t>(std::sqrt(static_cast<double>(x * x + y * y)));
      for (size_t b = 0; b < 2; ++b) {
        const int64_t height = (d[2][b] << 11) / std::max(far, int64_t{1}) - (d[2][b] < 0);
        height_[j + 4 * b] =
            static_cast<uint32_t>(std::clamp<int64_t>(height, -16384, 16383) + 16384);
      }
    }
  }

  uint8_t mask(size_t i, uint8_t given) {
    see_node(i);
    see_rays(i);
    uint32_t got = 0;
    for (uint32_t j = 0; j < 8; ++j) {
      if (j == 7 && got == 0) return 128;  // a node has a child
      const int p = predict(j, got);
      const bool bit = code(p, given >> j & 1);
      learn(bit);
      got |= uint32_t{bit} << j;
      const uint64_t cell = kCells.cells[kSelf][size_t{1} << j];
      unknown_ &= ~cell;
      if (bit) occupied_ |= cell;
    }
    return static_cast<uint8_t>(got);
  }

  int predict(uint32_t j, uint32_t got) {
    uint64_t o = occupied_, u = unknown_;
    uint32_t nodes = nodes_;
    for (int axis = 0; axis < 3; ++axis)
      if (!(j >> axis & 1)) {
        o = mirror(o, axis);
        u = mirror(u, axis);
        nodes = mirror3(nodes, axis);
      }
    const uint32_t occ = inner(o), unk = inner(u) & ~(1u << kSelf), prefix = 1u << j | got;
    const auto count = [](auto v) { return static_cast<uint32_t>(std::popcount(v)); };
    const uint32_t n_occ = count(occ), n_unk = count(unk), n_nodes = count(nodes);
    const uint32_t faces = occ & kFaces, open = unk & kFaces, own = nodes_ & kFaces,
                   depth = static_cast<uint32_t>(call_.depth);
    const int net = call_.hidden ? logit(prefix) : 0;
    const uint32_t belief = call_.hidden ? 1u + static_cast<uint32_t>(squash(net) >> 13) : 0u;
    const auto fine = static_cast<uint32_t>((net + kDomain) >> 6);
    const uint32_t height = height_[j], azimuth = azimuth_[j & 3];
    const std::array<uint64_t, M::kContexts> contexts{
        mixed(occ & (kFaces | kEdges), open, 1),
        mixed(occ, open, nodes & kTouching),
        mixed(nodes, prefix, 2),
        mixed(nodes & kTouching, fine >> 1, faces),
        mixed(n_occ, n_unk, j | faces << 3),
        mixed(parent_mask_, index_, prefix),
        mixed(prefix, depth << 6 | range_, own),
        mixed(prefix, beside_[0], beside_[1]),
        mixed(prefix, beside_[2], beside_[0]),
        mixed(prefix, direction_, depth),
        mixed(parent_nodes_, prefix, index_),
        mixed(prefix, fine, n_unk),
        mixed(prefix, fine >> 1, beside_[0] << 9 | beside_[1]),
        mixed(occ, unk, fine >> 3),
        mixed(prefix, beside_[2] << 9 | beside_[1], parent_mask_),
        mixed(prefix, fine, range_),
        mixed(height, range_, prefix),
        mixed(azimuth, range_, prefix),
        mixed(height, azimuth >> 7 << 3 | (azimuth & 7), range_ << 8 | prefix),
        mixed(height, range_ << 4 | belief, count(got) << 4 | std::min(n_occ, 15u)),
        mixed(height, faces << 8 | open, range_),
    };
    choose_counters(contexts);
    inputs_[2 * M::kContexts] = static_cast<int16_t>(net);
    inputs_[2 * M::kContexts + 1] = static_cast<int16_t>(
        std::clamp((net * std::abs(net) * 39) >> 16, 1 - kDomain, kDomain - 1));
    inputs_[2 * M::kContexts + 2] = 77;
    const uint32_t blind = n_unk == 0 ? 0 : n_unk < 4 ? 1 : n_unk < 10 ? 2 : 3;
    const std::array<size_t, M::kSets> choice{j * 28 + n_occ, size_t{prefix} * 9 + belief,
                                              (size_t{std::min(depth, 15u)} * 8 + j) * 4 + blind,
                                              (size_t{range_} * 8 + j) * 4 + blind,
                                              (size_t{fine >> 1} * 28 + n_nodes) * 8 + j};
    return last(guess(choice), prefix * 16 + std::min(15u, n_unk / 2));
  }

  // The counter of each context, and two inputs from each.
  HWY_INLINE void choose_counters(const std::array<uint64_t, M::kContexts>& contexts) {
    const int shift = 64 - model_.table_bits;
    for (size_t k = 0; k < M::kContexts; ++k) {
      chosen_[k] =
          &model_.counters[static_cast<int64_t>((k << model_.table_bits) + (contexts[k] >> shift))];
      hwy::Prefetch(chosen_[k]);
    }
    for (size_t k = 0; k < M::kContexts; ++k) {
      Counter& c = *chosen_[k];
      const auto check = static_cast<uint16_t>(contexts[k]);
      if (c.check != check) c = {32768, 32768, 0, check};
      const int trust = kCounts.trust[c.count];
      inputs_[2 * k] = static_cast<int16_t>((kLogistic.stretch[c.slow >> 4] * trust) >> 6);
      inputs_[2 * k + 1] = static_cast<int16_t>((kLogistic.stretch[c.fast >> 4] * trust) >> 6);
    }
  }

  // The mean of what the chosen sets of weights make of the inputs.
  HWY_INLINE int guess(const std::array<size_t, M::kSets>& choice) {
    int sum = 0;
    for (size_t k = 0; k < M::kSets; ++k) {
      sets_[k] = model_.weights[k].data() + choice[k] * M::kInputs;
      const int s = dot(sets_[k]);
      guesses_[k] = squash(s);
      sum += s;
    }
    return sum / M::kSets;
  }

  // Inputs times the upper halves of the weights; 48 products below 2^25 each.
  int dot(const int32_t* weights) const {
    int32_t sum = 0;
    for (int i = 0; i < M::kInputs; ++i)
      sum += int32_t{inputs_[i]} * static_cast<int16_t>(weights[i] >> 16);
    return std::clamp(sum >> (kWeightBits - 16), 1 - kDomain, kDomain - 1);
  }

  int last(int s, size_t row) {
    const int at = s + kDomain, part = at & 127;
    low_ = model_.last.data() + row * M::kLastSteps + (at >> 7);
    part_ = part;
    const int table = (low_[0] * (128 - part) + low_[1] * part) >> 7;
    return (squash(s) + table) >> 1;
  }

  void learn(bool bit) {
    const int target = bit ? 65535 : 0;
    low_[0] = static_cast<uint16_t>(low_[0] + (target - low_[0]) * (128 - part_) / 8192);
    low_[1] = static_cast<uint16_t>(low_[1] + (target - low_[1]) * part_ / 8192);
    for (size_t k = 0; k < M::kSets; ++k) {
      const auto error = static_cast<int16_t>((target - guesses_[k]) / 16);
      int32_t* w = sets_[k];
      for (int i = 0; i < M::kInputs; ++i)
        w[i] = std::clamp(w[i] + int32_t{inputs_[i]} * error, -(1 << 30), 1 << 30);
    }
    for (Counter* c : chosen_) {
      c->slow = static_cast<uint16_t>(c->slow +
                                      int64_t{target - c->slow} * kCounts.step[c->count] / 65536);
      c->fast = static_cast<uint16_t>(c->fast + (target - c->fast) / 5);
      c->count += c->count < kMostCount;
    }
  }

  M& model_;
  const LidarLevel& call_;
  OctreeLevel& level_;
  uint64_t occupied_ = 0, unknown_ = 0;
  uint32_t nodes_ = 0, parent_nodes_ = 0, parent_mask_ = 0, index_ = 0, range_ = 0, direction_ = 0;
  std::array<uint32_t, 3> beside_{};
  alignas(64) int16_t inputs_[M::kInputs] = {};
  alignas(64) int16_t hidden_[LidarNet::kChannels] = {};
  std::array<Counter*, M::kContexts> chosen_{};
  std::array<int32_t*, M::kSets> sets_{};
  std::array<int, M::kSets> guesses_{};
  std::array<uint32_t, 8> height_{};
  std::array<uint32_t, 4> azimuth_{};
  uint16_t* low_ = nullptr;
  int part_ = 0;
};

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif

#include "lattice/kernels/cpu/coding/lidar_net.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>

namespace lattice::cpu {
namespace {

constexpr int kChannels = LidarNet::kChannels;
constexpr int kRanges = 64, kDirections = 33;
constexpr std::string_view kReader = "codec model";

// FNV-1a (Fowler, Noll, Vo).
uint64_t checksum(Bytes data) {
  uint64_t sum = 0xcbf29ce484222325u;
  for (uint8_t byte : data) sum = (sum ^ byte) * 0x100000001b3u;
  return sum;
}

template <typename T>
std::vector<T> numbers(ByteReader& reader, size_t n) {
  const Bytes bytes = reader.bytes(n * sizeof(T));
  std::vector<T> out(n);
  for (size_t i = 0; i < n; ++i)
    out[i] = std::bit_cast<T>(get<std::make_unsigned_t<T>>(bytes.data() + i * sizeof(T)));
  return out;
}

int64_t most_of(const std::vector<int16_t>& values) {
  int64_t most = 0;
  for (int16_t v : values) most = std::max<int64_t>(most, std::abs(int{v}));
  return most;
}

// Weights, biases, and units or, where a residual is added, whole numbers that are one over a unit.
// residual: its largest magnitude, or 0.
IntWeight read_layer(ByteReader& reader, int64_t n_k, IntType kind, int64_t residual) {
  const size_t n = static_cast<size_t>(n_k) * kChannels * kChannels;
  const auto codes = numbers<int8_t>(reader, n);
  const auto bias = numbers<int32_t>(reader, kChannels);
  const auto last = numbers<int32_t>(reader, kChannels);
  std::vector<float> scale(kChannels);
  for (size_t m = 0; m < kChannels; ++m) {
    scale[m] = residual ? 1.0f / static_cast<float>(last[m]) : std::bit_cast<float>(last[m]);
    int64_t sum = std::abs(int64_t{bias[m]}) + (residual ? int64_t{last[m]} * residual : 0);
    for (size_t i = m; i < n; i += kChannels) sum += 255 * std::abs(int64_t{codes[i]});
    if (!(scale[m] > 0 && scale[m] <= 1) || sum >= int64_t{1} << 24)
      throw_bad_data(kReader, "has a layer whose sums can reach 2^24, expected smaller weights");
  }
  IntLayer layer{IntType::u8, n_k, kChannels, kChannels, codes.data(), bias.data(), scale.data()};
  if (residual) layer.factor = last.data(), layer.residual = kind;
  return IntWeight(layer);
}

Buffer<uint8_t> convolved(const RelationLists& lists, const TileBounds& bounds,
                          const IntWeight& weight, const Buffer<uint8_t>& x, const void* residual,
                          IntType kind, bool one_edge_each) {
  Buffer<uint8_t> y(lists.n_out * kChannels);
  IntConvArgs args;
  args.weight = &weight;
  args.x = {x.data(), kChannels};
  args.residual = residual;
  args.residual_type = kind;
  args.y = y.data();
  args.one_edge_each = one_edge_each;
  args.dot = int_dots().front();
  int_conv(lists, bounds, args);
  return y;
}

// Lists of edges in the order of the rows that they write.
class Lists {
 public:
  Lists(int64_t n_k, int64_t n_in, int64_t n_out) : sizes_(static_cast<size_t>(n_k)) {
    lists_.n_in = n_in;
    lists_.n_out = n_out;
    lists_.monotone = false;
    lists_.lists.resize(sizes_.size());
  }
  // each(add) calls add(k, in, out) for every edge, twice.
  template <typename Each>
  RelationLists fill(const Each& each) {
    each([&](size_t k, int32_t, int32_t) { ++sizes_[k]; });
    for (int64_t n : sizes_) lists_.n_edges += n;
    auto ends = std::make_shared<Buffer<int32_t>>(2 * lists_.n_edges);
    std::vector<int32_t*> in, out;
    int32_t* next = ends->data();
    for (size_t k = 0; k < sizes_.size(); ++k) {
      in.push_back(next);
      out.push_back(next + sizes_[k]);
      lists_.lists[k] = {in[k], out[k], sizes_[k]};
      next += 2 * sizes_[k];
    }
    each([&](size_t k, int32_t i, int32_t o) {
      *in[k]++ = i;
      *out[k]++ = o;
    });
    lists_.storage.push_back(std::move(ends));
    return std::move(lists_);
  }

 private:
  RelationLists lists_;
  std::vector<int64_t> sizes_;
};

// Every node with its neighbors.
RelationLists neighbor_lists(const OctreeLevel& level) {
  const auto n = static_cast<int64_t>(level.size());
  RelationLists lists = Lists(kAround, n, n).fill([&](const auto& add) {
    const int32_t* around = level.around.data();
    for (int32_t i = 0; i < n; ++i, around += kAround)
      for (size_t s = 0; s < kAround; ++s)
        if (around[s] >= 0 && s != kSelf) add(s, around[s], i);
  });
  lists.lists[kSelf] = {nullptr, nullptr, n};
  lists.n_edges += n;
  return lists;
}

}  // namespace

std::vector<Place> places_of(const OctreeLevel& level, const std::array<int64_t, 3>& sensor,
                             int shift) {
  constexpr int64_t kFar = int64_t{1} << 30;
  std::vector<Place> places(level.size());
  for (size_t i = 0; i < places.size(); ++i) {
    std::array<int64_t, 3> d;
    uint64_t square = 0;
    int64_t most = 1;
    for (size_t a = 0; a < 3; ++a) {
      d[a] = std::clamp(2 * int64_t{level.nodes[i][a + 1]} + 1 - ((2 * sensor[a] + 1) >> shift),
                        -kFar, kFar);
      square += static_cast<uint64_t>(d[a] * d[a]);
      most = std::max(most, std::abs(d[a]));
    }
    const int top = static_cast<int>(std::bit_width(square)) - 1;
    if (top > 0)
      places[i].range = static_cast<uint8_t>(
          std::min(2 * top + static_cast<int>(square >> (top - 1) & 1), kRanges - 1));
    for (size_t a = 0; a < 3; ++a)
      places[i].direction[a] = static_cast<uint8_t>(16 * (d[a] + most) / most);
  }
  return places;
}

LidarNet::LidarNet(Bytes file) : identity_(checksum(file)) {
  ByteReader reader(file, kReader);
  const Bytes magic = reader.bytes(4);
  if (!std::equal(magic.begin(), magic.end(), "MLNT") || reader.number<uint16_t>() != 1 ||
      reader.number<uint16_t>() != kChannels)
    throw_bad_data(kReader, "is no network of version 1 with 32 channels");
  masks_ = numbers<int16_t>(reader, size_t{256} * kChannels);
  ranges_ = numbers<int16_t>(reader, size_t{kRanges} * kChannels);
  directions_ = numbers<int16_t>(reader, size_t{3} * kDirections * kChannels);
  const int64_t place = most_of(ranges_) + 3 * most_of(directions_);
  if (most_of(masks_) + 255 > INT16_MAX || place > INT16_MAX)
    throw_bad_data(kReader, "has tables that leave 16 bits");
  up_.push_back(read_layer(reader, 8, IntType::i16, std::max<int64_t>(place, 1)));
  for (int i = 0; i < 3; ++i) {
    IntWeight first = read_layer(reader, kAround, IntType::u8, 0);
    blocks_.push_back({std::move(first), read_layer(reader, kAround, IntType::u8, 255)});
  }
  head_.push_back(read_layer(reader, 1, IntType::u8, 0));
  bits_ = numbers<int16_t>(reader, size_t{256} * kChannels);
  constants_ = numbers<int32_t>(reader, 256);
  for (int32_t c : constants_)
    if (std::abs(int64_t{c}) > 1 << 28) throw_bad_data(kReader, "has constants beyond 2^28");
  if (!reader.rest().empty()) throw_bad_data(kReader, "has bytes after its end");
}

const LidarNet& LidarNet::shipped() {
  static const LidarNet net(shipped_file());
  return net;
}

void LidarNet::add_block(Buffer<uint8_t>& x, const Block& block, const Handed& on) const {
  const auto y = convolved(on.lists, on.bounds, block.first, x, nullptr, IntType::u8, false);
  x = convolved(on.lists, on.bounds, block.second, y, x.data(), IntType::u8, false);
}

Buffer<uint8_t> LidarNet::children(const OctreeLevel& above, const Buffer<uint8_t>& x,
                                   const OctreeLevel& level,
                                   const std::vector<Place>& places) const {
  const auto n = static_cast<int64_t>(level.size());
  RelationLists lists = Lists(8, static_cast<int64_t>(above.size()), n).fill([&](const auto& add) {
    int32_t child = 0;
    for (size_t i = 0; i < above.size(); ++i)
      for (unsigned rest = above.masks[i]; rest != 0; rest &= rest - 1)
        add(static_cast<size_t>(std::countr_zero(rest)), static_cast<int32_t>(i), child++);
  });
  lists.in_once = true;
  Buffer<int16_t> seen(n * kChannels);
  for (int64_t i = 0; i < n; ++i) {
    const Place& place = places[static_cast<size_t>(i)];
    const int16_t* range = ranges_.data() + place.range * kChannels;
    std::array<const int16_t*, 3> d;
    for (size_t a = 0; a < 3; ++a)
      d[a] =
          directions_.data() + (static_cast<int>(a) * kDirections + place.direction[a]) * kChannels;
    for (int m = 0; m < kChannels; ++m)
      seen[i * kChannels + m] = static_cast<int16_t>(range[m] + d[0][m] + d[1][m] + d[2][m]);
  }
  const TileBounds bounds = tile_bounds(lists, conv_tile(lists));
  return convolved(lists, bounds, up_[0], x, seen.data(), IntType::i16, true);
}

Buffer<uint8_t> LidarNet::run(const OctreeLevel& above, const OctreeLevel& level,
                              const std::vector<Place>& places, Handed& handed) const {
  const auto prepare = [](const OctreeLevel& of, Handed& made) {
    made.lists = neighbor_lists(of);
    made.bounds = tile_bounds(made.lists, conv_tile(made.lists));
  };
  const auto n_above = static_cast<int64_t>(above.size());
  Buffer<uint8_t> x(n_above * kChannels);
  if (handed.features.empty()) prepare(above, handed);
  for (int64_t i = 0; i < n_above; ++i) {
    const int16_t* table = masks_.data() + above.masks[static_cast<size_t>(i)] * kChannels;
    for (int64_t m = 0; m < kChannels; ++m) {
      const int given = handed.features.empty() ? 0 : handed.features[i * kChannels + m];
      x[i * kChannels + m] = static_cast<uint8_t>(std::clamp(given + table[m], 0, 255));
    }
  }
  add_block(x, blocks_[0], handed);
  Buffer<uint8_t> u = children(above, x, level, places);
  prepare(level, handed);
  add_block(u, blocks_[1], handed);
  add_block(u, blocks_[2], handed);
  handed.features = std::move(u);
  RelationLists own;
  own.n_in = own.n_out = own.n_edges = static_cast<int64_t>(level.size());
  own.lists.push_back({nullptr, nullptr, own.n_out});
  const TileBounds bounds = tile_bounds(own, conv_tile(own));
  return convolved(own, bounds, head_[0], handed.features, nullptr, IntType::u8, true);
}

}  // namespace lattice::cpu

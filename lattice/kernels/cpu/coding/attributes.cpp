#include "lattice/kernels/cpu/coding/attributes.h"

#include <algorithm>
#include <array>
#include <bit>

#include "lattice/kernels/cpu/coding/bit_model.h"
#include "lattice/kernels/cpu/coding/range_coder.h"

namespace lattice::cpu {
namespace {

constexpr int64_t kBack = 16;

uint64_t distance(const int32_t* a, const int32_t* b) {
  uint64_t d = a[0] == b[0] ? 0 : uint64_t{1} << 40;
  for (int i = 1; i < 4; ++i) d += static_cast<uint64_t>(std::abs(int64_t{a[i]} - b[i]));
  return d;
}

// The row that predicts `row`, or -1.
int64_t near_row(std::span<const int32_t> rows, int64_t row) {
  int64_t best = -1;
  uint64_t least = ~uint64_t{0};
  for (int64_t r = row - 1; r >= std::max<int64_t>(0, row - kBack); --r)
    if (const uint64_t d =
            distance(&rows[static_cast<size_t>(4 * row)], &rows[static_cast<size_t>(4 * r)]);
        d < least) {
      least = d;
      best = r;
    }
  return best;
}

// Integers of `width` bytes that sort like the values.
class Values {
 public:
  Values(ValueKind kind)
      : kind_(kind), bits_(8 * kind.width), mask_(~uint32_t{0} >> (32 - bits_)) {}
  uint32_t load(const uint8_t* p) const {
    uint32_t v = 0;
    for (int i = 0; i < kind_.width; ++i) v |= uint32_t{p[i]} << (8 * i);
    return kind_.is_float ? (v >> (bits_ - 1) ? ~v & mask_ : v | sign()) : v;
  }
  void store(uint32_t v, uint8_t* p) const {
    if (kind_.is_float) v = v & sign() ? v & ~sign() : ~v & mask_;
    for (int i = 0; i < kind_.width; ++i) p[i] = static_cast<uint8_t>(v >> (8 * i));
  }
  uint32_t fold(uint32_t v, uint32_t from) const {
    const uint32_t d = (v - from) & mask_;
    return (d << 1 ^ (d & sign() ? ~uint32_t{0} : 0)) & mask_;
  }
  uint32_t unfold(uint32_t u, uint32_t from) const {
    return (from + ((u >> 1) ^ (u & 1 ? mask_ : 0))) & mask_;
  }

 private:
  uint32_t sign() const { return uint32_t{1} << (bits_ - 1); }
  ValueKind kind_;
  int bits_;
  uint32_t mask_;
};

// Bytes of folded differences: the tree of a byte's bits under four contexts.
class ByteModel {
 public:
  ByteModel() : mixer_(kContexts, 64) {
    for (auto& table : tables_) table.resize(size_t{1} << kTableBits);
  }
  // code(zero, bit) writes and returns the bit, or reads it. a: of the channel before, b: of the
  // predicting row.
  template <typename Code>
  uint32_t code(uint32_t given, int width, int64_t channel, uint32_t a, uint32_t b,
                const Code& coder) {
    uint32_t got = 0;
    for (int byte = width - 1; byte >= 0; --byte) {
      const auto place = static_cast<uint32_t>(channel * 4 + byte);
      const uint32_t above = got;  // the higher bytes
      uint32_t node = 1;
      for (int i = 7; i >= 0; --i) {
        const auto near = static_cast<uint32_t>(std::bit_width(a) * 33 + std::bit_width(b));
        const std::array<uint32_t, kContexts> contexts{
            hash(place, node, 0), hash(place, node, above + 1),
            hash(place, node, (a >> (8 * byte)) + 0x10000), hash(place, node, near + 0x30000)};
        std::array<BitCounter*, kContexts> counters;
        for (size_t k = 0; k < kContexts; ++k)
          counters[k] = &tables_[k][contexts[k] >> (32 - kTableBits)];
        const uint32_t zero = mixer_.zero(counters, static_cast<int>(place & 7) * 8 + i);
        const bool bit = coder(zero, (given >> (8 * byte + i) & 1) != 0);
        mixer_.update(bit);
        node = node << 1 | static_cast<uint32_t>(bit);
      }
      got = got << 8 | (node & 255);
    }
    return got;
  }

 private:
  static constexpr size_t kContexts = 4;
  static constexpr int kTableBits = 16;

  static uint32_t hash(uint32_t a, uint32_t b, uint32_t c) {
    const uint64_t h = (a * uint64_t{0x9e3779b97f4a7c15u} ^ b) * 0xbf58476d1ce4e5b9u;
    return static_cast<uint32_t>(((h ^ h >> 31 ^ c) * 0x94d049bb133111ebu) >> 32);
  }
  std::array<std::vector<BitCounter>, kContexts> tables_;
  BitMixer mixer_;
};

// Walks all values; value(at, prediction, a, b) returns the folded difference of the value at byte
// `at`.
template <typename Visit>
void walk(std::span<const int32_t> sorted, int64_t channels, ValueKind kind, const uint8_t* values,
          const Visit& visit) {
  const int64_t rows = static_cast<int64_t>(sorted.size()) / 4;
  const Values numbers(kind);
  std::vector<uint32_t> differences(
      static_cast<size_t>(channels * (kBack + 1)));  // of the last rows, in a ring
  const auto difference = [&](int64_t row, int64_t c) -> uint32_t& {
    return differences[static_cast<size_t>(row % (kBack + 1) * channels + c)];
  };
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t from = near_row(sorted, row);
    for (int64_t c = 0; c < channels; ++c) {
      const uint32_t prediction =
          from < 0 ? 0 : numbers.load(values + (from * channels + c) * kind.width);
      const uint32_t a = c == 0 ? 0 : difference(row, c - 1),
                     b = from < 0 ? 0 : difference(from, c);
      difference(row, c) = visit((row * channels + c) * kind.width, c, prediction, a, b);
    }
  }
}

}  // namespace

std::vector<uint8_t> encode_values(std::span<const int32_t> sorted, Bytes values, int64_t channels,
                                   ValueKind kind, Meter meter) {
  const Values numbers(kind);
  RangeEncoder coder;
  ByteModel model;
  walk(sorted, channels, kind, values.data(),
       [&](int64_t at, int64_t c, uint32_t prediction, uint32_t a, uint32_t b) {
         meter.next([&] { return static_cast<double>(at) / static_cast<double>(values.size()); });
         const uint32_t u = numbers.fold(numbers.load(values.data() + at), prediction);
         return model.code(u, kind.width, c, a, b, [&](uint32_t zero, bool bit) {
           coder.encode_bit(bit, zero);
           return bit;
         });
       });
  return coder.finish();
}

std::vector<uint8_t> decode_values(std::span<const int32_t> sorted, Bytes data, int64_t channels,
                                   ValueKind kind, std::string_view operation, Meter meter) {
  const uint64_t size = uint64_t{sorted.size()} / 4 * static_cast<uint64_t>(channels * kind.width);
  // A byte is 8 bits of at least kLeast / 65536 bits each.
  if (size > (uint64_t{data.size()} + 8) * (65536 / kLeast))
    throw_bad_data(operation,
                   "claims " + std::to_string(size) + " bytes of values, which it cannot hold");
  const Values numbers(kind);
  RangeDecoder coder(data, operation);
  ByteModel model;
  std::vector<uint8_t> values(static_cast<size_t>(size));
  walk(sorted, channels, kind, values.data(),
       [&](int64_t at, int64_t c, uint32_t prediction, uint32_t a, uint32_t b) {
         meter.next([&] { return coder.share(); });
         const uint32_t u = model.code(0, kind.width, c, a, b,
                                       [&](uint32_t zero, bool) { return coder.decode_bit(zero); });
         numbers.store(numbers.unfold(u, prediction), values.data() + at);
         return u;
       });
  coder.finish();
  return values;
}

}  // namespace lattice::cpu

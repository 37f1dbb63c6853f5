#include "lattice/kernels/cpu/coding/rans.h"

#include <algorithm>
#include <array>
#include <bit>

#include "lattice/kernels/cpu/base/hwy_targets.h"
#include "lattice/kernels/cpu/base/memory.h"
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "lattice/kernels/cpu/coding/rans.cpp"
#include <hwy/foreach_target.h>
// foreach_target must come first.
#include <hwy/highway.h>

#ifndef LATTICE_RANS_ONCE
#define LATTICE_RANS_ONCE
namespace lattice::cpu {
namespace rans {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kLow = 1u << 16;

// One table for all rows, by slot. Entries are one byte up to 256 symbols, else two; 4 bytes of
// padding for gathers.
struct Lookup {
  Buffer<uint8_t> symbol;
  Buffer<uint32_t> interval;  // size << 16 | start
  bool wide = false;

  explicit Lookup(const CdfSpan& cdf) : interval(cdf.alphabet), wide(cdf.alphabet > 256) {
    symbol = Buffer<uint8_t>((wide ? 2 : 1) * 65536 + 4);
    std::fill(symbol.end() - 4, symbol.end(), uint8_t{0});
    for (int64_t s = 0; s < cdf.alphabet; ++s) {
      const uint32_t start = CdfSpan::start(cdf.data, s), size = cdf.size(cdf.data, s);
      interval[s] = size << 16 | start;
      for (uint32_t at = start; at < start + size; ++at) {
        if (wide) {
          symbol[2 * at] = static_cast<uint8_t>(s);
          symbol[2 * at + 1] = static_cast<uint8_t>(s >> 8);
        } else {
          symbol[at] = static_cast<uint8_t>(s);
        }
      }
    }
  }
  uint32_t find(uint32_t slot) const {
    return wide ? uint32_t{symbol[2 * slot]} | uint32_t{symbol[2 * slot + 1]} << 8
                : uint32_t{symbol[slot]};
  }
};

struct Words {
  const uint8_t* at;
  const uint8_t* end;
};

}  // namespace rans
}  // namespace lattice::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace lattice::cpu::HWY_NAMESPACE {

// Decodes blocks of 32 rows while there are rows and 32 words; returns the rows done.
template <bool kWide>
int64_t decode_blocks(const rans::Lookup& lookup, const uint32_t* expand, uint32_t* states,
                      rans::Words& words, int64_t rows, int32_t* out) {
  int64_t done = 0;
#if HWY_MAX_BYTES >= 32 && !HWY_HAVE_SCALABLE
  namespace hn = hwy::HWY_NAMESPACE;
  const hn::FixedTag<uint32_t, 8> d;
  const hn::FixedTag<int32_t, 8> di;
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint16_t, 8> d16;
  using V = hn::Vec<decltype(d)>;
  const auto* symbols = reinterpret_cast<const uint32_t*>(lookup.symbol.data());
  const uint32_t* intervals = lookup.interval.data();
  const V low16 = hn::Set(d, 0xffffu), entry = hn::Set(d, kWide ? 0xffffu : 0xffu);
  const uint8_t* p = words.at;
  V x0 = hn::LoadU(d, states), x1 = hn::LoadU(d, states + 8), x2 = hn::LoadU(d, states + 16),
    x3 = hn::LoadU(d, states + 24);
  const auto step = [&](V& x, int32_t* to) HWY_ATTR {
    const V slot = hn::And(x, low16);
    const V offset = kWide ? hn::ShiftLeft<1>(slot) : slot;
    const V s = hn::And(hn::GatherOffset(d, symbols, hn::BitCast(di, offset)), entry);
    hn::StoreU(hn::BitCast(di, s), di, to);
    const V interval = hn::GatherIndex(d, intervals, hn::BitCast(di, s));
    x = hn::Add(hn::Mul(hn::ShiftRight<16>(interval), hn::ShiftRight<16>(x)),
                hn::Sub(slot, hn::And(interval, low16)));
    const auto small = hn::Eq(hn::ShiftRight<16>(x), hn::Zero(d));
    uint8_t bits[8] = {};
    hn::StoreMaskBits(d, small, bits);
    const V next = hn::PromoteTo(d, hn::BitCast(d16, hn::LoadU(d8, p)));
    const V taken = hn::TableLookupLanes(next, hn::SetTableIndices(d, expand + 8 * bits[0]));
    x = hn::IfThenElse(small, hn::Or(hn::ShiftLeft<16>(x), taken), x);
    p += 2 * std::popcount(static_cast<unsigned>(bits[0]));
  };
  for (; done + rans::kLanes <= rows && words.end - p >= 2 * rans::kLanes; done += rans::kLanes) {
    step(x0, out + done);
    step(x1, out + done + 8);
    step(x2, out + done + 16);
    step(x3, out + done + 24);
  }
  hn::StoreU(x0, d, states);
  hn::StoreU(x1, d, states + 8);
  hn::StoreU(x2, d, states + 16);
  hn::StoreU(x3, d, states + 24);
  words.at = p;
#else
  (void)lookup, (void)expand, (void)states, (void)words, (void)rows, (void)out;
#endif
  return done;
}
int64_t decode_narrow(const rans::Lookup& lookup, const uint32_t* expand, uint32_t* states,
                      rans::Words& words, int64_t rows, int32_t* out) {
  return decode_blocks<false>(lookup, expand, states, words, rows, out);
}
int64_t decode_wide(const rans::Lookup& lookup, const uint32_t* expand, uint32_t* states,
                    rans::Words& words, int64_t rows, int32_t* out) {
  return decode_blocks<true>(lookup, expand, states, words, rows, out);
}

}  // namespace lattice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace lattice::cpu {

HWY_EXPORT(decode_narrow);
HWY_EXPORT(decode_wide);

namespace {

using rans::kLanes;
using rans::kLow;

constexpr int64_t kManyRows = 8192;

// expand[8 m + i] = set bits of m below bit i: the word that lane i takes.
constexpr std::array<uint32_t, 8 * 256> make_expand() {
  std::array<uint32_t, 8 * 256> table{};
  for (unsigned m = 0; m < 256; ++m)
    for (unsigned i = 0; i < 8; ++i)
      table[8 * m + i] = static_cast<uint32_t>(std::popcount(m & ((1u << i) - 1)));
  return table;
}
constexpr auto kExpand = make_expand();

// Rows one by one from row `first` on. find(row, slot) gives symbol, start and size.
template <typename Find>
void decode_rows(int lanes, uint32_t* states, rans::Words& words, int64_t first,
                 std::span<int32_t> symbols, std::string_view operation, const Find& find) {
  for (size_t i = static_cast<size_t>(first); i < symbols.size(); ++i) {
    uint32_t& x = states[i & static_cast<size_t>(lanes - 1)];
    const uint32_t slot = x & 0xffffu;
    const auto [s, start, size] = find(static_cast<int64_t>(i), slot);
    symbols[i] = static_cast<int32_t>(s);
    x = size * (x >> 16) + slot - start;
    if (x < kLow) {
      if (words.at == words.end) throw_bad_data(operation, "ends before its last symbol");
      x = x << 16 | get<uint16_t>(words.at);
      words.at += 2;
    }
  }
}

struct Found {
  uint32_t symbol, start, size;
};

}  // namespace

std::vector<uint8_t> rans_encode(const CdfSpan& cdf, std::span<const int32_t> symbols) {
  const int64_t n = static_cast<int64_t>(symbols.size());
  const int lanes = n >= kManyRows ? kLanes : 1;
  std::array<uint32_t, kLanes> states;
  states.fill(kLow);
  std::vector<uint16_t> words;  // backwards
  for (int64_t i = n; i-- > 0;) {
    uint32_t& x = states[static_cast<size_t>(i & (lanes - 1))];
    const uint16_t* table = cdf.table(i);
    const int32_t s = symbols[static_cast<size_t>(i)];
    const uint32_t start = CdfSpan::start(table, s), size = cdf.size(table, s);
    if (x >> 16 >= size) {
      words.push_back(static_cast<uint16_t>(x));
      x >>= 16;
    }
    x = (x / size << 16) + x % size + start;
  }
  std::vector<uint8_t> coded;
  coded.reserve(static_cast<size_t>(lanes) * 4 + words.size() * 2);
  for (int l = 0; l < lanes; ++l) put(coded, states[static_cast<size_t>(l)]);
  for (size_t i = words.size(); i-- > 0;) put(coded, words[i]);
  return write_stream(Coder::rans, lanes, n, cdf.alphabet, coded);
}

void rans_decode(const CdfSpan& cdf, const Stream& stream, std::span<int32_t> symbols,
                 std::string_view operation) {
  ByteReader reader(stream.coded, operation);
  std::array<uint32_t, kLanes> states;
  states.fill(kLow);
  for (int l = 0; l < stream.lanes; ++l) {
    states[static_cast<size_t>(l)] = reader.number<uint32_t>();
    if (states[static_cast<size_t>(l)] < kLow)
      throw_bad_data(operation, "begins with an impossible state");
  }
  const Bytes rest = reader.rest();
  if (rest.size() % 2 != 0) throw_bad_data(operation, "has half a word");
  rans::Words words{rest.data(), rest.data() + rest.size()};
  const int64_t n = static_cast<int64_t>(symbols.size());
  if (cdf.shared && n >= kManyRows) {
    const rans::Lookup lookup(cdf);
    int64_t done = 0;
    if (stream.lanes == kLanes)
      done = lookup.wide ? HWY_DYNAMIC_DISPATCH(decode_wide)(lookup, kExpand.data(), states.data(),
                                                             words, n, symbols.data())
                         : HWY_DYNAMIC_DISPATCH(decode_narrow)(
                               lookup, kExpand.data(), states.data(), words, n, symbols.data());
    decode_rows(stream.lanes, states.data(), words, done, symbols, operation,
                [&](int64_t, uint32_t slot) {
                  const uint32_t s = lookup.find(slot), interval = lookup.interval[s];
                  return Found{s, interval & 0xffffu, interval >> 16};
                });
  } else {
    decode_rows(
        stream.lanes, states.data(), words, 0, symbols, operation, [&](int64_t row, uint32_t slot) {
          const uint16_t* table = cdf.table(row);
          const int64_t s = cdf.find(table, slot);
          return Found{static_cast<uint32_t>(s), CdfSpan::start(table, s), cdf.size(table, s)};
        });
  }
  if (words.at != words.end) throw_bad_data(operation, "has bytes after its last symbol");
  for (uint32_t x : states)
    if (x != kLow)
      throw_bad_data(operation, "does not end as it should: it was written with other tables");
}

}  // namespace lattice::cpu
#endif

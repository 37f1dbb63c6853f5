#include "lattice/kernels/cpu/coding/entropy.h"

#include <cstring>
#include <limits>

#include "lattice/kernels/cpu/coding/range_coder.h"

namespace lattice::cpu {
namespace {

constexpr size_t kHeader = 24, kChecked = 20;
constexpr uint8_t kMagic[] = {'L', 'E', 'N', 'T'};
constexpr uint8_t kVersion = 1;
constexpr uint32_t kEnd = 0xa5a5;  // behind the last symbol

uint32_t checksum(Bytes header, Bytes coded) {
  return crc32c(coded, crc32c(header.first(kChecked)));
}

}  // namespace

std::vector<uint8_t> write_stream(Coder coder, int lanes, int64_t rows, int64_t alphabet,
                                  Bytes coded) {
  std::vector<uint8_t> out(kMagic, kMagic + 4);
  out.reserve(kHeader + coded.size());
  put(out, kVersion);
  put(out, static_cast<uint8_t>(coder));
  put(out, static_cast<uint8_t>(lanes));
  put(out, uint8_t{0});
  put(out, static_cast<uint64_t>(rows));
  put(out, static_cast<uint32_t>(alphabet));
  put(out, checksum(out, coded));
  put_bytes(out, coded);
  return out;
}

Stream open_stream(Bytes data, Coder coder, const CdfSpan& cdf, std::string_view operation) {
  if (data.size() < kHeader || std::memcmp(data.data(), kMagic, 4) != 0)
    throw_bad_data(operation, "is no stream: found " + std::to_string(data.size()) +
                                  " bytes without its header");
  const Bytes coded = data.subspan(kHeader);
  if (data[4] != kVersion)
    throw_bad_data(operation, "has version " + std::to_string(data[4]) + ", expected " +
                                  std::to_string(kVersion));
  if (get<uint32_t>(data.data() + kChecked) != checksum(data, coded))
    throw_bad_data(operation, "is damaged: its checksum does not fit");
  const int lanes = data[6];
  const bool lanes_fit = coder == Coder::range ? lanes == 0 : lanes == 1 || lanes == 32;
  if (data[5] != static_cast<uint8_t>(coder) || data[7] != 0 || !lanes_fit)
    throw_bad_data(operation, "was written by coder " + std::to_string(data[5]) + " with " +
                                  std::to_string(lanes) + " lanes, expected coder " +
                                  std::to_string(static_cast<int>(coder)));
  const uint64_t rows = get<uint64_t>(data.data() + 8);
  const uint32_t alphabet = get<uint32_t>(data.data() + 16);
  if (alphabet != cdf.alphabet)
    throw_bad_data(operation, "has an alphabet of " + std::to_string(alphabet) +
                                  ", the tables have " + std::to_string(cdf.alphabet));
  const uint64_t bits = 8 * uint64_t{coded.size()} + 64;
  if (cdf.shared ? rows > bits * (2 * 65536 / (65536 - largest_size(cdf)) + 2) || rows > INT32_MAX
                 : rows != static_cast<uint64_t>(cdf.tables))
    throw_bad_data(operation,
                   "claims " + std::to_string(rows) + " rows, " +
                       (cdf.shared ? "more than its bytes can hold"
                                   : "expected one for each table, " + std::to_string(cdf.tables)));
  return {static_cast<int64_t>(rows), lanes, coded};
}

std::vector<uint8_t> range_encode(const CdfSpan& cdf, std::span<const int32_t> symbols) {
  RangeEncoder coder;
  for (size_t i = 0; i < symbols.size(); ++i) {
    const uint16_t* table = cdf.table(static_cast<int64_t>(i));
    coder.encode(CdfSpan::start(table, symbols[i]), cdf.size(table, symbols[i]));
  }
  coder.encode(kEnd, 1);
  const std::vector<uint8_t> coded = coder.finish();
  return write_stream(Coder::range, 0, static_cast<int64_t>(symbols.size()), cdf.alphabet, coded);
}

void range_decode(const CdfSpan& cdf, const Stream& stream, std::span<int32_t> symbols,
                  std::string_view operation) {
  RangeDecoder coder(stream.coded, operation);
  for (size_t i = 0; i < symbols.size(); ++i) {
    const uint16_t* table = cdf.table(static_cast<int64_t>(i));
    const int64_t s = cdf.find(table, coder.target());
    coder.take(CdfSpan::start(table, s), cdf.size(table, s));
    symbols[i] = static_cast<int32_t>(s);
  }
  const bool same = coder.target() == kEnd;
  coder.take(kEnd, 1);
  coder.finish();
  if (!same)
    throw_bad_data(operation, "does not end as it should: it was written with other tables");
}

}  // namespace lattice::cpu

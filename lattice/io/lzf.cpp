#include "lattice/io/lzf.h"

#include <algorithm>
#include <vector>

#include "lattice/io/texts.h"

namespace lattice::io {
namespace {

constexpr size_t kWindow = 1 << 13, kLongest = 264;
constexpr int64_t kGrowth = 88;
constexpr int kHashBits = 16;

void add_literals(std::string& out, std::string_view bytes) {
  for (size_t at = 0; at < bytes.size(); at += 32) {
    const std::string_view part = bytes.substr(at, 32);
    out += static_cast<char>(part.size() - 1);
    out += part;
  }
}

void add_copy(std::string& out, size_t length, size_t back) {
  const size_t code = length - 2, offset = back - 1;
  out += static_cast<char>(std::min<size_t>(code, 7) << 5 | offset >> 8);
  if (code >= 7) out += static_cast<char>(code - 7);
  out += static_cast<char>(offset & 255);
}

}  // namespace

std::string lzf_decompress(std::string_view data, int64_t size) {
  if (size > kGrowth * static_cast<int64_t>(data.size()))
    refuse(std::to_string(data.size()) + " compressed bytes cannot become " + std::to_string(size));
  std::string out;
  out.reserve(static_cast<size_t>(size) + kLongest);
  size_t at = 0;
  const auto byte = [&]() -> size_t {
    if (at >= data.size()) refuse("compressed data end inside a token");
    return static_cast<uint8_t>(data[at++]);
  };
  while (at < data.size() && static_cast<int64_t>(out.size()) <= size) {
    const size_t control = byte();
    if (control < 32) {
      if (at + control >= data.size()) refuse("compressed data end inside a literal");
      out += data.substr(at, control + 1);
      at += control + 1;
      continue;
    }
    size_t length = (control >> 5) + 2;
    if (length == 9) length += byte();
    const size_t back = ((control & 31) << 8) + byte() + 1;
    if (back > out.size()) refuse("compressed data point before their begin");
    for (size_t from = out.size() - back, i = 0; i < length; ++i) out += out[from + i];
  }
  if (static_cast<int64_t>(out.size()) != size)
    refuse("compressed data make " +
           (static_cast<int64_t>(out.size()) > size ? "more than " + std::to_string(size)
                                                    : std::to_string(out.size())) +
           " bytes, expected " + std::to_string(size));
  return out;
}

std::string lzf_compress(std::string_view data) {
  std::string out;
  std::vector<size_t> latest(size_t{1} << kHashBits, SIZE_MAX);
  const auto key = [&](size_t i) {
    const auto byte = [&](size_t j) {
      return static_cast<uint32_t>(static_cast<uint8_t>(data[j]));
    };
    const uint32_t three = byte(i) | byte(i + 1) << 8 | byte(i + 2) << 16;
    return (three * 2654435761u) >> (32 - kHashBits);
  };
  size_t begin = 0, at = 0;  // literals begin at `begin`
  while (at + 2 < data.size()) {
    size_t& slot = latest[key(at)];
    const size_t source = slot;
    slot = at;
    if (source == SIZE_MAX || at - source > kWindow ||
        data.substr(source, 3) != data.substr(at, 3)) {
      ++at;
      continue;
    }
    size_t length = 3;
    const size_t most = std::min(kLongest, data.size() - at);
    while (length < most && data[source + length] == data[at + length]) ++length;
    add_literals(out, data.substr(begin, at - begin));
    add_copy(out, length, at - source);
    at += length;
    begin = at;
  }
  add_literals(out, data.substr(begin));
  return out;
}

}  // namespace lattice::io

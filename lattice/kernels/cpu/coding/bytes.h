// Little-endian numbers in byte strings, for the headers of streams and files. A reader never looks
// past its end.
#pragma once

#include <algorithm>
#include <concepts>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "lattice/kernels/cpu/base/checksum.h"

namespace lattice::cpu {

// What every decoder throws for bytes that are no stream: "[operation] data ...".
[[noreturn]] inline void throw_bad_data(std::string_view operation, const std::string& text) {
  throw std::invalid_argument("[" + std::string(operation) + "] data " + text);
}

template <std::unsigned_integral T>
void put(std::vector<uint8_t>& out, T value) {
  for (size_t i = 0; i < sizeof(T); ++i) out.push_back(static_cast<uint8_t>(value >> (8 * i)));
}
inline void put_bytes(std::vector<uint8_t>& out, Bytes data) {
  const size_t begin = out.size();
  out.resize(begin + data.size());
  std::copy(data.begin(), data.end(), out.data() + begin);
}
template <std::unsigned_integral T>
T get(const uint8_t* p) {
  T value = 0;
  for (size_t i = 0; i < sizeof(T); ++i)
    value = static_cast<T>(value | static_cast<T>(T{p[i]} << (8 * i)));
  return value;
}

class ByteReader {
 public:
  ByteReader(Bytes data, std::string_view operation) : data_(data), operation_(operation) {}
  template <std::unsigned_integral T>
  T number() {
    return get<T>(bytes(sizeof(T)).data());
  }
  // The next n bytes; n is untrusted.
  Bytes bytes(uint64_t n) {
    if (n > data_.size())
      throw_bad_data(operation_, "ends early: found " + std::to_string(data_.size()) +
                                     " bytes, expected " + std::to_string(n) + " more");
    const Bytes head = data_.first(static_cast<size_t>(n));
    data_ = data_.subspan(static_cast<size_t>(n));
    return head;
  }
  Bytes rest() const { return data_; }

 private:
  Bytes data_;
  std::string_view operation_;
};

}  // namespace lattice::cpu

// The range coder (Martin 1979) that all streams but rANS use: 64-bit interval, 16-bit
// probabilities, 32-bit words out.
//
//   a symbol is [start, start + size) of [0, 65536)
//   r = range >> 16;  low += r * start;  range = r * size
//   when range < 2^32: the upper word of low is written, low <<= 32, range <<= 32
//
// An overflow of low is carried into the words already written. Loss against the ideal code length:
// below 2^-15 bits per symbol. The last word is the only one the decoder may not find; it reads
// zeros there, so a stream has exactly one length. Integers only: the same bytes on every
// machine.
#pragma once

#include <cstdint>
#include <vector>

#include "lattice/kernels/cpu/coding/bytes.h"

namespace lattice::cpu {

class RangeEncoder {
 public:
  // 0 <= start, 1 <= size, start + size <= 65536.
  void encode(uint32_t start, uint32_t size) {
    const uint64_t r = range_ >> 16, add = r * start;
    low_ += add;
    if (low_ < add) carry();
    range_ = r * size;
    if (range_ >> 32 == 0) shift();
  }
  // One bit whose probability to be 0 is zero / 65536; 1 <= zero <= 65535.
  void encode_bit(bool bit, uint32_t zero) {
    if (bit)
      encode(zero, 65536 - zero);
    else
      encode(0, zero);
  }
  // The words; nothing may be encoded afterwards.
  std::vector<uint8_t> finish() {
    const uint64_t top = low_ + 0xffffffffu;  // a multiple of 2^32 inside the interval
    if (top < low_) carry();
    word(top);
    return std::move(out_);
  }

 private:
  void word(uint64_t value) {
    for (int s = 56; s >= 32; s -= 8) out_.push_back(static_cast<uint8_t>(value >> s));
  }
  void shift() {
    word(low_);
    low_ <<= 32;
    range_ <<= 32;
  }
  void carry() {
    for (size_t i = out_.size(); i-- > 0;)
      if (++out_[i] != 0) break;
  }
  uint64_t low_ = 0, range_ = ~uint64_t{0};
  std::vector<uint8_t> out_;
};

class RangeDecoder {
 public:
  RangeDecoder(Bytes data, std::string_view operation) : data_(data), operation_(operation) {
    if (data.size() % 4 != 0 || data.empty())
      throw_bad_data(operation, "holds " + std::to_string(data.size()) +
                                    " coded bytes, expected a multiple of 4");
    code_ = next() << 32;
    code_ |= next();
  }

  // Where in [0, 65536) the next symbol lies; then take() its interval.
  uint32_t target() {
    r_ = range_ >> 16;
    const uint64_t at = code_ / r_;
    return at > 65535 ? 65535 : static_cast<uint32_t>(at);
  }
  void take(uint32_t start, uint32_t size) {
    code_ -= r_ * start;
    range_ = r_ * size;
    if (range_ >> 32 == 0) shift();
  }
  bool decode_bit(uint32_t zero) {
    r_ = range_ >> 16;
    const uint64_t split = r_ * zero;
    const bool bit = code_ >= split;
    code_ -= bit ? split : 0;
    range_ = bit ? r_ * (65536 - zero) : split;
    if (range_ >> 32 == 0) shift();
    return bit;
  }
  // The share of the bytes that was read, 0..1.
  double share() const {
    return static_cast<double>(at_) / (static_cast<double>(data_.size()) + 4);
  }
  // After the last symbol: every word was needed.
  void finish() const {
    if (at_ != data_.size() + 4)
      throw_bad_data(operation_, "has " + std::to_string(data_.size()) + " coded bytes, " +
                                     std::to_string(at_ - 4) + " of them belong to its symbols");
  }

 private:
  uint64_t next() {
    if (at_ >= data_.size() + 4) throw_bad_data(operation_, "ends before its last symbol");
    const uint8_t* p = data_.data() + at_;
    const bool there = at_ < data_.size();
    at_ += 4;
    return there ? uint64_t{p[0]} << 24 | uint64_t{p[1]} << 16 | uint64_t{p[2]} << 8 | p[3] : 0;
  }
  void shift() {
    range_ <<= 32;
    code_ = code_ << 32 | next();
  }
  Bytes data_;
  std::string_view operation_;
  size_t at_ = 0;
  uint64_t code_ = 0, range_ = ~uint64_t{0}, r_ = 0;
};

}  // namespace lattice::cpu

// The storage types of feature values: float32, float16 (IEEE binary16) or bfloat16 (the upper half
// of a float32).
//
// All arithmetic is float32. Widening is exact; narrowing rounds to nearest, ties to even, keeps
// infinities and makes every NaN quiet. The vector forms are in float_types-inl.h.
#pragma once

#include <bit>
#include <cstdint>

namespace lattice::cpu {

enum class FloatType { f32, f16, bf16 };

struct half_t {
  uint16_t bits;
};
struct bfloat_t {
  uint16_t bits;
};

inline int64_t storage_bytes(FloatType storage) { return storage == FloatType::f32 ? 4 : 2; }

inline float widen(float v) { return v; }
inline float widen(bfloat_t v) { return std::bit_cast<float>(static_cast<uint32_t>(v.bits) << 16); }
// Shifting exponent and mantissa into place gives the value times 2^-112, also for subnormal
// values.
inline float widen(half_t v) {
  const uint32_t sign = static_cast<uint32_t>(v.bits & 0x8000u) << 16;
  const float scaled =
      std::bit_cast<float>(static_cast<uint32_t>(v.bits & 0x7fffu) << 13) * 0x1p112f;
  uint32_t bits = std::bit_cast<uint32_t>(scaled);
  if (scaled >= 65536.0f) bits |= 0x7f800000u;  // infinity or NaN
  return std::bit_cast<float>(bits | sign);
}

template <typename T>
T narrow(float v);
template <>
inline float narrow<float>(float v) {
  return v;
}
template <>
inline bfloat_t narrow<bfloat_t>(float v) {
  const uint32_t bits = std::bit_cast<uint32_t>(v);
  if (v != v) return {static_cast<uint16_t>(bits >> 16 | 0x40u)};
  return {static_cast<uint16_t>((bits + 0x7fffu + (bits >> 16 & 1u)) >> 16)};
}
template <>
inline half_t narrow<half_t>(float v) {
  const uint32_t sign = std::bit_cast<uint32_t>(v) >> 16 & 0x8000u;
  uint32_t bits = std::bit_cast<uint32_t>(v) & 0x7fffffffu;
  if (bits > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u | (bits >> 13 & 0x1ffu))};
  if (bits >= 0x47800000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // 65536 and above
  if (bits < 0x38800000u) {  // below 2^-14: adding 0.5 leaves the multiple of 2^-24 in the low
                             // bits, rounded by the addition
    const float shifted = std::bit_cast<float>(bits) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  bits += 0xc8000fffu + (bits >> 13 & 1u);  // exponent - 112, half a unit, ties to even
  return {static_cast<uint16_t>(sign | bits >> 13)};
}

// Calls f(T{}) with the type of the storage.
template <typename F>
decltype(auto) visit_float_type(FloatType storage, F&& f) {
  switch (storage) {
    case FloatType::f16:
      return f(half_t{});
    case FloatType::bf16:
      return f(bfloat_t{});
    default:
      return f(float{});
  }
}

}  // namespace lattice::cpu

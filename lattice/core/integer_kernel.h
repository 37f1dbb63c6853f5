/// @file
/// A layer in exact integers: weights, bias, scale, and what is done with the sums.
///
///     t[o, m] = bias[m] + sum over edges (i, o, k) of x[i] W[k][:, m] + factor[m] * residual[o, m]
///     y[o, m] = convert(t[o, m]), by the one rule of docs/ops/integer.md
///
/// The constructor proves that no input can make a sum leave int32 or saturate a 16-bit step of any
/// instruction set. So the result has the same bits on every machine.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <mlx/array.h>

#include "lattice/core/names.h"

/// @cond internal
namespace lattice::cpu {
class IntWeight;
struct IntLayer;
enum class IntType;
}  // namespace lattice::cpu
/// @endcond

namespace lattice {

/// What an IntegerKernel is made of. As an input or output int8 stands for bytes in -127 .. 127
/// that are kept as uint8 with 128 added, so that every array of bytes is uint8.
struct IntegerParts {
  mx::array weight;                        ///< (K, C_in, C_out) int8
  mx::array bias;                          ///< (C_out,) int32, in the unit of the sums
  mx::array scale;                         ///< (C_out,) float32: unit of sums / step of y
  std::optional<mx::array> factor = {};    ///< (C_out,) int32: of the residual, if any
  mx::Dtype input = mx::uint8;             ///< uint8 or int8; int16 is clamped to 12 bits
  mx::Dtype output = mx::uint8;            ///< uint8, which is the ReLU; int8, int16 or float32
  std::optional<mx::Dtype> residual = {};  ///< uint8 or int16, with a factor
  bool relu = false;                       ///< of a float32 output
  /// (256,) uint8: an output byte b becomes table[b]. GELU, sigmoid, any function of one value.
  std::optional<mx::array> table = {};
};
/// The dtype of the array that holds a format: uint8 for int8, else the same.
inline mx::Dtype stored_dtype(mx::Dtype format) { return format == mx::int8 ? mx::uint8 : format; }

/// A layer whose bounds have been proven. It is a value; copies share the memory.
class LATTICE_API IntegerKernel {
 public:
  /// Throws std::invalid_argument when arrays do not fit, a sum could overflow or the lane rule is
  /// broken; `name` is the layer that the message names.
  explicit IntegerKernel(IntegerParts parts, const std::string& name = "");

  /// The arrays and dtypes, as they were given.
  const IntegerParts& parts() const { return parts_; }
  /// K, the number of offsets.
  int64_t n_k() const { return parts_.weight.shape(0); }
  /// C_in.
  int64_t in_channels() const { return parts_.weight.shape(1); }
  /// C_out.
  int64_t out_channels() const { return parts_.weight.shape(2); }
  /// The arrays that were given, which a recording knows again; parts() are private copies.
  const IntegerParts& given() const { return given_; }
  /// The largest part of int32 that a sum can use.
  double share_of_range() const { return share_; }
  /// @cond internal
  const std::shared_ptr<const cpu::IntWeight>& packed() const { return packed_; }
  /// @endcond

 private:
  IntegerParts given_, parts_;
  std::shared_ptr<const cpu::IntWeight> packed_;
  double share_ = 0;
};

/// @cond internal
/// How kernels name a format, and a layer as they read it; its arrays belong to `parts`.
cpu::IntType int_type(mx::Dtype format);
cpu::IntLayer layer_of(const IntegerParts& parts);
/// @endcond

/// Codes of a weight and the unit of each output channel.
struct IntegerCodes {
  mx::array codes;  ///< (K, C_in, C_out) int8
  mx::array unit;   ///< (C_out,) float32: weight = code * unit
};
/// Rounds a weight (K, C_in, C_out) float32 with the smallest unit per output channel for which all
/// codes are in -127 .. 127, the lane rule holds (for uint8 inputs) and unit >= least. With `whole`
/// whole / unit becomes a whole number: the factor of a residual is exact. Throws
/// std::invalid_argument, which names the layer.
LATTICE_API IntegerCodes round_kernel(const mx::array& weight, const mx::array& least,
                                      const std::optional<mx::array>& whole = std::nullopt,
                                      mx::Dtype input = mx::uint8, const std::string& name = "");

}  // namespace lattice

/// @file
/// Forms of weights besides plain arrays: codes of 4 or 8 bits, and arrays in the order in which
/// the CPU reads them.
///
/// QuantizedWeight has codes of 4 or 8 bits with a scale and a bias for each group of input
/// channels.
///
///     W[k][c][m] = scale[k][m][c / group_size] * code[k][m][c] + bias[k][m][c / group_size]
///
/// Codes, scales and biases are those of mx::quantize(mode "affine") along C_in, which is padded
/// with zeros to a multiple of the group. K = 1: weight (1, C_out, words), scales and biases (1,
/// C_out, groups), as mx::quantized_matmul reads them. K > 1: weight (K, words, C_out), scales and
/// biases (K, groups, C_out): output channels lie side by side, as vector registers do.
#pragma once

#include <mlx/array.h>

#include <memory>
#include <string>
#include <utility>

#include "lattice/core/kernel_spec.h"

namespace lattice {

/// The shape of the dense weight: (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in).
enum class WeightLayout { linear, kernel_major, dense_5d };
/// The name that layout_named reads.
LATTICE_API const char* layout_name(WeightLayout layout);
/// Throws std::invalid_argument for an unknown name.
LATTICE_API WeightLayout layout_named(const std::string& name);

/// What a QuantizedWeight is made of.
struct QuantizedParts {
  mx::array weight;                            ///< codes
  mx::array scales;                            ///< of groups of codes
  mx::array biases;                            ///< of groups of codes
  int64_t group_size = 64;                     ///< input channels that share a scale
  int64_t bits = 4;                            ///< of a code, 4 or 8
  int64_t in_channels = 0;                     ///< C_in, without padding
  int64_t out_channels = 0;                    ///< C_out
  Triple kernel_size = {1, 1, 1};              ///< offsets on each axis
  WeightLayout layout = WeightLayout::linear;  ///< of the dense weight
};

/// A packed weight: a value that all convolutions and linear() take.
class LATTICE_API QuantizedWeight {
 public:
  /// Throws std::invalid_argument when bits are not 4 or 8, the group is not 32, 64 or 128, or an
  /// array is not what these say. kernel_size: of `kernel_major` only the number of offsets counts;
  /// `linear` has (1, 1, 1).
  explicit QuantizedWeight(QuantizedParts parts);

  /// The codes.
  const mx::array& weight() const { return weight_; }
  /// The scale of each group.
  const mx::array& scales() const { return scales_; }
  /// The bias of each group.
  const mx::array& biases() const { return biases_; }
  /// Input channels that share a scale: 32, 64 or 128.
  int64_t group_size() const { return group_size_; }
  /// 4 or 8.
  int64_t bits() const { return bits_; }
  /// C_in without padding.
  int64_t in_channels() const { return in_channels_; }
  /// C_out.
  int64_t out_channels() const { return out_channels_; }
  /// Offsets on each axis.
  const Triple& kernel_size() const { return kernel_size_; }
  /// The layout of the dense weight.
  WeightLayout layout() const { return layout_; }
  /// The dtype of scales and biases, which must be that of the features.
  mx::Dtype dtype() const { return scales_.dtype(); }
  /// K, the number of offsets.
  int64_t n_k() const { return kernel_size_[0] * kernel_size_[1] * kernel_size_[2]; }
  /// C_in rounded up to the group.
  int64_t storage_in_channels() const;
  /// Whether there is one offset.
  bool is_pointwise() const { return n_k() == 1; }
  /// The bytes of codes, scales and biases together.
  size_t nbytes() const;
  /// Shape of the dense weight.
  mx::Shape dense_shape() const;
  /// A description in one line.
  std::string text() const;
  /// The text that a file stores next to the arrays, and that `with_form` reads, such as
  /// "layout=dense_5d kernel_size=3,3,3 in_channels=32 out_channels=64 bits=8 group_size=32".
  std::string form() const;

 private:
  mx::array weight_, scales_, biases_;
  int64_t group_size_, bits_, in_channels_, out_channels_;
  Triple kernel_size_;
  WeightLayout layout_;
};

/// The weight of three arrays and a form. Throws std::invalid_argument for a form that `form()`
/// does not write, and for arrays that do not fit. `parts` gives the arrays only.
LATTICE_API QuantizedWeight with_form(QuantizedParts parts, const std::string& form);

/// 64 when there are as many input channels, else 32.
LATTICE_API int64_t default_group_size(int64_t in_channels);
/// @cond internal
/// Throws std::invalid_argument that names the operation.
void check_packing(const std::string& operation, int64_t bits, int64_t group_size);
/// @endcond

/// The result of pack_kernel(): a dense weight together with its values in the order in which the
/// CPU reads them. A value; copies share the memory.
///
/// A convolution with an array as weight packs the array in every call. One with a PackedKernel
/// does not, with the same result. The kernel remembers which array was packed; an assigned,
/// updated or loaded weight is a different array. A write into the memory of the array through a
/// NumPy view goes unnoticed, so pack again after such a write.
class LATTICE_API PackedKernel {
 public:
  /// The type that holds the packed values.
  using Panels = std::shared_ptr<const cpu::WeightPanels>;
  /// Made by pack_kernel().
  PackedKernel(mx::array weight, Panels panels)
      : weight_(std::move(weight)), panels_(std::move(panels)) {}

  /// As it was given.
  const mx::array& weight() const { return weight_; }
  /// Whether `weight` is the array that was packed. Equal values in two arrays are not identity.
  bool is_of(const mx::array& weight) const { return weight.id() == weight_.id(); }
  /// The packed values. Null if calls read the array itself: on a GPU, or when it is too large to
  /// be kept twice.
  const Panels& panels() const { return panels_; }
  /// Bytes in addition to those of the array.
  size_t nbytes() const;

 private:
  mx::array weight_;
  Panels panels_;
};

}  // namespace lattice

// A weight as codes of 4 or 8 bits with a scale and a bias for each group of input channels.
//
//   W[k][c][m] = scale[k][m][c / group_size] * code[k][m][c] + bias[k][m][c / group_size]
//
// Codes, scales and biases are those of mx::quantize(mode "affine") along C_in, which is padded
// with zeros to a multiple of the group. K = 1: weight (1, C_out, words), scales and biases (1,
// C_out, groups), as mx::quantized_matmul reads them. K > 1: weight (K, words, C_out), scales and
// biases (K, groups, C_out): output channels lie side by side, as vector registers do.
#pragma once

#include <mlx/array.h>

#include <string>

#include "lattice/core/arrays.h"
#include "lattice/core/kernel_spec.h"

namespace lattice {

// The shape of the dense weight: (C_out, C_in), (K, C_in, C_out) or (C_out, Kx, Ky, Kz, C_in).
enum class WeightLayout { linear, kernel_major, dense_5d };
const char* layout_name(WeightLayout layout);
// Throws std::invalid_argument for a name that is none.
WeightLayout layout_named(const std::string& name);

// What a QuantizedWeight is made of.
struct QuantizedParts {
  mx::array weight, scales, biases;  // codes; scales and biases of groups of codes
  int64_t group_size = 64, bits = 4;
  int64_t in_channels = 0, out_channels = 0;
  Triple kernel_size = {1, 1, 1};
  WeightLayout layout = WeightLayout::linear;
};

class QuantizedWeight {
 public:
  // Throws std::invalid_argument when bits are not 4 or 8, the group is not 32, 64 or 128, or an
  // array is not what these say. kernel_size: of `kernel_major` only the number of offsets counts;
  // `linear` has (1, 1, 1).
  explicit QuantizedWeight(QuantizedParts parts);

  const mx::array& weight() const { return weight_; }
  const mx::array& scales() const { return scales_; }
  const mx::array& biases() const { return biases_; }
  int64_t group_size() const { return group_size_; }
  int64_t bits() const { return bits_; }
  int64_t in_channels() const { return in_channels_; }
  int64_t out_channels() const { return out_channels_; }
  const Triple& kernel_size() const { return kernel_size_; }
  WeightLayout layout() const { return layout_; }
  // Of scales and biases; features must have it.
  mx::Dtype dtype() const { return scales_.dtype(); }
  int64_t n_k() const { return kernel_size_[0] * kernel_size_[1] * kernel_size_[2]; }
  // C_in rounded up to the group.
  int64_t storage_in_channels() const;
  bool is_pointwise() const { return n_k() == 1; }
  // Of codes, scales and biases: all that is kept.
  size_t nbytes() const;
  // Shape of the dense weight.
  mx::Shape dense_shape() const;
  // One line.
  std::string text() const;
  // What a file says beside the arrays, and `with_form` reads:
  // layout=dense_5d kernel_size=3,3,3 in_channels=32 out_channels=64 bits=8 group_size=32
  std::string form() const;

 private:
  mx::array weight_, scales_, biases_;
  int64_t group_size_, bits_, in_channels_, out_channels_;
  Triple kernel_size_;
  WeightLayout layout_;
};

// The weight of three arrays and a form. Throws std::invalid_argument for a form that `form()` does
// not write, and for arrays that do not fit. `parts` gives the arrays only.
QuantizedWeight with_form(QuantizedParts parts, const std::string& form);

// 64 when there are as many input channels, else 32.
int64_t default_group_size(int64_t in_channels);
// Throws std::invalid_argument that names the operation.
void check_packing(const std::string& operation, int64_t bits, int64_t group_size);

}  // namespace lattice

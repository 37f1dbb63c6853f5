// Sparse convolution in exact integers over the lists of a relation.
//
//   t[o, m] = bias[m] + sum over the edges (i, o) of all lists k of x[i, :] W[k][:, m]
//             + factor[m] * residual[o, m]
//   y[o, m] = convert(t[o, m])
//
// x is u8 (0 .. 255), s8 (-127 .. 127, kept as a byte with 128 added) or int16, clamped to 12 bits
// (-2047 .. 2047); W is s8, t is int32. Integer sums do not depend on their order, and IntWeight
// proves that none overflows. So every instruction set, tile and number of threads gives the same
// bits; reference_int_conv defines them. `convert` is one rule:
//
//   f32   float(t) * scale[m], with relu at least 0
//   u8    clamp(float(t) * scale[m], 0, 255) rounded to nearest, ties to even; 0 is the ReLU
//   s8    clamp(float(t) * scale[m], -127, 127) rounded in the same way, then + 128
//   i16   clamp(float(t) * scale[m], -32767, 32767) rounded in the same way
//
// A byte may then be replaced by table[byte]: GELU, sigmoid, any function of one value.
// float(t), the product and the rounding are operations of IEEE 754, each rounded once. The value
// is clamped before it is converted, because conversions out of range differ between processors.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/int_list.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

int64_t int_type_bytes(IntType type);

// Largest |x| and largest |residual| of a type.
int64_t int_input_most(IntType type);     // 255, or 2047: input rows are clamped to 12 bits
int64_t int_zero(IntType type);           // what stands for 0: 128 of s8
int64_t int_residual_most(IntType type);  // 255, or 32767

// What a layer is made of, by channel; W is (n_k, c_in, c_out).
struct IntLayer {
  IntType in = IntType::u8;
  int64_t n_k = 0, c_in = 0, c_out = 0;
  const int8_t* w = nullptr;
  const int32_t* bias = nullptr;
  const float* scale = nullptr;
  const int32_t* factor = nullptr;  // of the residual, or null
  IntType residual = IntType::u8;
};

// The lane rule. AVX2 multiplies pairs of bytes and saturates at 16 bits, and its kernel adds four
// such pairs in 16 bits: channels {4 s + 2 h, 4 s + 2 h + 1 : s = 0 .. 3} of each 16, h = 0, 1. For
// each offset and lane the positive weights, and the negative ones, have a sum of at most 128: then
// 255 * 128 <= 32767, and no input can saturate.
inline constexpr int32_t kIntLaneMost = 128;
// The first (offset, lane, output channel) that breaks the rule, in words; empty if none does.
std::string lane_rule_broken(const IntLayer& layer);
// The first output channel whose sums could leave int32 for some input, in words; empty: none.
std::string sums_overflow(const IntLayer& layer);
// The largest share of the int32 range that sums can reach.
double share_of_int32(const IntLayer& layer);

// A layer in the order in which kernels read it. W is [k][panel of 32][row_bytes / 4][32][4 bytes].
class IntWeight {
 public:
  // Throws std::invalid_argument when a sum could overflow, or the lane rule does not hold for u8.
  // `proven` false leaves out the lane rule: for the test that must see it broken.
  explicit IntWeight(const IntLayer& layer, bool proven = true);

  IntType in = IntType::u8;
  int64_t n_k = 0, c_in = 0, c_out = 0;
  int64_t row_bytes = 0;  // of an input row, a multiple of 16
  int64_t panels = 0;
  Buffer<uint8_t> blocks;
  Buffer<int32_t> bias, factor;  // panels * 32 values; factor is empty without a residual
  Buffer<float> scale;
  // -128 (s8) or 128 (u8) times the sum of the weights of an offset and column, (n_k, panels * 32):
  // what is added to the sums where s8 inputs, as bytes with 128 added, are multiplied as unsigned
  // bytes, or u8 inputs as signed ones. Empty for int16.
  Buffer<int32_t> shift;
  // The block of offset k and panel p.
  const uint8_t* block(int64_t k, int64_t p) const {
    return blocks.data() + (k * panels + p) * row_bytes * kIntPanel;
  }
};

struct IntRows {
  const void* data = nullptr;
  int64_t columns = 0;
};

struct IntConvArgs {
  const IntWeight* weight = nullptr;
  IntRows x;          // (n_in, columns) of weight->in
  IntRows more = {};  // the columns behind those of x, or null
  const void* residual = nullptr;
  IntType residual_type = IntType::u8;  // as in the layer
  IntType out = IntType::u8;
  bool relu = false;               // of out f32
  const uint8_t* table = nullptr;  // of 256 bytes, for out u8 and s8; or null
  void* y = nullptr;               // (n_out, c_out)
  bool one_edge_each = false;      // every output row has exactly one edge
  int64_t step_rows = 0;           // output rows that are summed together; 0: chosen here
  IntDot dot = IntDot::plain;
};

// `bounds` are tile_bounds of these lists, of any tile. Throws std::invalid_argument when sizes do
// not fit or the machine does not have the products of `dot`.
void int_conv(const RelationLists& lists, const TileBounds& bounds, const IntConvArgs& args);
// One value at a time; its bits are the definition. `backwards`: edges in the other order.
void reference_int_conv(const RelationLists& lists, const IntLayer& layer, const IntConvArgs& args,
                        bool backwards = false);

// x * inverse[c] clamped and rounded: to int16 in [-most, most] with the most of i16, or to s8. NaN
// becomes 0. x is (n, c).
void quantize_rows(const float* x, int64_t n, int64_t c, const float* inverse, IntType type,
                   void* y);

// Weights of one layer, (n_k, c_in, c_out) float32, as s8 codes of the smallest unit per output
// channel for which |q| <= 127, the lane rule holds (`lanes`) and unit >= least[m]. `whole`, if
// given, makes whole[m] / unit a whole number. Throws std::invalid_argument if a weight is not
// finite or a residual would be smaller than half a unit.
struct IntCodes {
  Buffer<int8_t> w;
  Buffer<float> unit;
};
IntCodes round_weights(const float* w, int64_t n_k, int64_t c_in, int64_t c_out,
                       std::span<const float> least, std::span<const float> whole, bool lanes);

}  // namespace lattice::cpu

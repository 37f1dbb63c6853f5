// Sparse convolution over the lists of a relation.
//
//   y[o, :] = sum over k ascending, over the edges (i, o) of list k in list order, of x[i, :] W[k],
//   + bias
//
// x is (n_in, c_in), y is (n_out, c_out), both row-contiguous and indexed by row (not by position).
// W[k] is (c_in / groups, c_out). Output column m reads the input columns of group m / (c_out /
// groups). All sums are float32: a product x[i, :] W[k] in ascending input channel (panels of at
// most 32 columns on AVX-512: even and odd channels apart), then the edges in the order above, then
// the bias; y is rounded once. A row without edges gets the bias, or 0.
//
// The input gradient is the same call on reversed(lists) with the weight's in and out strides
// exchanged.
#pragma once

#include <cstdint>
#include <memory>

#include "lattice/kernels/cpu/base/memory.h"
#include "lattice/kernels/cpu/features/conv_plan.h"
#include "lattice/kernels/cpu/geometry/relation_lists.h"

namespace lattice::cpu {

// A source of weights. One block holds what one panel of output columns reads for one offset.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // dst[c * width + j] = W[k][c][column + j] for c < c_in / groups, j < columns; 0 for columns <= j
  // < width. The columns are of one group, or groups have one column each. Called from several
  // threads.
  virtual void fill(int64_t k, int64_t column, int64_t columns, int64_t width,
                    float* dst) const = 0;
  // False: never hold more than a few blocks at a time.
  virtual bool keep_all() const { return true; }
};

// Weights in memory with any strides (in elements): W[k][c][m] = data[k * stride_k + c * stride_in
// + m * stride_out]. With groups, m is the column inside its group and stride_group is the way to
// the next group: c_out / groups * stride_out for a (K, c_in / groups, c_out) array; the transposed
// weight of an input gradient has the forward's stride_group.
struct DenseWeight final : WeightSource {
  ConvShape shape;
  const void* data;
  int64_t stride_k, stride_in, stride_out, stride_group;
  // An array (K, c_in / groups, c_out) with the strides of an offset, an input and an output
  // channel; without strides it is row-contiguous.
  DenseWeight(const ConvShape& shape, const void* data, int64_t stride_k, int64_t stride_in,
              int64_t stride_out)
      : shape(shape),
        data(data),
        stride_k(stride_k),
        stride_in(stride_in),
        stride_out(stride_out),
        stride_group(shape.out_group() * stride_out) {}
  DenseWeight(const ConvShape& shape, const void* data)
      : DenseWeight(shape, data, shape.in_group() * shape.c_out, shape.c_out, 1) {}
  void fill(int64_t k, int64_t column, int64_t columns, int64_t width, float* dst) const override;
};

// All blocks of a weight, as conv reads them with the instruction set that packed them.
struct WeightPanels {
  int64_t target = 0;  // of Highway
  int64_t n_k = 0;
  ConvShape shape;
  Buffer<float> blocks;
};

// The panels of a weight for any number of calls; null if they have more than 64 MiB.
std::shared_ptr<const WeightPanels> pack_weight(const WeightSource& weight, int64_t n_k,
                                                const ConvShape& shape);

// The norm, residual and ReLU that follow a convolution in evaluation, computed in the same pass
// over memory.
//
//   relu((y - mean) * scale + shift + residual), the formula of norm_rows (norm.h)
struct NormAfter {
  const float* mean = nullptr;  // (c_out); null: neither mean, scale nor shift
  const float* scale = nullptr;
  const float* shift = nullptr;
  const void* residual = nullptr;  // (n_out, c_out) of the storage of y, or null
  bool relu = false;
};

struct ConvArgs {
  ConvShape shape;
  const void* x = nullptr;  // (n_in, c_in), or its first columns: see `more`
  const WeightSource* weight = nullptr;
  const void* bias = nullptr;  // (c_out), or null
  void* y = nullptr;
  // Rows of x that share (offset, output row) are added first and multiplied once: see
  // conv_buckets_pay.
  bool add_shared_first = false;
  NormAfter norm = {};
  // The last columns of the input rows, (n_in, more_columns), or null. Both parts have a multiple
  // of 16 columns, and groups is 1.
  const void* more = nullptr;
  int64_t more_columns = 0;
  const WeightPanels* panels = nullptr;  // of `weight`, or null: the call packs for itself
};

// `bounds` are those of conv_tile(lists). Throws std::invalid_argument when channels are not
// positive multiples of groups or bounds are not of these lists. Extra memory: the weights as
// float32, if they have at most 64 MiB, and for each thread at most 8 MiB.
void conv(const RelationLists& lists, const TileBounds& bounds, const ConvArgs& args);

}  // namespace lattice::cpu

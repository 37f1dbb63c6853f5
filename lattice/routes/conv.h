// Convolutions and their gradients: the questions of conv, linear, outer, per_edge_apply and
// per_edge_outer, and the functions that launch the answers.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <optional>
#include <string>
#include <vector>

#include "lattice/core/relation.h"
#include "lattice/core/weights.h"
#include "lattice/kernels/cpu/features/conv_plan.h"
#include "lattice/routes/decide.h"
#include "lattice/routes/launch.h"

namespace lattice::routes {

// A convolution on a relation: which rows meet, how many channels they have, how they are stored.
struct ConvProblem : cpu::ConvShape {
  Relation::Ptr relation;
  ConvProblem(Relation::Ptr relation, int64_t c_in, int64_t c_out, int64_t groups = 1,
              mx::Dtype dtype = mx::float32)
      : ConvShape{c_in, c_out, groups, float_type_of(dtype)}, relation(std::move(relation)) {}
  mx::Dtype dtype() const { return dtype_of(storage); }
  int64_t n_k() const { return relation->n_kernels(); }
  int64_t n_in() const { return relation->n_in(); }
  int64_t n_out() const { return relation->n_out(); }
  int64_t n_edges() const { return relation->edge_count(); }
  double flop() const;                 // 2 * edges * c_in * c_out / groups
  graph::OutputSpec rows() const;      // (n_out, c_out)
  graph::OutputSpec weights() const;   // (n_k, c_in / groups, c_out)
  graph::OutputSpec matrices() const;  // (n_k, groups, c_in / groups, c_out / groups)
  // Of the input gradient.
  ConvProblem reversed() const { return {relation->reversed(), c_out, c_in, groups, dtype()}; }
  // With dense weights.
  Facts facts() const;
  std::string variant() const;
};

// How weights are packed (core/weights.h).
struct Packing {
  int64_t bits = 0;
  int64_t group_size = 0;
  bool transposed = false;  // the kernel reads W^T: it is an input gradient
  std::string text() const;
};

// A weight in the form that kernels read.
struct ConvWeight {
  mx::array w;  // (n_k, c_in / groups, c_out), or the codes of a packed weight
  struct Codes {
    mx::array scales, biases;
    Packing packing;
  };
  std::optional<Codes> codes = {};   // w is packed
  PackedKernel::Panels panels = {};  // of a dense weight, if the caller has them
  // A transposed view, whose output channels are not always adjacent. Kernels of a GPU read it as
  // it is. The codes of one offset are ordered by output channel (core/weights.h).
  bool strided = false;
  int64_t c_out() const { return w.shape(codes && w.shape(0) == 1 ? 1 : 2); }
};

// y = conv(x, w) + bias, and what follows.
struct ConvAsked : ConvProblem {
  mx::array x;
  ConvWeight weight;
  std::optional<mx::array> bias = {};
  std::optional<mx::array> more = {};  // the columns behind those of x
  // A norm in the same pass: relu((y - mean) * scale + shift + residual) with scale = weight /
  // sqrt(var + eps). Arrays of channels are float32.
  struct Norm {
    mx::array mean, var, weight, shift;
    float eps = 0;
    std::optional<mx::array> residual = {};
    bool relu = false;
    mx::array scale(mx::StreamOrDevice s) const;
  };
  std::optional<Norm> norm = {};
  mx::StreamOrDevice stream = {};
  Facts facts() const;
  std::string variant() const;
};
// u = outer(x, g): the weight gradient. Of per_edge_outer it has the shape matrices().
struct OuterAsked : ConvProblem {
  mx::array x, g;
  mx::StreamOrDevice stream = {};
};
// y from x and one matrix per edge, (n_k, groups, c_in / groups, c_out / groups), which may be any
// view.
struct PerEdgeAsked : ConvProblem {
  mx::array x, matrices_of_edges;
  mx::StreamOrDevice stream = {};
};

const Table<ConvAsked, mx::array>& conv_rows();
const Table<ConvAsked, mx::array>& linear_rows();
const Table<OuterAsked, mx::array>& outer_rows();
const Table<PerEdgeAsked, mx::array>& per_edge_apply_rows();
const Table<OuterAsked, mx::array>& per_edge_outer_rows();

std::vector<ConvAsked> probe_cases(const ConvAsked& like);
std::vector<OuterAsked> probe_cases(const OuterAsked& like);
std::vector<PerEdgeAsked> probe_cases(const PerEdgeAsked& like);

// Whether the rows of conv and linear on this stream are code of the CPU. Such rows can read packed
// panels and two arrays side by side, and apply the norm in the same pass.
bool conv_is_host_code(mx::StreamOrDevice s);

// How the kernels of conv and outer cut the output rows.
std::string tile_note(const ConvProblem& z);
mx::array conv_tiles(const ConvAsked& asked, const Route& route);
mx::array conv_packed(const ConvAsked& asked, const Route& route);
// The same; rows that share (offset, output row) are added first and multiplied once.
mx::array conv_buckets(const ConvAsked& asked, const Route& route);
mx::array conv_packed_buckets(const ConvAsked& asked, const Route& route);
// bfloat16 with the products of AVX-512 BF16.
mx::array conv_bf16(const ConvAsked& asked, const Route& route);
mx::array conv_reference(const ConvAsked& asked, const Route& route);
mx::array outer_buckets(const OuterAsked& asked, const Route& route);
mx::array outer_tiles(const OuterAsked& asked, const Route& route);
mx::array outer_reference(const OuterAsked& asked, const Route& route);

// conv and linear, dense or packed: a thread per output element.
mx::array conv_metal_rows(const ConvAsked& asked);
// Tiles over the map, and for linear over the rows themselves.
mx::array conv_metal_tiles(const ConvAsked& asked);
mx::array conv_metal_same(const ConvAsked& asked);
// Tiles over the map with sorted rows.
mx::array conv_metal_sorted(const ConvAsked& asked);
// The same for a reversed submanifold relation: i = o + offset k is o = i + offset K - 1 - k. So
// the relation itself, with the weights in reverse order, has the same result.
mx::array conv_metal_mirrored(const ConvAsked& asked);
// Tiles over the lists of offsets, where every output row has one edge.
mx::array conv_metal_lists(const ConvAsked& asked);
// Tiles of rows in local order; rows of x that share output and offset are added first.
mx::array conv_metal_buckets(const ConvAsked& asked);
mx::array outer_metal_rows(const OuterAsked& asked);
mx::array outer_metal_tiles(const OuterAsked& asked);

// A text for explain(): what share of the columns of tiles are channels.
std::string conv_tile_use(const ConvAsked& asked);
std::string conv_tensor_use(const ConvAsked& asked);
std::string outer_tile_use(const OuterAsked& asked);
std::string outer_tensor_use(const OuterAsked& asked);

// The same tiles with products on the tensor unit of Metal 4.
mx::array conv_metal_tensor_same(const ConvAsked& asked);  // of linear
mx::array conv_metal_tensor_sorted(const ConvAsked& asked);
mx::array conv_metal_tensor_mirrored(const ConvAsked& asked);
mx::array conv_metal_tensor_lists(const ConvAsked& asked);
mx::array outer_metal_tensor(const OuterAsked& asked);

// y with the norm of the question, if it has one, in MLX operations.
mx::array with_norm(const ConvAsked& asked, const mx::array& y);

// Plain MLX operations, offset by offset, in float32: for devices without a kernel of the library,
// and for comparison on the others.
mx::array conv_with_mlx(const ConvAsked& asked);
mx::array outer_with_mlx(const OuterAsked& asked);
mx::array linear_with_mlx(const ConvAsked& asked);

}  // namespace lattice::routes

// One evaluation that is about to be built: what a route may look at, and what it needs to launch.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "lattice/core/edge_segments.h"
#include "lattice/core/relation.h"
#include "lattice/core/row_groups.h"
#include "lattice/core/row_map.h"
#include "lattice/core/segment_pairs.h"
#include "lattice/kernels/cpu/base/float_types.h"
#include "lattice/kernels/cpu/features/distance.h"

namespace lattice {

// What the table has rows for.
enum class Operation {
  conv,
  linear,
  outer,
  per_edge_apply,
  per_edge_outer,
  pool,
  segments,
  argmax,
  gather,
  map_rows,
  sum_rows,
  join_columns,
  take_columns,
  batch_norm,
  batch_norm_vjp,
  row_norm,
  row_norm_vjp,
  gelu,
  adamw,
  distance,
  distance_vjp,
  attention,
  attention_vjp,
  neighbor_attention,
  neighbor_attention_vjp,
  rotary,
  unique,
  lookup,
  relate,
  neighbors,
};
const char* name(Operation operation);
std::optional<Operation> parse_operation(std::string_view name);

// How kernels name a float dtype.
cpu::FloatType float_type_of(mx::Dtype dtype);

// How weights are packed (core/quantized_weight.h). 0 bits: they are dense.
struct Packing {
  int64_t bits = 0;
  int64_t group_size = 0;
  bool transposed = false;  // the call reads W^T: it is an input gradient
  std::string text() const;
};

// What follows in the same pass (cpu::NormAfter).
struct After {
  bool residual = false, relu = false;
};

// Payload of conv and linear. Inputs: x, then the weight (dense) or codes, scales and biases of
// codes (packed), then the bias if there is one. Behind them stand mean, scale, shift and, if any,
// the residual of `after`. Two arrays may stand for x: its columns side by side.
struct Weights {
  Packing packing = {};
  bool has_bias = false;
  std::optional<After> after = {};
  size_t x_parts = 1;
  size_t weight_at() const { return x_parts; }
  size_t bias_at() const { return x_parts + (packing.bits ? 3 : 1); }
  size_t after_at() const { return bias_at() + (has_bias ? 1 : 0); }
};

// mean_adjoint: the adjoint of mean. max_match and tie_share: the two halves of the gradient of max
// (ops/pool_rows.h).
enum class ReduceMode { sum, mean, max, min, mean_adjoint, max_match, tie_share };
const char* name(ReduceMode mode);

// Payload of pool, segments, argmax and gather.
struct Reduce {
  ReduceMode mode = ReduceMode::sum;
  std::vector<float> offset_weights = {};  // of pool: one per offset, or none
  float fill = 0;                          // of gather
};

using cpu::Distance;
const char* name(Distance metric);
// Payload of distance and distance_vjp. Inputs: a, b; of distance_vjp then what multiplies each
// difference a[i] - b[j].
struct Pairs {
  Distance metric = Distance::euclidean;
};

// Payload of take_columns: columns first .. first + c_out.
struct Columns {
  int first = 0;
};

// Payload of batch_norm and batch_norm_vjp. Inputs: x, weight, bias, then mean and var if given,
// then the residual if there is one. batch_norm_vjp then has the cotangent, y, mean and var.
struct Norm {
  bool given = false, residual = false, relu = false;
  float eps = 0;
  size_t residual_at() const { return given ? 5 : 3; }
  size_t inputs() const { return residual_at() + (residual ? 1 : 0); }
};

// Payload of row_norm and row_norm_vjp. Inputs: x, weight, bias; of row_norm_vjp then the
// cotangent.
struct RowScale {
  float eps = 0;
  bool centered = true;
};

// Payload of gelu. Input: x of any shape.
struct Gelu {
  bool slope = false;  // the derivative instead of the value
};

// Payload of adamw. Inputs: parameter, gradient, m, v, rates.
struct Adamw {
  double b1 = 0, b2 = 0;
  float eps = 0;
};

// Payload of attention and attention_vjp (kernels/cpu/features/attention.h). Inputs: q, k, v, then
// the bias of all pairs or the table by position if there is one. attention_vjp then has out, the
// log-sum-exp and the cotangent of out. A log-sum-exp of no rows: the forward pass saved none.
struct Attend {
  struct Positions {  // of a table; (rows, axes) int32
    mx::array of_queries, of_keys;
    std::vector<int> bounds;
    bool joint = false;
  };
  SegmentPairs::Ptr segments = {};
  float scale = 1;
  bool biased = false;  // by all pairs, or by the table if there are positions
  bool causal = false;
  std::optional<Positions> positions = {};
  std::optional<mx::array> mask = {};  // (pairs,) bool, segments behind each other
  size_t inputs() const { return biased ? 4 : 3; }
};

// Payload of neighbor_attention and neighbor_attention_vjp
// (kernels/cpu/features/neighbor_attention.h). Inputs: v, then q and k if logits are products, then
// the bias of the edges if there is one. Inputs of neighbor_attention_vjp go on with out, the
// log-sum-exp and the cotangent of out.
struct AttendEdges {
  std::shared_ptr<const EdgeSegments> edges = {};
  float scale = 1;
  bool products = false, biased = false;
  size_t bias_at() const { return products ? 3 : 1; }
  size_t inputs() const { return bias_at() + (biased ? 1 : 0); }
};

// Payload of rotary (kernels/cpu/features/rotary.h). Input: x.
struct Rotary {
  mx::array positions;  // (rows, axes) float32
  double base = 0;
  bool inverse = false;
};

// Payload of unique, lookup, relate and neighbors.
struct Geometry {
  RelationKind kind = RelationKind::custom;  // of relate
  KernelSpec spec = {};                      // of relate
  bool has_target = true;                    // of relate: the second input is the output end
  int64_t limit = 0;                         // of neighbors: the most per query
  std::optional<float> reach = {};           // of neighbors: largest squared distance
  bool points = false;  // of neighbors: rows are a batch and the bits of three float32
};

struct Call {
  Operation operation = Operation::conv;
  std::vector<mx::array> inputs = {};  // as the payload documents them
  Relation::Ptr relation = {};         // null where there is none
  RowMap::Ptr map = {};                // of map_rows
  RowGroups::Ptr row_groups = {};      // of segments, argmax and gather
  int64_t c_in = 0, c_out = 0;         // channels of all groups
  int64_t groups = 1;
  mx::Dtype dtype = mx::float32;
  std::variant<Weights, Reduce, Pairs, Columns, Norm, RowScale, Gelu, Adamw, Attend, AttendEdges,
               Rotary, Geometry>
      payload = {};
  mx::StreamOrDevice stream = {};

  template <typename Payload>
  const Payload& get() const {
    return std::get<Payload>(payload);
  }
  const Weights& weights() const { return get<Weights>(); }
  const Packing& packing() const { return weights().packing; }
  const Reduce& reduce() const { return get<Reduce>(); }
  const Geometry& geometry() const { return get<Geometry>(); }
  // The bias of conv and linear; null: there is none.
  const mx::array* bias() const {
    return weights().has_bias ? &inputs[weights().bias_at()] : nullptr;
  }

  mx::Device device() const;
  int64_t n_in() const;
  int64_t n_out() const;
  // False where the number of output rows depends on values: of unique, and of relations that make
  // coordinates. n_out() is then the number of input rows.
  bool is_n_out_known() const;
  int64_t n_edges() const;
  double flop() const;         // 2 * edges * c_in * c_out / groups; of a reduction edges * c_in
  double bytes() const;        // features, weights and result, each once
  const char* family() const;  // "convolution", "pooling", ...
  // Lines of explain().
  std::string relation_text() const;
  std::string storage_text() const;
  std::string shape_and_dtype_text() const;
};

}  // namespace lattice

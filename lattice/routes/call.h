// One evaluation that is about to be built: what a route may look at, and what it needs to launch.
#pragma once

#include <mlx/array.h>
#include <mlx/utils.h>

#include <optional>
#include <string>
#include <vector>

#include "lattice/core/relation.h"
#include "lattice/core/row_groups.h"
#include "lattice/core/row_map.h"
#include "lattice/kernels/cpu/base/float_types.h"

namespace lattice {

// How kernels name a float dtype.
cpu::FloatType float_type_of(mx::Dtype dtype);

// How weights are packed (core/quantized_weight.h). 0 bits: they are dense.
struct Packing {
  int64_t bits = 0;
  int64_t group_size = 0;
  bool transposed = false;  // the call reads W^T: it is an input gradient
};

// What a geometry operation is asked besides its inputs (geometry_routes.h).
struct Geometry {
  RelationKind kind = RelationKind::custom;  // of relate
  KernelSpec spec;
  int64_t limit = 0;                // of neighbors: the most of a query
  std::optional<float> reach = {};  // of neighbors: largest squared distance
  bool points = false;              // of neighbors: rows are a batch and the bits of three float32
};

// One evaluation that is about to be built: what a route may look at, and what it needs to launch.
struct Call {
  std::string operation;  // "conv", "outer", "linear", "pool", "segments", "gather", "map_rows",
                          // "lookup", ...
  std::vector<mx::array> inputs;  // as the operation documents them
  Relation::Ptr relation;         // null where there is none
  RowMap::Ptr map;                // of map_rows; null otherwise
  int64_t c_in = 0, c_out = 0;    // channels of all groups
  int64_t groups = 1;
  mx::Dtype dtype = mx::float32;
  std::string storage = "dense";  // of the weights, in words
  Packing packing;  // packed: inputs are x, codes, scales, biases and, if any, the bias
  // Of a reduction: "sum", "mean", "max", "min"; of pool also "spread", "match", "share"; of
  // distance the metric.
  std::string mode;
  std::vector<float> offset_weights;  // of pool: one per offset, or none
  RowGroups::Ptr groups_of_rows;      // of segments and gather
  float fill = 0;                     // of gather
  std::optional<Geometry> geometry;   // of unique, lookup, relate, neighbors
  mx::StreamOrDevice stream = {};

  mx::Device device() const;
  int64_t n_in() const;
  int64_t n_out() const;
  int64_t n_edges() const;
  bool is_reduction() const {
    return operation == "pool" || operation == "segments" || operation == "argmax" ||
           operation == "gather" || map;
  }
  double flop() const;         // 2 * edges * c_in * c_out / groups; of a reduction edges * c_in
  double bytes() const;        // features, weights and result, each once
  const char* family() const;  // "convolution on a submanifold relation", ...
};

}  // namespace lattice
